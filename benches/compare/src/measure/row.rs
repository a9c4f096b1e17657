//! How the clock is held against operations.

use std::hint::spin_loop;

use bellwire_floor::process::Peer;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};

use super::Operations;
use crate::Outcome;
use crate::clock::{self, Usage};
use crate::hist;
use crate::order::{Done, Schedule, WORD};

/// Minimum time between clock reads, as far as the operations' own length allows, ns.
const STRETCH: u64 = 1_000_000;
/// From this time on an operation that is due later is slept for, below it is spun for, ns.
const WORTH_SLEEPING: u64 = 70_000;

/// Operations one after the other, until about then: at least one step.
pub(super) fn row<C, O: Operations<C>>(
    client: &mut C,
    operations: &mut O,
    until: u64,
) -> Outcome<Done> {
    if O::IS_PREPARED {
        return each(client, operations, until, Schedule::Max);
    }
    let before = Usage::of_this_process()?;
    let began = clock::now();
    let (mut done, mut steps, mut last) = (0, 1, began);
    loop {
        done += operations.steps(client, steps)?;
        let now = clock::now();
        if now >= until {
            operations.finish(client)?;
            return Ok(Done {
                operations: done,
                ns: now - began,
                span: (began, now),
                usage: Usage::of_this_process()?.since(before),
                ..Done::default()
            });
        }
        // Stretches grow towards the length at which a clock read is negligible, and not beyond what is left.
        let each = ((now - last) / steps).max(1);
        let left = (until - now).min(STRETCH);
        steps = (left / each).clamp(1, steps * 4);
        last = now;
    }
}

/// Operations until about then, each timed: at least one.
pub(super) fn each<C>(
    client: &mut C,
    operations: &mut impl Operations<C>,
    until: u64,
    schedule: Schedule,
) -> Outcome<Done> {
    let mut took = hist::new();
    let mut done = Done::default();
    // What is before and after it, histograms for instance, is not the contender's.
    let before = Usage::of_this_process()?;
    let began = clock::now();
    let mut due = began;
    done.span.0 = began;
    loop {
        operations.prepare(client)?;
        let start = begin(schedule, &mut due, &mut done.schedule_spin_ns)?;
        let count = operations.steps(client, 1)?;
        let now = clock::now();
        took.saturating_record((now - start) / count.max(1));
        done.operations += count;
        done.ns += now - start;
        if now >= until {
            done.span.1 = now;
            operations.finish(client)?;
            done.usage = Usage::of_this_process()?.since(before);
            done.took = hist::counts(&took);
            return Ok(done);
        }
    }
}

/// One operation, begun by all clients at the same word.
///
/// Clients share a processor: the work of one before and after its operation would count as time of the others. So
/// each prepares, waits for the start word, and does not report its operation until all have ended theirs.
pub(super) fn together<C>(
    peer: &Peer,
    client: &mut C,
    operations: &mut impl Operations<C>,
) -> Outcome<Done> {
    operations.prepare(client)?;
    wait_for_word(peer)?;
    let done = one(client, operations);
    wait_for_word(peer)?;
    let done = done?;
    operations.finish(client)?;
    Ok(done)
}

#[inline]
fn one<C>(client: &mut C, operations: &mut impl Operations<C>) -> Outcome<Done> {
    let before = Usage::of_this_process()?;
    let began = clock::now();
    let count = operations.steps(client, 1)?;
    let ended = clock::now();
    let usage = Usage::of_this_process()?.since(before);
    let ns = ended - began;
    let took = vec![(ns, 1)];
    Ok(Done { operations: count, ns, span: (began, ended), took, usage, ..Done::default() })
}

/// Reports that this client has reached this point, and waits for all others.
fn wait_for_word(peer: &Peer) -> Outcome<()> {
    peer.send(WORD)?;
    peer.receive()?.ok_or("told to end in the middle of an operation")?;
    Ok(())
}

/// Waits until the next operation is to begin, and returns the time from which it is timed: when it was due, if the
/// one before was late; else now, since the delay of this thread's wake-up is not measured.
#[inline]
fn begin(schedule: Schedule, due: &mut u64, schedule_spin_ns: &mut u64) -> Outcome<u64> {
    match schedule {
        Schedule::Max => Ok(clock::now()),
        Schedule::Gap(gap) => {
            sleep(gap)?;
            Ok(clock::now())
        }
        Schedule::Rate(_) => {
            let this = *due;
            *due += schedule.gap();
            let now = clock::now();
            if now >= this {
                return Ok(this);
            }
            if this - now > WORTH_SLEEPING {
                sleep(this - now)?;
                return Ok(clock::now());
            }
            let mut at = now;
            while at < this {
                spin_loop();
                at = clock::now();
            }
            *schedule_spin_ns += at - now;
            Ok(at)
        }
    }
}

/// Sleeps for `ns`, or a little longer.
fn sleep(ns: u64) -> Outcome<()> {
    let time = Timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000)?,
        tv_nsec: i64::try_from(ns % 1_000_000_000)?,
    };
    match nanosleep(&time) {
        NanosleepRelativeResult::Err(error) => Err(error.into()),
        _ => Ok(()),
    }
}
