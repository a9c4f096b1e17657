//! The blocking loops, over the simulator. Time is virtual.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use bellwire_core::call::{Outgoing, SubmitError};
use bellwire_core::drive::{CallDriver, CallFailed, Look};
use bellwire_core::lane::{Lanes, PushError};
use bellwire_core::sim::{Event, Peer, Sim, SimEnd, SimPort, SimServer, Step};
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{CloseReason, Doorbell, Header, Kind, Status};
use bellwire_core::{
    Deadline, Executed, Geometry, Instant, PeerFault, PeerMemory, Port, SpinPolicy,
};

use crate::pair::growing;

const MICRO: Duration = Duration::from_micros(1);

fn never() -> Deadline {
    Deadline::NEVER
}

fn drive(peer: impl Peer + Send + 'static, spin: SpinPolicy) -> CallDriver<SimPort> {
    drive_in(Sim::default(), peer, spin)
}

fn drive_in(sim: Sim, peer: impl Peer + Send + 'static, spin: SpinPolicy) -> CallDriver<SimPort> {
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

fn call(drive: &mut CallDriver<SimPort>, payload: &[u8]) -> Vec<u8> {
    let ticket = drive.submit(payload).unwrap();
    let mut buffer = Vec::new();
    let reply = drive.wait_for_reply(&mut never(), &mut buffer).unwrap();
    assert_eq!((reply.ticket, reply.status), (ticket, Status::Ok));
    buffer.truncate(reply.len);
    buffer
}

fn wait(drive: &mut CallDriver<SimPort>, until: Deadline) -> CallFailed {
    drive.wait_for_reply(&mut { until }, &mut Vec::new()).unwrap_err()
}

fn now(drive: &CallDriver<SimPort>) -> Duration {
    drive.port().now().since(Instant::default())
}

#[test]
fn a_call_completes_by_every_doorbell_and_spin() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
            for takes in [Duration::ZERO, MICRO, 30 * MICRO, 500 * MICRO] {
                let sim = Sim { doorbell, ..Sim::default() };
                let mut drive = drive_in(sim, echo(takes), spin);
                for len in [0, 1, 500, drive.max_payload()] {
                    assert_eq!(call(&mut drive, &vec![7; len]), vec![7; len]);
                }
                assert_eq!(drive.in_flight(), 0);
            }
        }
    }
}

#[test]
fn calls_in_flight_are_answered_over_many_laps() {
    let mut drive = drive(echo(Duration::ZERO), SpinPolicy::NEVER);
    let mut buffer = Vec::new();
    for lap in 0..200_u32 {
        let payload = lap.to_le_bytes().repeat(50);
        for _ in 0..5 {
            drive.push(&payload).unwrap();
        }
        drive.commit();
        for _ in 0..5 {
            let reply = drive.wait_for_reply(&mut never(), &mut buffer).unwrap();
            assert_eq!(&buffer[..reply.len], &payload[..]);
        }
    }
}

fn post(drive: &mut CallDriver<SimPort>, payload: &[u8]) {
    loop {
        match drive.submit(Outgoing::from(payload).one_way()) {
            Ok(_) => return,
            Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) => {
                drive.wait_for_room(&mut never()).unwrap();
            }
            Err(failed) => panic!("{failed}"),
        }
    }
}

fn flush(drive: &mut CallDriver<SimPort>, mut until: Deadline) -> Result<(), CallFailed> {
    while !drive.wait_for_taken(&mut until)? {}
    Ok(())
}

#[test]
fn a_flush_ends_when_everything_posted_was_taken_by_every_doorbell_and_spin() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
            for takes in [Duration::ZERO, MICRO, 30 * MICRO, 500 * MICRO] {
                let sim = Sim { doorbell, ..Sim::default() };
                let mut drive = drive_in(sim, echo(takes), spin);
                flush(&mut drive, never()).unwrap();
                for (round, len) in [0, 1, 500, 3_000, drive.max_payload()].into_iter().enumerate()
                {
                    for _ in 0..=round * 7 {
                        post(&mut drive, &vec![7; len]);
                    }
                    let asked = drive.submit(b"between").unwrap();
                    post(&mut drive, b"last");
                    flush(&mut drive, never()).unwrap();
                    assert_eq!(drive.untaken_posts(), 0);
                    let mut buffer = Vec::new();
                    let reply = drive.wait_for_reply(&mut never(), &mut buffer).unwrap();
                    assert_eq!((reply.ticket, &buffer[..reply.len]), (asked, &b"between"[..]));
                }
                assert_eq!(drive.in_flight(), 0);
            }
        }
    }
}

#[test]
fn a_flush_that_is_not_taken_in_time_says_so_and_how_many_are_left() {
    for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
        let mut drive = drive(idle(), spin);
        post(&mut drive, b"one");
        post(&mut drive, b"two");
        let failed = flush(&mut drive, Deadline::within(50 * MICRO)).unwrap_err();
        assert_eq!(failed, CallFailed::Deadline(Executed::Maybe));
        assert_eq!(drive.untaken_posts(), 2);
    }
}

#[test]
fn a_post_finds_room_although_as_many_requests_wait_as_may() {
    let mut drive = drive(echo(MICRO), SpinPolicy::NEVER);
    drive.set_window(1);
    drive.push(b"asked").unwrap();
    let full = Err(CallFailed::Submit(SubmitError::Window));
    assert_eq!(drive.push(b"no place"), full);
    for _ in 0..40 {
        post(&mut drive, &[1; 1000]);
    }
    flush(&mut drive, never()).unwrap();
}

#[test]
fn a_deadline_passes_when_its_time_has_come_and_the_answer_still_arrives() {
    for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
        let mut drive = drive(echo(900 * MICRO), spin);
        let ticket = drive.submit(b"slow").unwrap();
        let failed = wait(&mut drive, Deadline::within(100 * MICRO));
        assert_eq!(failed, CallFailed::Deadline(Executed::Maybe));
        let passed = now(&drive);
        assert!((100 * MICRO..102 * MICRO).contains(&passed), "{passed:?}");
        assert_eq!(
            wait(&mut drive, Deadline::at(Instant::from_nanos(0))),
            CallFailed::Deadline(Executed::Maybe)
        );
        let mut buffer = Vec::new();
        let reply = drive.wait_for_reply(&mut never(), &mut buffer).unwrap();
        assert_eq!((reply.ticket, &buffer[..reply.len]), (ticket, &b"slow"[..]));
    }
}

#[test]
fn a_spin_ends_at_the_deadline_too() {
    let mut drive = drive(idle(), SpinPolicy::default());
    drive.submit(b"x").unwrap();
    let failed = wait(&mut drive, Deadline::within(5 * MICRO));
    assert_eq!(failed, CallFailed::Deadline(Executed::Maybe));
    // The clock is read every 64 polls, and the span begins at the first reading: 1.28 µs.
    let passed = now(&drive);
    assert!((5 * MICRO..8 * MICRO).contains(&passed), "{passed:?}");
    assert_eq!(drive.parks(), 0);
}

#[test]
fn who_gave_up_waiting_is_not_rung() {
    let mut drive = drive(echo(900 * MICRO), SpinPolicy::NEVER);
    drive.submit(b"slow").unwrap();
    wait(&mut drive, Deadline::within(100 * MICRO));
    drive.port().run_for(2000 * MICRO);
    assert_eq!(drive.port().end().rung(), 0);
    assert!(drive.try_reply(&mut Vec::new()).unwrap().is_some());
}

#[test]
fn an_abandoned_call_leaves_the_session_usable() {
    let mut drive = drive(echo(50 * MICRO), SpinPolicy::NEVER);
    let ticket = drive.submit(b"unwanted").unwrap();
    wait(&mut drive, Deadline::within(MICRO));
    assert!(drive.abandon(ticket));
    assert_eq!(call(&mut drive, b"wanted"), b"wanted");
    assert_eq!(drive.in_flight(), 0);
}

#[test]
fn a_cancel_ends_one_wait() {
    let mut drive = drive(echo(90 * MICRO), SpinPolicy::NEVER);
    drive.submit(b"x").unwrap();
    drive.port().after(10 * MICRO, Event::Cancel);
    let failed = wait(&mut drive, Deadline::within(50 * MICRO));
    assert_eq!(failed, CallFailed::Cancelled(Executed::Maybe));
    assert_eq!(now(&drive), 10 * MICRO);
    let mut buffer = Vec::new();
    assert_eq!(drive.wait_for_reply(&mut never(), &mut buffer).unwrap().len, 1);
}

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

/// A peer by hand: its lanes, and what it does with them.
fn by_hand(mut step: impl FnMut(&SimEnd, &mut Lanes) -> Step + Send) -> impl Peer + Send {
    let mut lanes = None;
    move |end: &SimEnd| step(end, lanes.get_or_insert_with(|| end.lanes()))
}

fn answer(end: &SimEnd, lanes: &mut Lanes, id: u64) {
    let header = Header::new(Kind::Response, Status::Ok, id, 0);
    lanes.push(end.own(), end.peer(), header, &[]).unwrap();
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

#[test]
fn a_full_lane_gets_room_and_the_answers_are_taken_meanwhile() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd] {
        for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
            let size = Geometry::new(4096).unwrap();
            let sim = Sim { lane: size, peer_lane: size, doorbell, ..Sim::default() };
            let mut drive = drive_in(sim, echo(2 * MICRO), spin);
            let (mut sent, mut answered, mut fulls) = (0, 0, 0);
            let mut buffer = Vec::new();
            while answered < 100 {
                match drive.push(&[7; 700]) {
                    Ok(_) if sent < 100 => sent += 1,
                    Ok(ticket) => drop(drive.abandon(ticket)),
                    Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) => {
                        fulls += 1;
                        drive.wait_for_room(&mut never()).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
                while drive.try_reply(&mut buffer).unwrap().is_some() {
                    answered += 1;
                }
            }
            assert!(fulls > 0);
        }
    }
}

#[test]
fn a_wait_for_room_ends_at_its_deadline_and_the_handler_did_not_run() {
    let mut drive = drive(idle(), SpinPolicy::NEVER);
    while drive.submit(&[0; 1000]).is_ok() {}
    let failed = drive.wait_for_room(&mut Deadline::within(70 * MICRO));
    assert_eq!(failed, Err(CallFailed::Deadline(Executed::No)));
    assert_eq!(now(&drive), 70 * MICRO);
    drive.port().after(Duration::ZERO, Event::Cancel);
    let failed = drive.wait_for_room(&mut never());
    assert_eq!(failed, Err(CallFailed::Cancelled(Executed::No)));
    drive.port().after(Duration::ZERO, Event::PeerGone);
    let failed = drive.wait_for_room(&mut never());
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
    let mut drive = drive(peer, SpinPolicy::NEVER);
    loop {
        match drive.submit(&[]) {
            Ok(_) => {}
            Err(CallFailed::Submit(SubmitError::Window)) => break,
            Err(CallFailed::Submit(_)) => drive.port().run_peer(),
            Err(error) => panic!("{error}"),
        }
    }
    let failed = drive.wait_for_room(&mut Deadline::within(5 * MICRO));
    assert_eq!(failed, Err(CallFailed::Deadline(Executed::No)));
    drive.wait_for_room(&mut never()).unwrap();
    assert_eq!(drive.try_reply(&mut Vec::new()).unwrap().unwrap().ticket.id(), 1);
    drive.submit(&[]).unwrap();
}

#[test]
fn a_spin_that_sees_the_answer_does_not_park_and_rings_nobody() {
    // The server spins too: it looks every 100 ns and never parks.
    let mut server = echo(Duration::ZERO);
    let peer = move |end: &SimEnd| match server.step(end) {
        Step::Parked(_) => {
            Lanes::open(end.own());
            Step::Busy(end.now().after(Duration::from_nanos(100)))
        }
        step => step,
    };
    let mut drive = drive(peer, SpinPolicy::default());
    for _ in 0..1000 {
        call(&mut drive, b"hot");
    }
    assert_eq!((drive.port().parks(), drive.port().rings(), drive.port().end().rung()), (0, 0, 0));
    assert_eq!((drive.parks(), drive.rings()), (0, 0));
}

#[test]
fn a_spin_gives_way_each_time_that_it_looks_at_the_clock_unless_nobody_was_there() {
    // A poll takes 20 ns, and the clock is read after 64.
    let (others, nobody) = (2 * MICRO, MICRO / 2);
    for (takes, crowd, times) in [
        (MICRO, others, 0),
        (2 * MICRO, others, 1),
        // After the first, others are known to be there.
        (20 * MICRO, others, 10),
        (20 * MICRO, nobody, 2),
    ] {
        let mut drive =
            drive_in(Sim { crowd, ..Sim::default() }, echo(takes), SpinPolicy::default());
        call(&mut drive, b"soon");
        assert_eq!((drive.port().gave_way(), drive.parks()), (times, 0), "{takes:?} {crowd:?}");
    }
}

/// Looks as an event loop does. How often it served others, and whether there was an answer.
fn look(drive: &mut CallDriver<SimPort>) -> (u32, bool) {
    let mut served = 0;
    loop {
        match drive.look() {
            Look::Moved => return (served, true),
            Look::RanOut => return (served, false),
            Look::Again => drive.port().relax(),
            Look::Later => served += 1,
        }
    }
}

#[test]
fn an_event_loop_serves_others_while_it_spins_and_stops_when_that_does_not_pay() {
    let (mut drive, mut buffer) = (drive(echo(5 * MICRO), SpinPolicy::default()), Vec::new());
    for _ in 0..100 {
        drive.submit(b"soon").unwrap();
        assert!(drive.begin_spin());
        let (served, found) = look(&mut drive);
        assert!(found && (2..10).contains(&served), "{served}");
        assert!(drive.try_reply(&mut buffer).unwrap().is_some());
        drive.end_spin(true);
    }
    assert_eq!((drive.parks(), drive.port().parks()), (0, 0));

    let mut drive = self::drive(echo(500 * MICRO), SpinPolicy::default());
    for spin in 0..4 {
        drive.submit(b"late").unwrap();
        assert!(drive.begin_spin(), "{spin}");
        let began = now(&drive);
        assert!(!look(&mut drive).1);
        assert!((50 * MICRO..60 * MICRO).contains(&(now(&drive) - began)), "twice a wake-up");
        while drive.try_reply(&mut buffer).unwrap().is_none() {
            drive.port().relax();
        }
    }
    drive.submit(b"late").unwrap();
    assert!(!drive.begin_spin(), "four spins in vain");
    assert_eq!(drive.look(), Look::RanOut);

    let mut drive = self::drive(echo(MICRO), SpinPolicy::NEVER);
    drive.submit(b"x").unwrap();
    assert!(!drive.begin_spin());
}

#[test]
fn a_spin_claims_the_lines_of_the_next_message_and_a_park_none() {
    for (spin, claims) in [(SpinPolicy::default(), true), (SpinPolicy::NEVER, false)] {
        let mut drive = drive(echo(3 * MICRO), spin);
        for _ in 0..100 {
            call(&mut drive, &[0xff; 1000]);
        }
        let lane = drive.port().end().own().shared();
        let starts = (0..Geometry::DEFAULT.size() as usize).step_by(64).map(|at| {
            let mut word = [0; 8];
            lane.read(at, &mut word);
            word
        });
        assert_eq!(starts.filter(|word| *word == [0; 8]).count() > 8, claims);
    }
}

#[test]
fn who_was_kept_away_for_long_gives_way_to_nobody_for_256_times_as_long() {
    let ms = 1000 * MICRO;
    let policy = SpinPolicy { max: ms, worth: ms };
    for (crowd, away) in [(ms, false), (2 * ms, true)] {
        let mut drive = drive_in(Sim { crowd, ..Sim::default() }, echo(20 * MICRO), policy);
        let mut times = Vec::new();
        while now(&drive) < 500 * ms {
            call(&mut drive, b"x");
            times.push(drive.port().gave_way());
        }
        let first = times[0];
        assert_eq!(times.iter().all(|times| *times == first), away, "{crowd:?}: {times:?}");
        while now(&drive) < 530 * ms {
            call(&mut drive, b"x");
        }
        assert!(drive.port().gave_way() > first, "{crowd:?}: again");
    }
}

#[test]
fn a_policy_that_never_spins_parks_for_every_call() {
    let mut drive = drive(echo(MICRO), SpinPolicy::NEVER);
    drive.port().run_peer();
    for _ in 0..50 {
        call(&mut drive, b"x");
    }
    assert_eq!((drive.port().parks(), drive.parks()), (50, 50));
    assert_eq!((drive.port().rings(), drive.rings()), (50, 50), "the server parked each time");
    assert_eq!(drive.port().end().rung(), 50);
}

/// One publication for a whole batch, and one ring.
#[test]
fn a_batch_rings_once() {
    let mut drive = drive(echo(Duration::ZERO), SpinPolicy::NEVER);
    drive.port().run_peer();
    for _ in 0..20 {
        drive.push(b"x").unwrap();
    }
    drive.commit();
    assert_eq!(drive.port().rings(), 1);
    let mut buffer = Vec::new();
    for _ in 0..20 {
        drive.wait_for_reply(&mut never(), &mut buffer).unwrap();
    }
    assert_eq!(drive.port().rings(), 1);
}

#[test]
fn spinning_stops_when_it_does_not_pay_and_starts_again_when_it_does() {
    let takes = Arc::new(AtomicU64::new(400_000));
    let time = Arc::clone(&takes);
    let mut server: Option<Lanes> = None;
    let mut due: Option<(u64, Instant)> = None;
    // Answers `takes` nanoseconds after it took a request; parks otherwise.
    let peer = move |end: &SimEnd| {
        let lanes = server.get_or_insert_with(|| end.lanes());
        if let Some((id, at)) = due {
            if end.now() < at {
                return Step::Busy(at);
            }
            answer(end, lanes, id);
            due = None;
            end.wake(lanes.commit(end.own(), end.peer()));
        }
        if let Some(record) = lanes.peek(end.peer()).unwrap() {
            lanes.take_before_acting(end.own(), &record);
            let at = end.now().after(Duration::from_nanos(time.load(Ordering::Relaxed)));
            due = Some((record.id, at));
            return Step::Busy(at);
        }
        let (_, wake) = lanes.arm(end.own(), end.peer(), false).unwrap();
        end.wake(wake);
        Step::Parked(None)
    };
    let mut drive = drive(peer, SpinPolicy::default());
    let parks_of = |drive: &mut CallDriver<SimPort>, calls: u32| {
        let (parks, began) = (drive.parks(), now(drive));
        for _ in 0..calls {
            call(drive, b"");
        }
        (drive.parks() - parks, now(drive) - began)
    };
    let (parks, _) = parks_of(&mut drive, 200);
    assert_eq!(parks, 200, "an answer after 400 µs is not spun for");
    let (_, time) = parks_of(&mut drive, 50);
    assert!(time < 50 * 440 * MICRO, "and soon nobody tries: {time:?}");
    takes.store(600, Ordering::Relaxed);
    parks_of(&mut drive, 5000);
    let (parks, _) = parks_of(&mut drive, 100);
    assert_eq!(parks, 0, "an answer after 0.6 µs is");
    takes.store(30_000, Ordering::Relaxed);
    let (parks, _) = parks_of(&mut drive, 100);
    assert!(
        (70..100).contains(&parks),
        "an answer after 30 µs is seen by spinning, and too dear: {parks}"
    );
    takes.store(600, Ordering::Relaxed);
    parks_of(&mut drive, 5000);
    let (parks, _) = parks_of(&mut drive, 100);
    assert_eq!(parks, 0, "an answer after 0.6 µs is");
}

/// A false stamp, from the future or from before the wait, does not change the average.
#[test]
fn a_stamp_that_cannot_be_true_is_not_believed() {
    for stamp in [0, 1, u64::MAX] {
        let mut server = echo(MICRO);
        let peer = move |end: &SimEnd| {
            let step = server.step(end);
            bellwire_core::OwnMemory::store(
                end.own(),
                bellwire_core::Word::RungAt,
                stamp,
                Ordering::Relaxed,
            );
            step
        };
        let mut drive = drive(peer, SpinPolicy::default());
        for _ in 0..100 {
            call(&mut drive, b"x");
        }
    }
}

#[test]
fn an_event_loop_is_rung_for_the_answer_that_it_armed_for() {
    let sim = Sim { doorbell: Doorbell::Eventfd, ..Sim::default() };
    let mut drive = drive_in(sim, echo(5 * MICRO), SpinPolicy::NEVER);
    drive.submit(b"x").unwrap();
    assert_eq!(drive.arm(false), Ok(false), "nothing is there yet");
    assert_eq!(drive.port().end().rung(), 0);
    drive.port().run_for(4 * MICRO);
    assert_eq!(drive.port().end().rung(), 0);
    drive.port().run_for(2 * MICRO);
    assert_eq!(drive.port().end().rung(), 1);
    assert_eq!(drive.arm(false), Ok(true), "do not sleep");
    assert!(drive.try_reply(&mut Vec::new()).unwrap().is_some());
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
        let mut drive = drive(peer, SpinPolicy::default());
        drive.submit(b"anybody?").unwrap();
        let ended = wait(&mut drive, Deadline::within(100 * MICRO));
        assert_eq!(ended, CallFailed::Deadline(Executed::Maybe));
    }
}

/// As many records as one poll takes, none of which is an answer, and then nothing: the waiting end sleeps, after one
/// more poll.
#[test]
fn a_look_that_took_all_it_takes_is_followed_by_one_more_and_by_sleep() {
    let mut published = false;
    let peer = by_hand(move |end, lanes| {
        if !std::mem::replace(&mut published, true) {
            for _ in 0..256 {
                let trimmed = Header::new(Kind::Trim, Status::Ok, 0, 0);
                lanes.push(end.own(), end.peer(), trimmed, &[]).unwrap();
            }
            end.wake(lanes.commit(end.own(), end.peer()));
        }
        Step::Parked(None)
    });
    let mut drive = drive(peer, SpinPolicy::NEVER);
    drive.submit(b"anybody?").unwrap();
    drive.port().run_peer();
    let ended = wait(&mut drive, Deadline::within(100 * MICRO));
    assert_eq!(ended, CallFailed::Deadline(Executed::Maybe));
    assert_eq!(drive.parks(), 1);
}

/// An answer after 30 µs is late for a short message, and not for a long one.
#[test]
fn long_messages_are_spun_for_longer() {
    let parks = |len: usize| {
        let mut drive = drive_in(growing(), echo(30 * MICRO), SpinPolicy::default());
        let long = vec![7; len];
        for _ in 0..100 {
            call(&mut drive, &long);
        }
        drive.parks()
    };
    assert!(parks(0) > 50);
    assert_eq!(parks(64 << 10), 0);
}
