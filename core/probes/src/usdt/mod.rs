//! The probes themselves.
#![allow(
    unsafe_code,
    reason = "a probe is a nop that only an assembler can describe, and a word that the kernel writes"
)]

mod note;
mod semaphore;

use note::{number, probe, sigil};
use semaphore::Semaphore;

use crate::{Delivery, SLOW, Sample, SamplingMask, Session, SlowMask};

/// Whether there are probes in this build.
pub const AVAILABLE: bool = true;

/// Returns what the attached tracers want sampled.
#[inline]
pub fn sampling_mask() -> SamplingMask {
    SamplingMask(semaphore::four(false))
}

/// Returns from which durations on the attached tracers want to know of calls.
#[inline]
pub fn slow_mask() -> SlowMask {
    SlowMask(semaphore::four(true))
}

/// A call waited from `began` to `ended`: fires the probes of the durations that it exceeds.
pub fn slow(session: &Session, sequence: u64, began: u64, ended: u64, length: u64) {
    let waited = ended.saturating_sub(began);
    let [ten, hundred, thousand, most] = SLOW.map(|slow| waited >= slow);
    if ten && Semaphore::Slow10us.is_held() {
        fire_slow_10us(session, sequence, began, ended, length);
    }
    if hundred && Semaphore::Slow100us.is_held() {
        fire_slow_100us(session, sequence, began, ended, length);
    }
    if thousand && Semaphore::Slow1ms.is_held() {
        fire_slow_1ms(session, sequence, began, ended, length);
    }
    if most && Semaphore::Slow10ms.is_held() {
        fire_slow_10ms(session, sequence, began, ended, length);
    }
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

/// A worker begins with a sampled request, which was queued at `queued` and picked up at `picked`.
#[inline]
pub fn handling(session: &Session, sequence: u64, queued: u64, picked: u64) {
    if Semaphore::Sampling.is_held() {
        fire_handling(session, sequence, queued, picked);
    }
}

/// The handler of a sampled request returned: this thread began at `begun`, had decoded the request at `decoded`, and the
/// answer is encoded now, at `ended`.
#[inline]
pub fn handled(session: &Session, sequence: u64, begun: u64, decoded: u64, ended: u64) {
    if Semaphore::Sampling.is_held() {
        fire_handled(session, sequence, begun, decoded, ended);
    }
}

/// The answer to a sampled request was taken.
#[inline]
pub fn reply(session: &Session, sample: &Sample) {
    if Semaphore::Sampling.is_held() {
        fire_reply(session, sample);
    }
}

/// Returns whether a tracer wants to know of snapshots and events.
#[inline]
pub fn wants_deliveries() -> bool {
    Semaphore::Deliveries.is_held()
}

/// A snapshot or an event of `length` bytes was published: its publisher began at `begun`, and readers could take it from
/// `published` on. The session is that of the publication.
#[inline]
pub fn published(session: &Session, sequence: u64, begun: u64, published: u64, length: u64) {
    if Semaphore::Deliveries.is_held() {
        fire_published(session, sequence, begun, published, length);
    }
}

/// A reader copied a snapshot or an event out of a ring.
#[inline]
pub fn copied(session: &Session, delivery: &Delivery) {
    if Semaphore::Deliveries.is_held() {
        fire_copied(session, delivery);
    }
}

/// A reader mapped a snapshot.
#[inline]
pub fn mapped(session: &Session, delivery: &Delivery) {
    if Semaphore::Deliveries.is_held() {
        fire_mapped(session, delivery);
    }
}

/// A reader was too slow for `events` events before the one with this number.
#[inline]
pub fn missed(session: &Session, sequence: u64, events: u64) {
    if Semaphore::Missed.is_held() {
        fire_missed(session, sequence, events);
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
    probe!(fire_message, "message", Sampling, session,
        sequence: sample.sequence, sent: sample.sent, published: sample.published,
        received: sample.received, length: sample.length);
}

#[cold]
#[inline(never)]
fn fire_reply(session: &Session, sample: &Sample) {
    probe!(fire_reply, "reply", Sampling, session,
        sequence: sample.sequence, sent: sample.sent, published: sample.published,
        received: sample.received, length: sample.length);
}

#[cold]
#[inline(never)]
fn fire_handling(session: &Session, sequence: u64, queued: u64, picked: u64) {
    probe!(fire_handling, "handling", Sampling, session,
        sequence: sequence, queued: queued, picked: picked);
}

#[cold]
#[inline(never)]
fn fire_handled(session: &Session, sequence: u64, begun: u64, decoded: u64, ended: u64) {
    probe!(fire_handled, "handled", Sampling, session,
        sequence: sequence, begun: begun, decoded: decoded, ended: ended);
}

#[cold]
#[inline(never)]
fn fire_published(session: &Session, sequence: u64, begun: u64, published: u64, length: u64) {
    probe!(fire_published, "published", Deliveries, session,
        sequence: sequence, begun: begun, published: published, length: length);
}

#[cold]
#[inline(never)]
fn fire_copied(session: &Session, delivery: &Delivery) {
    probe!(fire_copied, "copied", Deliveries, session,
        publisher: delivery.publisher, sequence: delivery.sequence, noticed: delivery.noticed,
        taken: delivery.taken, validated: delivery.validated);
}

#[cold]
#[inline(never)]
fn fire_mapped(session: &Session, delivery: &Delivery) {
    probe!(fire_mapped, "mapped", Deliveries, session,
        publisher: delivery.publisher, sequence: delivery.sequence, noticed: delivery.noticed,
        taken: delivery.taken, validated: delivery.validated);
}

#[cold]
#[inline(never)]
fn fire_missed(session: &Session, sequence: u64, events: u64) {
    probe!(fire_missed, "missed", Missed, session, sequence: sequence, events: events);
}

#[cold]
#[inline(never)]
fn fire_ring(session: &Session, bell: u64) {
    probe!(fire_ring, "ring", Ring, session, bell: bell);
}

#[cold]
#[inline(never)]
fn fire_park_begin(session: &Session, space: bool) {
    probe!(fire_park_begin, "park_begin", ParkBegin, session, space: u64::from(space));
}

#[cold]
#[inline(never)]
fn fire_park_end(session: &Session, woken: u64, slept: u64) {
    probe!(fire_park_end, "park_end", ParkEnd, session, woken: woken, slept: slept);
}

#[cold]
#[inline(never)]
fn fire_lane_full(session: &Session, missing: u64) {
    probe!(fire_lane_full, "lane_full", LaneFull, session, missing: missing);
}

#[cold]
#[inline(never)]
fn fire_lane_resized(session: &Session, whose: u64, epoch: u64, size: u64) {
    probe!(fire_lane_resized, "lane_resized", LaneResized, session,
        whose: whose, epoch: epoch, size: size);
}

#[cold]
#[inline(never)]
fn fire_session_opened(session: &Session) {
    probe!(fire_session_opened, "session_opened", SessionOpened, session);
}

#[cold]
#[inline(never)]
fn fire_session_closed(session: &Session, reason: u64) {
    probe!(fire_session_closed, "session_closed", SessionClosed, session, reason: reason);
}

#[cold]
#[inline(never)]
fn fire_call_failed(session: &Session, sequence: u64, kind: u64) {
    probe!(fire_call_failed, "call_failed", CallFailed, session, sequence: sequence, kind: kind);
}

#[cold]
#[inline(never)]
fn fire_rate_50000(session: &Session) {
    probe!(fire_rate_50000, "rate_50000", Rate50000, session);
}

#[cold]
#[inline(never)]
fn fire_rate_5000(session: &Session) {
    probe!(fire_rate_5000, "rate_5000", Rate5000, session);
}

#[cold]
#[inline(never)]
fn fire_rate_all(session: &Session) {
    probe!(fire_rate_all, "rate_all", RateAll, session);
}

#[cold]
#[inline(never)]
fn fire_slow_10us(session: &Session, sequence: u64, began: u64, ended: u64, length: u64) {
    probe!(fire_slow_10us, "slow_10us", Slow10us, session,
        sequence: sequence, began: began, ended: ended, length: length);
}

#[cold]
#[inline(never)]
fn fire_slow_100us(session: &Session, sequence: u64, began: u64, ended: u64, length: u64) {
    probe!(fire_slow_100us, "slow_100us", Slow100us, session,
        sequence: sequence, began: began, ended: ended, length: length);
}

#[cold]
#[inline(never)]
fn fire_slow_1ms(session: &Session, sequence: u64, began: u64, ended: u64, length: u64) {
    probe!(fire_slow_1ms, "slow_1ms", Slow1ms, session,
        sequence: sequence, began: began, ended: ended, length: length);
}

#[cold]
#[inline(never)]
fn fire_slow_10ms(session: &Session, sequence: u64, began: u64, ended: u64, length: u64) {
    probe!(fire_slow_10ms, "slow_10ms", Slow10ms, session,
        sequence: sequence, began: began, ended: ended, length: length);
}
