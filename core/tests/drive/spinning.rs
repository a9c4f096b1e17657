//! When an end spins, and when it stops.

use std::sync::Arc;
use std::time::Duration;

use bellwire_core::drive::{CallDriver, CallFailed, SpinPoll};
use bellwire_core::lane::Lanes;
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Deadline, Executed, Geometry, Instant, PeerMemory, Port, SpinPolicy};
use bellwire_sim::{Peer, Sim, SimEnd, SimPort, Step};

use super::{MICRO, answer, by_hand, call, driver, driver_in, echo, now, wait};
use crate::pair::growing;

#[test]
fn a_spin_that_sees_the_answer_neither_parks_nor_rings() {
    // The server spins too: it looks every 100 ns and never parks.
    let mut server = echo(Duration::ZERO);
    let peer = move |end: &SimEnd| match server.step(end) {
        Step::Parked(_) => {
            Lanes::open(end.own());
            Step::Busy(end.now().after(Duration::from_nanos(100)))
        }
        step => step,
    };
    let mut driver = driver(peer, SpinPolicy::default());
    for _ in 0..1000 {
        call(&mut driver, b"hot");
    }
    assert_eq!(
        (driver.port().parks(), driver.port().rings(), driver.port().end().rung()),
        (0, 0, 0)
    );
    assert_eq!((driver.parks(), driver.end().rings()), (0, 0));
}

#[test]
fn a_spin_yields_each_time_that_it_reads_the_clock_unless_a_yield_was_futile() {
    // A poll takes 20 ns, and the clock is read after 64.
    let (others, nobody) = (2 * MICRO, MICRO / 2);
    for (takes, yield_time, times) in [
        (MICRO, others, 0),
        (2 * MICRO, others, 1),
        // After the first, others are known to be there.
        (20 * MICRO, others, 10),
        (20 * MICRO, nobody, 2),
    ] {
        let mut driver =
            driver_in(Sim { yield_time, ..Sim::default() }, echo(takes), SpinPolicy::default());
        call(&mut driver, b"soon");
        assert_eq!(
            (driver.port().yields(), driver.parks()),
            (times, 0),
            "{takes:?} {yield_time:?}"
        );
    }
}

/// Looks as an event loop does. How often it served others, and whether there was an answer.
fn poll(driver: &mut CallDriver<SimPort>) -> (u32, bool) {
    let mut served = 0;
    loop {
        match driver.poll_once() {
            SpinPoll::Moved => return (served, true),
            SpinPoll::RanOut => return (served, false),
            SpinPoll::Again => driver.port().relax(),
            SpinPoll::Later => served += 1,
        }
    }
}

#[test]
fn an_event_loop_serves_others_while_it_spins_and_stops_when_that_does_not_pay() {
    let (mut driver, mut buffer) = (driver(echo(5 * MICRO), SpinPolicy::default()), Vec::new());
    for _ in 0..100 {
        driver.submit(b"soon").unwrap();
        assert!(driver.begin_spin());
        let (served, found) = poll(&mut driver);
        assert!(found && (2..10).contains(&served), "{served}");
        assert!(driver.try_reply(&mut buffer).unwrap().is_some());
        driver.end_spin(true);
    }
    assert_eq!((driver.parks(), driver.port().parks()), (0, 0));

    let mut driver = self::driver(echo(500 * MICRO), SpinPolicy::default());
    for spin in 0..4 {
        driver.submit(b"late").unwrap();
        assert!(driver.begin_spin(), "{spin}");
        let began = now(&driver);
        assert!(!poll(&mut driver).1);
        assert!((50 * MICRO..60 * MICRO).contains(&(now(&driver) - began)), "twice a wake-up");
        while driver.try_reply(&mut buffer).unwrap().is_none() {
            driver.port().relax();
        }
    }
    driver.submit(b"late").unwrap();
    assert!(!driver.begin_spin(), "four spins in vain");
    assert_eq!(driver.poll_once(), SpinPoll::RanOut);

    let mut driver = self::driver(echo(MICRO), SpinPolicy::NEVER);
    driver.submit(b"x").unwrap();
    assert!(!driver.begin_spin());
}

#[test]
fn a_spin_prefetches_the_lines_of_the_next_record_and_a_park_does_not() {
    for (spin, prefetches) in [(SpinPolicy::default(), true), (SpinPolicy::NEVER, false)] {
        let mut driver = driver(echo(3 * MICRO), spin);
        for _ in 0..100 {
            call(&mut driver, &[0xff; 1000]);
        }
        let lane = driver.port().end().own().shared();
        let starts = (0..Geometry::DEFAULT.size() as usize).step_by(64).map(|at| {
            let mut word = [0; 8];
            lane.read(at, &mut word);
            word
        });
        assert_eq!(starts.filter(|word| *word == [0; 8]).count() > 8, prefetches);
    }
}

#[test]
fn a_long_preemption_stops_yields_for_256_times_as_long() {
    let ms = 1000 * MICRO;
    let policy = SpinPolicy { max: ms, pays_within: ms };
    for (yield_time, away) in [(ms, false), (2 * ms, true)] {
        let mut driver = driver_in(Sim { yield_time, ..Sim::default() }, echo(20 * MICRO), policy);
        let mut times = Vec::new();
        while now(&driver) < 500 * ms {
            call(&mut driver, b"x");
            times.push(driver.port().yields());
        }
        let first = times[0];
        assert_eq!(times.iter().all(|times| *times == first), away, "{yield_time:?}: {times:?}");
        while now(&driver) < 530 * ms {
            call(&mut driver, b"x");
        }
        assert!(driver.port().yields() > first, "{yield_time:?}: again");
    }
}

#[test]
fn a_policy_that_never_spins_parks_for_every_call() {
    let mut driver = driver(echo(MICRO), SpinPolicy::NEVER);
    driver.port().run_peer();
    for _ in 0..50 {
        call(&mut driver, b"x");
    }
    assert_eq!((driver.port().parks(), driver.parks()), (50, 50));
    assert_eq!(
        (driver.port().rings(), driver.end().rings()),
        (50, 50),
        "the server parked each time"
    );
    assert_eq!(driver.port().end().rung(), 50);
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
    let mut driver = driver(peer, SpinPolicy::default());
    let parks_of = |driver: &mut CallDriver<SimPort>, calls: u32| {
        let (parks, began) = (driver.parks(), now(driver));
        for _ in 0..calls {
            call(driver, b"");
        }
        (driver.parks() - parks, now(driver) - began)
    };
    let (parks, _) = parks_of(&mut driver, 200);
    assert_eq!(parks, 200, "an answer after 400 µs is not spun for");
    let (_, time) = parks_of(&mut driver, 50);
    assert!(time < 50 * 440 * MICRO, "and soon nobody tries: {time:?}");
    takes.store(600, Ordering::Relaxed);
    parks_of(&mut driver, 5000);
    let (parks, _) = parks_of(&mut driver, 100);
    assert_eq!(parks, 0, "an answer after 0.6 µs is");
    takes.store(30_000, Ordering::Relaxed);
    let (parks, _) = parks_of(&mut driver, 100);
    assert!(
        (70..100).contains(&parks),
        "an answer after 30 µs is seen by spinning, and too dear: {parks}"
    );
    takes.store(600, Ordering::Relaxed);
    parks_of(&mut driver, 5000);
    let (parks, _) = parks_of(&mut driver, 100);
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
        let mut driver = driver(peer, SpinPolicy::default());
        for _ in 0..100 {
            call(&mut driver, b"x");
        }
    }
}

/// As many records as one poll takes, none of which is an answer, and then nothing: the waiting end sleeps, after one
/// more poll.
#[test]
fn a_full_poll_is_followed_by_one_more_and_by_sleep() {
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
    let mut driver = driver(peer, SpinPolicy::NEVER);
    driver.submit(b"anybody?").unwrap();
    driver.port().run_peer();
    let ended = wait(&mut driver, Deadline::within(100 * MICRO));
    assert_eq!(ended, CallFailed::Deadline(Executed::Maybe));
    assert_eq!(driver.parks(), 1);
}

/// An answer after 30 µs is late for a short message, and not for a long one.
#[test]
fn long_messages_are_spun_for_longer() {
    let parks = |len: usize| {
        let mut driver = driver_in(growing(), echo(30 * MICRO), SpinPolicy::default());
        let long = vec![7; len];
        for _ in 0..100 {
            call(&mut driver, &long);
        }
        driver.parks()
    };
    assert!(parks(0) > 50);
    assert_eq!(parks(64 << 10), 0);
}
