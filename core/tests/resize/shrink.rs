//! Lanes that shrink when they are idle, seldom full, or trimmed.

use std::time::Duration;

use bellwire_core::Deadline;
use bellwire_core::drive::CallDriver;
use bellwire_core::lane::Epoch;
use bellwire_sim::{Act, SimPort};

use super::{MILLI, call, driver_in, echo, reply_of};
use crate::pair::{Pair, growing, payload, size};

#[test]
fn a_lane_that_is_idle_for_long_enough_shrinks_at_the_next_send() {
    let mut driver = driver_in(growing(), echo().shrinking_after(10 * MILLI));
    driver.end_mut().set_shrink_after(10 * MILLI);
    call(&mut driver, 1, 100_000);
    call(&mut driver, 2, 10);
    for _ in 0..9 {
        driver.port().run_for(MILLI);
        call(&mut driver, 3, 10);
        assert!(driver.lane_stats().iter().all(|lane| lane.size == 262_144), "not yet");
    }
    driver.port().run_for(2 * MILLI);
    // The server shrinks when it wakes up for this; the caller, when it does.
    call(&mut driver, 4, 10);
    call(&mut driver, 5, 10);
    for lane in driver.lane_stats() {
        assert_eq!((lane.size, lane.epoch, lane.grows, lane.shrinks), (4096, 3, 1, 1));
    }
    call(&mut driver, 6, 100_000);
    assert!(driver.lane_stats().iter().all(|lane| lane.grows == 2));
}

#[test]
fn a_lane_that_is_used_does_not_shrink() {
    let mut driver = driver_in(growing(), echo().shrinking_after(10 * MILLI));
    driver.end_mut().set_shrink_after(10 * MILLI);
    for round in 0..50 {
        // The shortest message that needs a lane of 256 KiB.
        call(&mut driver, round, 65_536 - 47);
        for _ in 0..3 {
            driver.port().run_for(3 * MILLI);
            call(&mut driver, round, 10);
        }
    }
    for lane in driver.lane_stats() {
        assert_eq!((lane.size, lane.epoch, lane.shrinks), (262_144, 2, 0));
    }
}

/// Sends 32 MiB in messages of 1000 bytes, one each `every` but `together` at a time, through a lane that has been
/// made for one of `first` bytes. Both ends do the same. Returns the sizes of the lanes.
fn sizes_after_bursts(first: usize, together: u32, every: Duration) -> [Vec<u64>; 2] {
    let mut driver = driver_in(growing(), echo().shrinking_after(150 * MILLI));
    driver.end_mut().set_shrink_after(150 * MILLI);
    call(&mut driver, 1, first);
    let mut buffer = Vec::new();
    let mut sizes = [Vec::new(), Vec::new()];
    for _ in 0..(32 << 10) / together {
        for _ in 0..together {
            driver.submit(&payload(0, 1000)).unwrap();
        }
        driver.port().run_for(every * together);
        for _ in 0..together {
            driver.try_reply(&mut buffer).unwrap().unwrap();
        }
        for (sizes, lane) in sizes.iter_mut().zip(driver.lane_stats()) {
            if sizes.last() != Some(&lane.size) {
                sizes.push(lane.size);
            }
        }
    }
    sizes
}

#[test]
fn a_lane_with_large_bursts_becomes_large_and_stays_large() {
    const MICRO: Duration = Duration::from_micros(1);
    for sizes in sizes_after_bursts(20_000, 40, 10 * MICRO) {
        assert_eq!(sizes, [64 << 10, 1 << 20], "8 MiB in 80 ms");
    }
    for sizes in sizes_after_bursts(20_000, 60, 10 * MICRO) {
        assert_eq!(
            sizes,
            [64 << 10, 1 << 20],
            "at three quarters, when the next size is offered, too"
        );
    }
    for sizes in sizes_after_bursts(20_000, 40, 20 * MICRO) {
        assert_eq!(sizes, [64 << 10], "8 MiB in 160 ms");
    }
    for sizes in sizes_after_bursts(20_000, 1, 10 * MICRO) {
        assert_eq!(sizes, [64 << 10, 4096], "it is not deep, nor used");
    }
}

/// No end waits here: the check at each quarter of the lane does it.
#[test]
fn a_sender_that_never_waits_shrinks_within_a_quarter_of_the_lane() {
    let mut driver = driver_in(growing(), echo());
    driver.end_mut().set_shrink_after(10 * MILLI);
    let mut buffer = Vec::new();
    let mut sent = 0;
    let mut poll = |driver: &mut CallDriver<SimPort>, len: usize| {
        driver.submit(&payload(0, len)).unwrap();
        driver.port().run_for(MILLI);
        driver.try_reply(&mut buffer).unwrap().unwrap();
        sent += len as u64;
    };
    poll(&mut driver, 100_000);
    for _ in 0..2 * 262_144 / 4 / 1000 {
        poll(&mut driver, 1000);
    }
    assert_eq!(driver.lane_stats()[0].size, 4096);
}

#[test]
fn a_trim_shrinks_both_lanes_and_reports_its_completion() {
    let mut driver = driver_in(growing(), echo());
    call(&mut driver, 1, 50_000);
    assert!(driver.is_trimmed(), "nobody asked");
    let in_flight = driver.submit(&payload(2, 20_000)).unwrap();
    driver.trim().unwrap();
    assert_eq!((driver.lane_stats()[0].size, driver.lane_stats()[0].shrinks), (4096, 1));
    assert!(!driver.is_trimmed());
    let mut buffer = Vec::new();
    let (reply, bytes) = reply_of(&mut driver);
    assert_eq!((reply.ticket, &bytes[..]), (in_flight, &payload(2, 20_000)[..]));
    assert_eq!(driver.try_reply(&mut buffer).unwrap(), None);
    while !driver.is_trimmed() {
        driver.wait_for_data(&mut { Deadline::NEVER }).unwrap();
        assert_eq!(driver.try_reply(&mut buffer).unwrap(), None);
    }
    assert_eq!((driver.lane_stats()[1].size, driver.lane_stats()[1].shrinks), (4096, 1));
    let offers = driver.port().end().acts(Act::Offer);
    driver.trim().unwrap();
    assert!(!driver.is_trimmed(), "each is answered");
    assert_eq!(driver.port().end().acts(Act::Offer), offers, "there is nothing to give back");
    driver.port().run_for(MILLI);
    assert_eq!(driver.try_reply(&mut buffer).unwrap(), None);
    assert!(driver.is_trimmed());
    call(&mut driver, 3, 50_000);
}

/// An epoch that was offered early holds memory too.
#[test]
fn a_trim_replaces_an_offered_and_unused_epoch() {
    let mut pair = Pair::new(growing());
    while pair.push(0, 1, 100).is_ok() {}
    assert!(!pair.maintenance(0), "an offer is nothing to publish");
    assert_eq!(pair.lanes[0].offered(), Some(Epoch { number: 2, size: size(8192) }));
    pair.shrink(0).unwrap();
    assert_eq!(pair.epoch(0), Epoch { number: 3, size: size(4096) });
    assert_eq!(pair.lanes[0].offered(), None);
    pair.push(0, 2, 5).unwrap();
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1).last(), Some(&2));
}
