//! No probes: the functions check and report nothing.

use crate::{Delivery, Sample, SamplingMask, Session, SlowMask};

/// Whether there are probes in this build.
pub const AVAILABLE: bool = false;

/// Returns what tracers want sampled: nothing.
#[inline]
pub fn sampling_mask() -> SamplingMask {
    SamplingMask::NOTHING
}

/// Returns from which durations on tracers want to know of calls: none.
#[inline]
pub fn slow_mask() -> SlowMask {
    SlowMask::default()
}

/// A call waited.
#[inline]
pub fn slow(_: &Session, _: u64, _: u64, _: u64, _: u64) {}

/// Returns whether a tracer wants to know of snapshots and events: never.
#[inline]
pub fn wants_deliveries() -> bool {
    false
}

/// A snapshot or an event was published.
#[inline]
pub fn published(_: &Session, _: u64, _: u64, _: u64, _: u64) {}

/// A reader copied a snapshot or an event.
#[inline]
pub fn copied(_: &Session, _: &Delivery) {}

/// A reader mapped a snapshot.
#[inline]
pub fn mapped(_: &Session, _: &Delivery) {}

/// A reader was too slow for some events.
#[inline]
pub fn missed(_: &Session, _: u64, _: u64) {}

/// A session is open that may sample.
#[inline]
pub fn capped(_: &Session) {}

/// A sampled request was taken.
#[inline]
pub fn message(_: &Session, _: &Sample) {}

/// A worker begins with a sampled request.
#[inline]
pub fn handling(_: &Session, _: u64, _: u64, _: u64) {}

/// The handler of a sampled request returned.
#[inline]
pub fn handled(_: &Session, _: u64, _: u64, _: u64, _: u64) {}

/// The answer to a sampled request was taken.
#[inline]
pub fn reply(_: &Session, _: &Sample) {}

/// The peer's doorbell is rung.
#[inline]
pub fn ring(_: &Session, _: u64) {}

/// This thread goes to sleep.
#[inline]
pub fn park_begin(_: &Session, _: bool) {}

/// Returns whether a tracer wants to know how long this thread slept: never.
#[inline]
pub fn wants_park_end() -> bool {
    false
}

/// This thread slept.
#[inline]
pub fn park_end(_: &Session, _: u64, _: u64) {}

/// A record did not fit into a full lane.
#[inline]
pub fn lane_full(_: &Session, _: u64) {}

/// A lane continues in another epoch.
#[inline]
pub fn lane_resized(_: &Session, _: u64, _: u32, _: u64) {}

/// A session is open.
#[inline]
pub fn session_opened(_: &Session) {}

/// This end leaves a session.
#[inline]
pub fn session_closed(_: &Session, _: u64) {}

/// A call failed.
#[inline]
pub fn call_failed(_: &Session, _: u64, _: u64) {}
