//! One-way requests, and the flush that waits until they were taken.

use std::time::Duration;

use bellwire_core::call::{Outgoing, SubmitError};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::PushError;
use bellwire_core::wire::Doorbell;
use bellwire_core::{Deadline, Executed, SpinPolicy};
use bellwire_sim::{Sim, SimPort};

use super::{MICRO, driver, driver_in, echo, idle, never};

fn post(driver: &mut CallDriver<SimPort>, payload: &[u8]) {
    loop {
        match driver.submit(Outgoing::from(payload).one_way()) {
            Ok(_) => return,
            Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) => {
                driver.wait_for_room(&mut never()).unwrap();
            }
            Err(failed) => panic!("{failed}"),
        }
    }
}

fn flush(driver: &mut CallDriver<SimPort>, mut until: Deadline) -> Result<(), CallFailed> {
    while !driver.wait_consumed(&mut until)? {}
    Ok(())
}

#[test]
fn a_flush_ends_when_everything_posted_was_taken_by_every_doorbell_and_spin() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
            for takes in [Duration::ZERO, MICRO, 30 * MICRO, 500 * MICRO] {
                let sim = Sim { doorbell, ..Sim::default() };
                let mut driver = driver_in(sim, echo(takes), spin);
                flush(&mut driver, never()).unwrap();
                for (round, len) in
                    [0, 1, 500, 3_000, driver.end().lanes().max_payload()].into_iter().enumerate()
                {
                    for _ in 0..=round * 7 {
                        post(&mut driver, &vec![7; len]);
                    }
                    let asked = driver.submit(b"between").unwrap();
                    post(&mut driver, b"last");
                    flush(&mut driver, never()).unwrap();
                    assert_eq!(driver.unconsumed_posts(), 0);
                    let mut buffer = Vec::new();
                    let reply = driver.wait_for_reply(&mut never(), &mut buffer).unwrap();
                    assert_eq!((reply.ticket, &buffer[..reply.len]), (asked, &b"between"[..]));
                }
                assert_eq!(driver.in_flight(), 0);
            }
        }
    }
}

#[test]
fn a_flush_past_its_deadline_fails_and_leaves_the_unconsumed_posts_counted() {
    for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
        let mut driver = driver(idle(), spin);
        post(&mut driver, b"one");
        post(&mut driver, b"two");
        let failed = flush(&mut driver, Deadline::within(50 * MICRO)).unwrap_err();
        assert_eq!(failed, CallFailed::Deadline(Executed::Maybe));
        assert_eq!(driver.unconsumed_posts(), 2);
    }
}

#[test]
fn a_post_finds_room_although_as_many_requests_wait_as_may() {
    let mut driver = driver(echo(MICRO), SpinPolicy::NEVER);
    driver.set_window(1);
    driver.push(b"asked").unwrap();
    let full = Err(CallFailed::Submit(SubmitError::Window));
    assert_eq!(driver.push(b"no place"), full);
    for _ in 0..40 {
        post(&mut driver, &[1; 1000]);
    }
    flush(&mut driver, never()).unwrap();
}
