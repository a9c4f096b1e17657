//! A peer that is killed while its lane, or this one, goes on in another memory. The survivor reads what can be read,
//! says that the peer is gone, and has as many handles as before. Each test runs in a process of its own.

use bellwire_core::lane::{Lanes, Wake};
use bellwire_core::resize::{self, FollowError};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Geometry, OwnMemory, Park, PeerMemory, Port, Woken, Word};
use bellwire_win::link::Link;

use crate::child::{self, Running};
use crate::conformance::until;
use crate::handles::counted;
use crate::session::{Listens, accepted, connected, lanes, link_with, ring, sealed};
use crate::support::test_deadline;

/// How far the peer goes before it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// It has passed its next lane, and no record says so.
    Offered,
    /// It has passed a message in memory of its own, and no record says so.
    Attached,
    /// It has switched, and published a request in the new lane.
    Switched,
    /// It has done nothing: this end has switched, and the peer has not followed.
    Idle,
}

/// The peer's part.
fn go(mut link: Link, point: Point) -> ! {
    let mut lanes = lanes();
    match point {
        Point::Offered => {
            let epoch = lanes.next_epoch(link.peer(), Geometry::DEFAULT.doubled()).unwrap();
            link.offer(epoch).unwrap();
            passed(&link);
        }
        Point::Attached => {
            link.pass_attachment(1, 0, &sealed(&[7; 100])).unwrap();
            passed(&link);
        }
        Point::Switched => {
            resize::grow(&mut link, &mut lanes, Geometry::DEFAULT.doubled()).unwrap();
            let wake = push(&link, &mut lanes);
            ring(&link, wake);
        }
        Point::Idle => {}
    }
    child::wait_to_be_killed()
}

/// Publishes a request of 9000 bytes.
fn push(link: &Link, lanes: &mut Lanes) -> Wake {
    let header = Header::new(Kind::Request, Status::Ok, 1, 9000);
    lanes.push(link.own(), link.peer(), header, &[7; 9000]).unwrap();
    lanes.commit(link.own(), link.peer())
}

/// Follows the peer's switch and takes its request.
fn follow(link: &mut Link, lanes: &mut Lanes) -> Result<(), FollowError> {
    let switch = lanes.peek(link.peer()).unwrap().expect("it was published");
    resize::follow(link, lanes, &switch)?;
    let record = lanes.peek(link.peer()).unwrap().expect("so was this");
    let mut bytes = [0; 9000];
    lanes.copy(link.peer(), &record, &mut bytes);
    assert_eq!(bytes, [7; 9000]);
    lanes.take(&record);
    Ok(())
}

/// Looks until the peer has published something.
fn until_published(link: &Link) {
    until("it has published", || link.peer().load(Word::Tail, Ordering::Acquire) > 0);
}

/// Looks until the peer has passed something.
fn until_passed(link: &Link) {
    until("it has passed", || link.peer().load(Word::RungAt, Ordering::Acquire) > 0);
}

/// Says that something was passed, without a record.
fn passed(link: &Link) {
    link.own().store(Word::RungAt, 1, Ordering::Release);
}

/// Kills the peer, and sees that it is gone.
fn kill(link: &mut Link, child: &mut Running) {
    child.kill();
    let tail = link.peer().load(Word::Tail, Ordering::Acquire);
    let parked = || link.park(Park { tail, head: None, until: test_deadline() });
    let ended = std::iter::repeat_with(parked).find(|woken| *woken != Woken::Rung);
    assert_eq!(ended, Some(Woken::PeerGone));
    assert_eq!(link.fault(), None, "a death is no violation");
}

macro_rules! killed {
    ($($module:ident: $point:expr, $survives:expr;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn the_survivor_has_no_handle_more() {
                child::run(concat!("death::", stringify!($module), "::body_survives"));
            }

            #[test]
            fn body_survives() {
                if child::run_dir().is_none() {
                    return;
                }
                for listens in Listens::BOTH {
                    counted(|| {
                        let connects = concat!("death::", stringify!($module), "::body_connects");
                        let accepts = concat!("death::", stringify!($module), "::body_listens");
                        let (link, mut child, _dir) = link_with(connects, accepts, listens);
                        $survives(link, &mut child, listens);
                    });
                }
            }

            #[test]
            fn body_connects() {
                connected().into_iter().for_each(|link| go(link, $point));
            }

            #[test]
            fn body_listens() {
                accepted().into_iter().for_each(|link| go(link, $point));
            }
        }
    )*};
}

killed! {
    after_an_offer: Point::Offered, |mut link: Link, child: &mut Running, _| {
        until_passed(&link);
        kill(&mut link, child);
    };
    after_an_attachment: Point::Attached, |mut link: Link, child: &mut Running, _| {
        until_passed(&link);
        kill(&mut link, child);
    };
    after_an_attachment_that_was_taken: Point::Attached, |mut link: Link, child: &mut Running, _| {
        until_passed(&link);
        let (_, map) = link.take_attachment(1).unwrap();
        kill(&mut link, child);
        assert_eq!(*map, [7; 100]);
    };
    after_a_switch: Point::Switched, |mut link: Link, child: &mut Running, listens| {
        let mut lanes = lanes();
        until_published(&link);
        kill(&mut link, child);
        match (follow(&mut link, &mut lanes), listens) {
            // What a server sent is the client's.
            (Ok(()), _) => {}
            // What a client offered and this server had not taken is gone with it.
            (Err(FollowError::Short(_)), Listens::Caller) => {}
            (Err(error), _) => panic!("{error}"),
        }
    };
    after_it_followed: Point::Switched, |mut link: Link, child: &mut Running, _| {
        let mut lanes = lanes();
        until_published(&link);
        assert_eq!(follow(&mut link, &mut lanes), Ok(()));
        kill(&mut link, child);
        assert_eq!(lanes.peek(link.peer()), Ok(None));
    };
    before_it_follows: Point::Idle, |mut link: Link, child: &mut Running, _| {
        let mut lanes = lanes();
        resize::grow(&mut link, &mut lanes, Geometry::DEFAULT.doubled()).unwrap();
        let wake = push(&link, &mut lanes);
        ring(&link, wake);
        kill(&mut link, child);
        assert_eq!(lanes.taken(link.peer()), Ok(0));
    };
}
