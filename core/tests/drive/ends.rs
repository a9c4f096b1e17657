//! A peer that closes, goes or lies.

use std::sync::mpsc::channel;

use bellwire_core::drive::CallFailed;
use bellwire_core::wire::{CloseReason, Kind};
use bellwire_core::{Deadline, Executed, PeerFault, SpinPolicy};
use bellwire_sim::{Event, Step};

use super::{MICRO, answer, by_hand, drive, echo, idle, never, wait};

#[test]
fn a_peer_gone_before_it_took_the_request_did_not_run_it() {
    for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
        let mut drive = drive(idle(), spin);
        let ticket = drive.submit(b"x").unwrap();
        drive.port().after(40 * MICRO, Event::PeerGone);
        assert!(matches!(wait(&mut drive, Deadline::NEVER), CallFailed::PeerGone(_)));
        assert_eq!(drive.executed(ticket), Executed::No);
        assert_eq!(drive.submit(b"y"), Err(CallFailed::PeerGone(Executed::No)));
        assert!(matches!(wait(&mut drive, Deadline::NEVER), CallFailed::PeerGone(_)), "for good");
    }
}

#[test]
fn a_peer_gone_after_it_took_the_request_may_have_run_it() {
    let mut drive = drive(echo(100 * MICRO), SpinPolicy::NEVER);
    let first = drive.submit(b"taken").unwrap();
    let second = drive.submit(b"not taken").unwrap();
    drive.port().after(40 * MICRO, Event::PeerGone);
    assert!(matches!(wait(&mut drive, Deadline::NEVER), CallFailed::PeerGone(_)));
    assert_eq!(drive.executed(first), Executed::Maybe);
    assert_eq!(drive.executed(second), Executed::No);
}

#[test]
fn what_was_published_before_the_peer_went_is_still_read() {
    for ring in [false, true] {
        let peer = by_hand(move |end, lanes| {
            answer(end, lanes, 1);
            answer(end, lanes, 2);
            let wake = lanes.commit(end.own(), end.peer());
            if ring {
                end.wake(wake);
            }
            Step::Gone
        });
        let mut drive = drive(peer, SpinPolicy::NEVER);
        drive.submit(b"x").unwrap();
        drive.submit(b"y").unwrap();
        drive.submit(b"z").unwrap();
        for id in 1..=2 {
            let reply = drive.wait_for_reply(&mut never(), &mut Vec::new()).unwrap();
            assert_eq!(reply.ticket.id(), id);
        }
        assert!(matches!(wait(&mut drive, Deadline::NEVER), CallFailed::PeerGone(_)));
    }
}

#[test]
fn a_close_ends_every_wait_and_says_why() {
    let peer = by_hand(|end, lanes| {
        lanes.push_close(end.own(), CloseReason::Stopping);
        end.wake(lanes.commit(end.own(), end.peer()));
        Step::Parked(None)
    });
    let mut drive = drive(peer, SpinPolicy::NEVER);
    drive.submit(b"x").unwrap();
    assert!(matches!(wait(&mut drive, Deadline::NEVER), CallFailed::PeerGone(_)));
    assert_eq!(drive.closed(), Some(CloseReason::Stopping));
    assert_eq!(drive.submit(b"y"), Err(CallFailed::PeerGone(Executed::No)));
}

#[test]
fn a_closed_drive_says_close() {
    let (tell, told) = channel();
    let peer = by_hand(move |end, lanes| {
        while let Some(record) = lanes.peek(end.peer()).unwrap() {
            tell.send((record.kind, record.status)).unwrap();
            lanes.take(&record);
        }
        end.wake(lanes.arm(end.own(), end.peer(), false).unwrap().1);
        Step::Parked(None)
    });
    let mut drive = drive(peer, SpinPolicy::NEVER);
    drive.port().run_peer();
    drive.close(CloseReason::Normal);
    drive.port().run_peer();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Kind::Close, CloseReason::Normal as u16)]);
}

#[test]
fn a_lie_poisons_the_session_for_good() {
    let peer = by_hand(|end, lanes| {
        answer(end, lanes, 9);
        end.wake(lanes.commit(end.own(), end.peer()));
        Step::Parked(None)
    });
    let mut drive = drive(peer, SpinPolicy::NEVER);
    drive.submit(b"x").unwrap();
    let lie = CallFailed::Peer(PeerFault::UnknownId { id: 9 });
    assert_eq!(wait(&mut drive, Deadline::NEVER), lie);
    assert_eq!(drive.ended(), Some(lie));
    assert_eq!(drive.submit(b"y"), Err(lie));
    assert_eq!(drive.try_reply(&mut Vec::new()), Err(lie));
    assert_eq!(wait(&mut drive, Deadline::NEVER), lie);
}
