//! The probes themselves.
#![allow(
    unsafe_code,
    reason = "a probe is a nop that only an assembler can describe, and a word that the kernel writes"
)]

mod note;
mod semaphore;

use note::{probe, sigil};
use semaphore::Semaphore;

use crate::{Sample, SamplingMask, Session};

/// Whether there are probes in this build.
pub const AVAILABLE: bool = true;

/// Returns what the attached tracers want sampled.
#[inline]
pub fn sampling_mask() -> SamplingMask {
    SamplingMask(semaphore::first_four())
}

/// A session is open that may sample: the probes that only stand for caps need a caller.
#[inline]
pub fn capped(session: &Session) {
    if Semaphore::RateAll.is_held() {
        fire_rate_all(session);
    }
    if Semaphore::Rate50000.is_held() {
        fire_rate_50000(session);
    }
    if Semaphore::Rate5000.is_held() {
        fire_rate_5000(session);
    }
}

/// A sampled request was taken.
#[inline]
pub fn message(session: &Session, sample: &Sample) {
    if Semaphore::Sampling.is_held() {
        fire_message(session, sample);
    }
}

/// The answer to a sampled request was taken.
#[inline]
pub fn reply(session: &Session, sample: &Sample) {
    if Semaphore::Sampling.is_held() {
        fire_reply(session, sample);
    }
}

/// The peer's doorbell is rung: 1 for data, 2 for room.
#[inline]
pub fn ring(session: &Session, bell: u64) {
    if Semaphore::Ring.is_held() {
        fire_ring(session, bell);
    }
}

/// This thread goes to sleep, until there is data, or room when `space` is set.
#[inline]
pub fn park_begin(session: &Session, space: bool) {
    if Semaphore::ParkBegin.is_held() {
        fire_park_begin(session, space);
    }
}

/// Returns whether a tracer wants to know how long this thread slept.
#[inline]
pub fn wants_park_end() -> bool {
    Semaphore::ParkEnd.is_held()
}

/// This thread slept for `slept` nanoseconds and was `woken` for this reason.
#[inline]
pub fn park_end(session: &Session, woken: u64, slept: u64) {
    if Semaphore::ParkEnd.is_held() {
        fire_park_end(session, woken, slept);
    }
}

/// A record did not fit into a full lane and lacked `missing` bytes of room.
#[inline]
pub fn lane_full(session: &Session, missing: u64) {
    if Semaphore::LaneFull.is_held() {
        fire_lane_full(session, missing);
    }
}

/// A lane continues in another epoch of `size` bytes: the own one (`whose` is 1), or the peer's (2).
#[inline]
pub fn lane_resized(session: &Session, whose: u64, epoch: u32, size: u64) {
    if Semaphore::LaneResized.is_held() {
        fire_lane_resized(session, whose, epoch.into(), size);
    }
}

/// A session is open.
#[inline]
pub fn session_opened(session: &Session) {
    if Semaphore::SessionOpened.is_held() {
        fire_session_opened(session);
    }
}

/// This end leaves a session.
#[inline]
pub fn session_closed(session: &Session, reason: u64) {
    if Semaphore::SessionClosed.is_held() {
        fire_session_closed(session, reason);
    }
}

/// A call failed in this way.
#[inline]
pub fn call_failed(session: &Session, sequence: u64, kind: u64) {
    if Semaphore::CallFailed.is_held() {
        fire_call_failed(session, sequence, kind);
    }
}

#[cold]
#[inline(never)]
fn fire_message(session: &Session, sample: &Sample) {
    probe!("message", Sampling, session,
        sequence: sample.sequence, sent: sample.sent, published: sample.published,
        received: sample.received, length: sample.length);
}

#[cold]
#[inline(never)]
fn fire_reply(session: &Session, sample: &Sample) {
    probe!("reply", Sampling, session,
        sequence: sample.sequence, sent: sample.sent, published: sample.published,
        received: sample.received, length: sample.length);
}

#[cold]
#[inline(never)]
fn fire_ring(session: &Session, bell: u64) {
    probe!("ring", Ring, session, bell: bell);
}

#[cold]
#[inline(never)]
fn fire_park_begin(session: &Session, space: bool) {
    probe!("park_begin", ParkBegin, session, space: u64::from(space));
}

#[cold]
#[inline(never)]
fn fire_park_end(session: &Session, woken: u64, slept: u64) {
    probe!("park_end", ParkEnd, session, woken: woken, slept: slept);
}

#[cold]
#[inline(never)]
fn fire_lane_full(session: &Session, missing: u64) {
    probe!("lane_full", LaneFull, session, missing: missing);
}

#[cold]
#[inline(never)]
fn fire_lane_resized(session: &Session, whose: u64, epoch: u64, size: u64) {
    probe!("lane_resized", LaneResized, session,
        whose: whose, epoch: epoch, size: size);
}

#[cold]
#[inline(never)]
fn fire_session_opened(session: &Session) {
    probe!("session_opened", SessionOpened, session);
}

#[cold]
#[inline(never)]
fn fire_session_closed(session: &Session, reason: u64) {
    probe!("session_closed", SessionClosed, session, reason: reason);
}

#[cold]
#[inline(never)]
fn fire_call_failed(session: &Session, sequence: u64, kind: u64) {
    probe!("call_failed", CallFailed, session, sequence: sequence, kind: kind);
}

#[cold]
#[inline(never)]
fn fire_rate_50000(session: &Session) {
    probe!("rate_50000", Rate50000, session);
}

#[cold]
#[inline(never)]
fn fire_rate_5000(session: &Session) {
    probe!("rate_5000", Rate5000, session);
}

#[cold]
#[inline(never)]
fn fire_rate_all(session: &Session) {
    probe!("rate_all", RateAll, session);
}
