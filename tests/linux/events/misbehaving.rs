//! Publishers that misbehave: a subscriber reports the violation, and finds the next provider.

use std::os::fd::AsFd;

use bellwire::{Backoff, CallError, Delivery, ProviderState, StartAt, SubscribeError, Subscriber};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{
    BROADCAST_RECORDS, BoardWord, BroadcastHeader, BroadcastKind, BroadcastRecord, BroadcastRing,
    BroadcastWord, CloseReason, Header, Kind, Message, Status,
};
use bellwire_core::{Geometry, ServiceName};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::OwnRegion;
use zerocopy::IntoBytes;

use super::{News, dir, provider, text};
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::rogue::{RogueListener, RogueSession, encode};
use crate::support::test_server::client_config;

const RING: BroadcastRing = BroadcastRing { number: 1, size: Geometry::SMALLEST };
const NAME: ServiceName = ServiceName::constant("news");

/// What a misbehaving publisher does: the ring, as an honest one would have made it, and the session.
type Violation = fn(&OwnRegion, &mut RogueSession);

fn store(ring: &OwnRegion, word: BroadcastWord, value: u64) {
    ring.store_u64(word.offset(), value, Ordering::Release);
}

/// Publishes the bytes of one record.
fn publish(ring: &OwnRegion, header: BroadcastRecord) {
    ring.write(BROADCAST_RECORDS, header.as_bytes());
    store(ring, BroadcastWord::Intent, 64);
    store(ring, BroadcastWord::Tail, 64);
    store(ring, BroadcastWord::Latest, 0);
}

/// Answers the first request with the ring, and says what it lies about.
fn pass(fd: &impl AsFd, session: &mut RogueSession, says: BroadcastRing) {
    let message = Message::Attachment(says.attachment(1));
    session.send_control(&encode(&message, 1), &[fd.as_fd()]);
    session.put(Header::new(Kind::Attach, Status::Ok, 1, 0), &[]);
}

/// Makes a ring with `header`, goes on with `violation`, and passes the ring, of which it says what `says` has.
fn open_ring(
    session: &mut RogueSession,
    header: BroadcastHeader,
    says: BroadcastRing,
    violation: Violation,
) -> OwnRegion {
    let (ring, fd) = OwnRegion::create("rogue-ring", RING.memory(), |ring| {
        ring.write(0, header.as_bytes());
        store(ring, BroadcastWord::Latest, u64::MAX);
    })
    .unwrap();
    let board = session.board.as_ref().unwrap();
    board.store_u64(BoardWord::Ring.offset(), says.to_wire(), Ordering::Release);
    violation(&ring, session);
    pass(&fd, session, says);
    ring
}

/// The subscriber of a publisher that passes `header`, says that it is the ring `says`, and goes on with `violation`, reports
/// `part`, and follows an honest one then.
#[track_caller]
fn violates(part: &str, header: BroadcastHeader, says: BroadcastRing, violation: Violation) {
    let dir = dir();
    let listener = RogueListener::bind(&dir.run_dir, "news");
    let backoff = Backoff::default().initial(TEST_TIMEOUT / 60_000).max(TEST_TIMEOUT / 6_000);
    let mut subscriber = Subscriber::<News>::with_config(
        &dir.run_dir,
        StartAt::Oldest,
        client_config().backoff(backoff),
    );
    let error = std::thread::scope(|scope| {
        let rogue = scope.spawn(|| {
            let mut session = listener.open(1);
            let ring = open_ring(&mut session, header, says, violation);
            session.is_left();
            drop(ring);
        });
        let mut error = None;
        until("it reports the violation", || {
            error = subscriber.try_next().err();
            error.is_some()
        });
        rogue.join().unwrap();
        error.unwrap()
    });
    let SubscribeError::Call(CallError::ProtocolViolation(_)) = error else { panic!("{error}") };
    assert!(error.to_string().contains(part), "{error} lacks {part:?}");
    drop(listener);
    let (_server, publisher) = provider(&dir.run_dir);
    publisher.send(&text(1, 1)).unwrap();
    let found = std::iter::from_fn(|| subscriber.next(Some(TEST_TIMEOUT)).unwrap());
    let event = Delivery::Event { sequence: 1, event: text(1, 1) };
    assert!(found.take(2).any(|delivery| delivery == event));
}

fn honest() -> BroadcastHeader {
    BroadcastHeader::new(RING, 1, NAME)
}

fn record(kind: u32, sequence: u64, len: u32) -> BroadcastRecord {
    BroadcastRecord {
        kind: kind.into(),
        ..BroadcastRecord::new(BroadcastKind::Data, sequence, len)
    }
}

#[test]
fn a_ring_with_the_header_of_another_one() {
    let other = BroadcastHeader::new(RING, 1, ServiceName::constant("olds"));
    violates("its header is another one", other, RING, |_, _| ());
    let other = BroadcastHeader::new(BroadcastRing { number: 2, ..RING }, 1, NAME);
    violates("its header is another one", other, RING, |_, _| ());
}

#[test]
fn a_ring_of_another_size_than_announced() {
    let says = BroadcastRing { size: Geometry::DEFAULT, ..RING };
    violates("another size than announced", honest(), says, |_, _| ());
}

#[test]
fn a_record_of_a_kind_that_there_is_not() {
    violates("unknown kind 7", honest(), RING, |ring, _| publish(ring, record(7, 1, 16)));
}

#[test]
fn an_end_that_names_no_ring() {
    violates("it names no ring", honest(), RING, |ring, _| publish(ring, record(3, 1 << 32, 0)));
}

#[test]
fn an_event_that_was_published_before_its_session_was_closed_is_delivered_after_arming() {
    for (is_armed, shows_life) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = dir();
        let mut listener = RogueListener::bind(&dir.run_dir, "news");
        listener.shows_life = shows_life;
        let mut subscriber =
            Subscriber::<News>::with_config(&dir.run_dir, StartAt::Oldest, client_config());
        let (mut session, ring) = std::thread::scope(|scope| {
            let rogue = scope.spawn(|| {
                let mut session = listener.open(1);
                let ring = open_ring(&mut session, honest(), RING, |_, _| ());
                (session, ring)
            });
            until("it follows", || {
                assert_eq!(subscriber.try_next().unwrap(), None);
                subscriber.is_following()
            });
            rogue.join().unwrap()
        });
        if is_armed {
            assert!(!subscriber.arm().unwrap());
        }
        publish(&ring, BroadcastRecord::new(BroadcastKind::Data, 1, 48));
        let mut close = Header::new(Kind::Close, Status::Ok, 0, 0);
        close.status = (CloseReason::Stopping as u16).into();
        session.put(close, &[]);
        assert!(subscriber.arm().unwrap());
        let event = Delivery::Event { sequence: 1, event: vec![0; 48] };
        assert_eq!(subscriber.try_next().unwrap(), Some(event));
        assert!(subscriber.arm().unwrap());
        assert_eq!(subscriber.try_next().unwrap(), None);
        assert_ne!(subscriber.state(), ProviderState::Ready);
    }
}
