//! No probes: the functions check and report nothing.

use crate::table::probes;
use crate::{Delivery, Sample, SamplingMask, Session, SlowMask};

/// Whether there are probes in this build.
pub const AVAILABLE: bool = false;

macro_rules! define {
    ($(
        $(#[$doc:meta])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),*) by $semaphore:ident { $($reported:tt)* }
    )*) => {$(
        $(#[$doc])*
        #[inline]
        $vis fn $name(_: &Session $(, _: $type)*) {}
    )*};
}

probes!(define);

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

/// A session is open that may sample.
#[inline]
pub fn capped(_: &Session) {}

/// Returns whether a tracer wants to know of snapshots and events: never.
#[inline]
pub fn wants_deliveries() -> bool {
    false
}

/// Returns whether a tracer wants to know how long this thread slept: never.
#[inline]
pub fn wants_park_end() -> bool {
    false
}
