//! The simulator finds the bugs that it must find.

use std::time::Duration;

use bellwire_core::drive::CallDriver;
use bellwire_core::wire::{Doorbell, Header, Kind, Status};
use bellwire_core::{Deadline, Instant, Park, Port, SpinPolicy, Woken};
use bellwire_sim::{Event, Sim, SimEnd, Step};

use crate::drive::by_hand;

const PARK: Park = Park { tail: 0, head: None, until: None };

fn never() -> Deadline {
    Deadline::NEVER
}

fn idle(_: &SimEnd) -> Step {
    Step::Parked(None)
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wait_without_a_pending_event_is_a_deadlock() {
    let (mut port, _) = Sim::default().start(idle);
    port.park(PARK);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_peer_that_publishes_without_ringing_loses_a_wake() {
    // Sends an answer to no request, and never rings, whatever the event index.
    let peer = by_hand(|end, lanes| {
        let header = Header::new(Kind::Response, Status::Ok, 1, 0);
        lanes.push(end.own(), end.peer(), header, &[]).unwrap();
        assert!(lanes.commit(end.own(), end.peer()).data);
        Step::Parked(None)
    });
    let (port, lanes) = Sim::default().start(peer);
    let mut driver = CallDriver::new(port, lanes, SpinPolicy::NEVER);
    driver.submit(b"x").unwrap();
    let _ = driver.wait_for_reply(&mut never(), &mut Vec::new());
}

#[test]
#[should_panic(expected = "endless")]
fn a_peer_that_never_stops_is_found() {
    let (mut port, _) = Sim::default().start(|_: &SimEnd| Step::Again);
    port.park(PARK);
}

#[test]
fn a_futex_forgets_rings_and_compares_and_an_eventfd_keeps_them() {
    let until = Some(Instant::from_nanos(1000));
    for (doorbell, kept) in
        [(Doorbell::Futex, false), (Doorbell::Eventfd, true), (Doorbell::Socket, true)]
    {
        let (mut port, _) = Sim { doorbell, ..Sim::default() }.start(|end: &SimEnd| {
            end.ring();
            Step::Parked(None)
        });
        port.run_peer();
        let expected = if kept { Woken::Rung } else { Woken::Deadline };
        assert_eq!(port.park(Park { until, ..PARK }), expected);
        let compared = port.park(Park { tail: 1, until: Some(port.now()), ..PARK });
        let expected = if kept { Woken::Deadline } else { Woken::Rung };
        assert_eq!(compared, expected);
        let high = port.park(Park { tail: 1 << 32, until: Some(port.now()), ..PARK });
        assert_eq!(high, Woken::Deadline, "only the low half is compared");
        let head = port.park(Park { head: Some(16), until: Some(port.now()), ..PARK });
        assert_eq!(head, expected);
    }
}

#[test]
fn virtual_time_jumps_to_the_next_event() {
    let (mut port, _) =
        Sim { wake: Duration::from_nanos(7), ..Sim::default() }.start(|end: &SimEnd| {
            if end.now() == Instant::from_nanos(300) {
                end.ring();
            }
            Step::Busy(Instant::from_nanos(300 * (end.now().as_nanos() / 300 + 1)))
        });
    port.after(Duration::from_nanos(100), Event::Cancel);
    assert_eq!((port.park(PARK), port.now().as_nanos()), (Woken::Cancelled, 100));
    let until = Some(Instant::from_nanos(200));
    assert_eq!((port.park(Park { until, ..PARK }), port.now().as_nanos()), (Woken::Deadline, 200));
    assert_eq!((port.park(PARK), port.now().as_nanos()), (Woken::Rung, 307));
    port.relax();
    assert_eq!(port.now().as_nanos(), 327);
    port.after(Duration::from_nanos(1), Event::PeerGone);
    for _ in 0..2 {
        assert_eq!((port.park(PARK), port.now().as_nanos()), (Woken::PeerGone, 328));
    }
    assert_eq!(port.parks(), 5);
}
