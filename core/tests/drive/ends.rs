//! A peer that closes, goes or misbehaves.

use std::sync::mpsc::channel;

use bellwire_core::drive::CallFailed;
use bellwire_core::wire::{CloseReason, Kind};
use bellwire_core::{Deadline, SpinPolicy};
use bellwire_sim::Step;

use super::{answer, by_hand, driver, never, wait};

#[test]
fn records_published_before_the_peer_left_are_still_read() {
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
        let mut driver = driver(peer, SpinPolicy::NEVER);
        driver.submit(b"x").unwrap();
        driver.submit(b"y").unwrap();
        driver.submit(b"z").unwrap();
        for id in 1..=2 {
            let reply = driver.wait_for_reply(&mut never(), &mut Vec::new()).unwrap();
            assert_eq!(reply.ticket.id(), id);
        }
        assert!(matches!(wait(&mut driver, Deadline::NEVER), CallFailed::PeerGone(_)));
    }
}

#[test]
fn a_closed_driver_sends_a_close_record() {
    let (sender, receiver) = channel();
    let peer = by_hand(move |end, lanes| {
        while let Some(record) = lanes.peek(end.peer()).unwrap() {
            sender.send((record.kind, record.status)).unwrap();
            lanes.take(&record);
        }
        end.wake(lanes.arm(end.own(), end.peer(), false).unwrap().1);
        Step::Parked(None)
    });
    let mut driver = driver(peer, SpinPolicy::NEVER);
    driver.port().run_peer();
    driver.close(CloseReason::Normal);
    driver.port().run_peer();
    assert_eq!(
        receiver.try_iter().collect::<Vec<_>>(),
        [(Kind::Close, CloseReason::Normal as u16)]
    );
}
