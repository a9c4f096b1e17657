//! The blocking loops, over the simulator. Time is virtual.

mod ends;
mod posts;
mod spinning;

use std::time::Duration;

use bellwire_core::call::SubmitError;
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::Lanes;
use bellwire_core::wire::{Doorbell, Header, Kind, Status};
use bellwire_core::{Deadline, Executed, Instant, Port, SpinPolicy};
use bellwire_sim::{Event, Peer, Sim, SimEnd, SimPort, SimServer, Step};

const MICRO: Duration = Duration::from_micros(1);

fn never() -> Deadline {
    Deadline::NEVER
}

fn driver(peer: impl Peer + Send + 'static, spin: SpinPolicy) -> CallDriver<SimPort> {
    driver_in(Sim::default(), peer, spin)
}

fn driver_in(sim: Sim, peer: impl Peer + Send + 'static, spin: SpinPolicy) -> CallDriver<SimPort> {
    let (port, lanes) = sim.start(peer);
    CallDriver::new(port, lanes, spin)
}

fn echo(takes: Duration) -> SimServer<impl FnMut(&[u8]) -> (Status, Vec<u8>)> {
    SimServer::new(|request: &[u8]| (Status::Ok, request.to_vec())).taking(takes)
}

/// A peer that exists and never acts.
fn idle() -> impl Peer + Send + 'static {
    |_: &SimEnd| Step::Parked(None)
}

fn call(driver: &mut CallDriver<SimPort>, payload: &[u8]) -> Vec<u8> {
    let ticket = driver.submit(payload).unwrap();
    let mut buffer = Vec::new();
    let reply = driver.wait_for_reply(&mut never(), &mut buffer).unwrap();
    assert_eq!((reply.ticket, reply.status), (ticket, Status::Ok));
    buffer.truncate(reply.len);
    buffer
}

fn wait(driver: &mut CallDriver<SimPort>, until: Deadline) -> CallFailed {
    driver.wait_for_reply(&mut { until }, &mut Vec::new()).unwrap_err()
}

fn now(driver: &CallDriver<SimPort>) -> Duration {
    driver.port().now().since(Instant::default())
}

#[test]
fn a_call_completes_by_every_doorbell_and_spin() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
            for takes in [Duration::ZERO, MICRO, 30 * MICRO, 500 * MICRO] {
                let sim = Sim { doorbell, ..Sim::default() };
                let mut driver = driver_in(sim, echo(takes), spin);
                for len in [0, 1, 500, driver.end().lanes().max_payload()] {
                    assert_eq!(call(&mut driver, &vec![7; len]), vec![7; len]);
                }
                assert_eq!(driver.in_flight(), 0);
            }
        }
    }
}

#[test]
fn a_deadline_passes_on_time_and_the_answer_still_arrives() {
    for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
        let mut driver = driver(echo(900 * MICRO), spin);
        let ticket = driver.submit(b"slow").unwrap();
        let failed = wait(&mut driver, Deadline::within(100 * MICRO));
        assert_eq!(failed, CallFailed::Deadline(Executed::Maybe));
        let passed = now(&driver);
        assert!((100 * MICRO..102 * MICRO).contains(&passed), "{passed:?}");
        assert_eq!(
            wait(&mut driver, Deadline::at(Instant::from_nanos(0))),
            CallFailed::Deadline(Executed::Maybe)
        );
        let mut buffer = Vec::new();
        let reply = driver.wait_for_reply(&mut never(), &mut buffer).unwrap();
        assert_eq!((reply.ticket, &buffer[..reply.len]), (ticket, &b"slow"[..]));
    }
}

#[test]
fn a_spin_ends_at_the_deadline_too() {
    let mut driver = driver(idle(), SpinPolicy::default());
    driver.submit(b"x").unwrap();
    let failed = wait(&mut driver, Deadline::within(5 * MICRO));
    assert_eq!(failed, CallFailed::Deadline(Executed::Maybe));
    // The clock is read every 64 polls, and the span begins at the first reading: 1.28 µs.
    let passed = now(&driver);
    assert!((5 * MICRO..8 * MICRO).contains(&passed), "{passed:?}");
    assert_eq!(driver.parks(), 0);
}

#[test]
fn an_end_that_gave_up_waiting_is_not_rung() {
    let mut driver = driver(echo(900 * MICRO), SpinPolicy::NEVER);
    driver.submit(b"slow").unwrap();
    wait(&mut driver, Deadline::within(100 * MICRO));
    driver.port().run_for(2000 * MICRO);
    assert_eq!(driver.port().end().rung(), 0);
    assert!(driver.try_reply(&mut Vec::new()).unwrap().is_some());
}

/// A peer by hand: its lanes, and what it does with them.
pub(crate) fn by_hand(
    mut step: impl FnMut(&SimEnd, &mut Lanes) -> Step + Send,
) -> impl Peer + Send {
    let mut lanes = None;
    move |end: &SimEnd| step(end, lanes.get_or_insert_with(|| end.lanes()))
}

fn answer(end: &SimEnd, lanes: &mut Lanes, id: u64) {
    let header = Header::new(Kind::Response, Status::Ok, id, 0);
    lanes.push(end.own(), end.peer(), header, &[]).unwrap();
}

#[test]
fn a_wait_for_room_ends_at_its_deadline_and_the_handler_did_not_run() {
    let mut driver = driver(idle(), SpinPolicy::NEVER);
    while driver.submit(&[0; 1000]).is_ok() {}
    let failed = driver.wait_for_room(&mut Deadline::within(70 * MICRO));
    assert_eq!(failed, Err(CallFailed::Deadline(Executed::No)));
    assert_eq!(now(&driver), 70 * MICRO);
    driver.port().after(Duration::ZERO, Event::Cancel);
    let failed = driver.wait_for_room(&mut never());
    assert_eq!(failed, Err(CallFailed::Cancelled(Executed::No)));
    driver.port().after(Duration::ZERO, Event::PeerGone);
    let failed = driver.wait_for_room(&mut never());
    assert_eq!(failed, Err(CallFailed::PeerGone(Executed::No)));
}

/// With too many requests in flight, room in the lane is no use: the wait is for an answer, and ends.
#[test]
fn a_wait_with_too_many_in_flight_is_for_an_answer() {
    let mut silent = true;
    let peer = by_hand(move |end, lanes| {
        while let Some(record) = lanes.peek(end.peer()).unwrap() {
            lanes.take(&record);
        }
        if end.now() > Instant::from_nanos(9_000) && std::mem::take(&mut silent) {
            answer(end, lanes, 1);
        }
        end.wake(lanes.arm(end.own(), end.peer(), false).unwrap().1);
        Step::Parked(Some(Instant::from_nanos(10_000)).filter(|_| silent))
    });
    let mut driver = driver(peer, SpinPolicy::NEVER);
    loop {
        match driver.submit(&[]) {
            Ok(_) => {}
            Err(CallFailed::Submit(SubmitError::Window)) => break,
            Err(CallFailed::Submit(_)) => driver.port().run_peer(),
            Err(error) => panic!("{error}"),
        }
    }
    let failed = driver.wait_for_room(&mut Deadline::within(5 * MICRO));
    assert_eq!(failed, Err(CallFailed::Deadline(Executed::No)));
    driver.wait_for_room(&mut never()).unwrap();
    assert_eq!(driver.try_reply(&mut Vec::new()).unwrap().unwrap().ticket.id(), 1);
    driver.submit(&[]).unwrap();
}

#[test]
fn an_event_loop_is_rung_for_the_answer_that_it_armed_for() {
    let sim = Sim { doorbell: Doorbell::Eventfd, ..Sim::default() };
    let mut driver = driver_in(sim, echo(5 * MICRO), SpinPolicy::NEVER);
    driver.submit(b"x").unwrap();
    assert_eq!(driver.arm(false), Ok(false), "nothing is there yet");
    assert_eq!(driver.port().end().rung(), 0);
    driver.port().run_for(4 * MICRO);
    assert_eq!(driver.port().end().rung(), 0);
    driver.port().run_for(2 * MICRO);
    assert_eq!(driver.port().end().rung(), 1);
    assert_eq!(driver.arm(false), Ok(true), "do not sleep");
    assert!(driver.try_reply(&mut Vec::new()).unwrap().is_some());
}

/// Its records end every wait before the clock is read, and every poll before there is nothing left.
#[test]
fn a_call_ends_at_its_deadline_though_the_peer_never_stops_publishing() {
    for at_once in [1, 400] {
        let peer = by_hand(move |end, lanes| {
            while let Some(record) = lanes.peek(end.peer()).unwrap() {
                lanes.take(&record);
            }
            for _ in 0..at_once {
                let trimmed = Header::new(Kind::Trim, Status::Ok, 0, 0);
                if lanes.push(end.own(), end.peer(), trimmed, &[]).is_err() {
                    break;
                }
            }
            end.wake(lanes.commit(end.own(), end.peer()));
            Step::Busy(end.now().after(Duration::from_nanos(1)))
        });
        let mut driver = driver(peer, SpinPolicy::default());
        driver.submit(b"anybody?").unwrap();
        let ended = wait(&mut driver, Deadline::within(100 * MICRO));
        assert_eq!(ended, CallFailed::Deadline(Executed::Maybe));
    }
}
