//! One-way requests, and the flush that waits until they were taken.

use std::time::Duration;

use bellwire_core::call::{Outgoing, SubmitError};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::PushError;
use bellwire_core::wire::Doorbell;
use bellwire_core::{Deadline, Executed, SpinPolicy};
use bellwire_sim::{Sim, SimPort};

use super::{MICRO, drive, drive_in, echo, idle, never};

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
    while !drive.wait_consumed(&mut until)? {}
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
                for (round, len) in
                    [0, 1, 500, 3_000, drive.end().lanes().max_payload()].into_iter().enumerate()
                {
                    for _ in 0..=round * 7 {
                        post(&mut drive, &vec![7; len]);
                    }
                    let asked = drive.submit(b"between").unwrap();
                    post(&mut drive, b"last");
                    flush(&mut drive, never()).unwrap();
                    assert_eq!(drive.unconsumed_posts(), 0);
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
fn a_flush_past_its_deadline_fails_and_leaves_the_unconsumed_posts_counted() {
    for spin in [SpinPolicy::NEVER, SpinPolicy::default()] {
        let mut drive = drive(idle(), spin);
        post(&mut drive, b"one");
        post(&mut drive, b"two");
        let failed = flush(&mut drive, Deadline::within(50 * MICRO)).unwrap_err();
        assert_eq!(failed, CallFailed::Deadline(Executed::Maybe));
        assert_eq!(drive.unconsumed_posts(), 2);
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
