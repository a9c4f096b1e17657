//! The probes themselves.
#![allow(
    unsafe_code,
    reason = "a probe is a nop that only an assembler can describe, and a word that the kernel writes"
)]

mod note;
mod semaphore;

use note::{number, probe, sigil};
use semaphore::Semaphore;

use crate::table::probes;
use crate::{Delivery, SLOW, Sample, SamplingMask, Session, SlowMask};

/// Whether there are probes in this build.
pub const AVAILABLE: bool = true;

/// A function for each probe. The part with the probe is cold, never inlined and not generic.
macro_rules! define {
    ($(
        $(#[$doc:meta])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),*) by $semaphore:ident
        { $($field:ident: $value:expr),* }
    )*) => {$(
        $(#[$doc])*
        #[inline]
        $vis fn $name(session: &Session $(, $arg: $type)*) {
            #[cold]
            #[inline(never)]
            fn fire(session: &Session $(, $arg: $type)*) {
                probe!(fire, $name, $semaphore, session $(, $field: $value)*);
            }
            if Semaphore::$semaphore.is_held() {
                fire(session $(, $arg)*);
            }
        }
    )*};
}

probes!(define);

// A tracer attaches to those whose duration or cap it wants.
define! {
    fn slow_10us(sequence: u64, began: u64, ended: u64, length: u64) by Slow10us
    { sequence: sequence, began: began, ended: ended, length: length }
    fn slow_100us(sequence: u64, began: u64, ended: u64, length: u64) by Slow100us
    { sequence: sequence, began: began, ended: ended, length: length }
    fn slow_1ms(sequence: u64, began: u64, ended: u64, length: u64) by Slow1ms
    { sequence: sequence, began: began, ended: ended, length: length }
    fn slow_10ms(sequence: u64, began: u64, ended: u64, length: u64) by Slow10ms
    { sequence: sequence, began: began, ended: ended, length: length }
    fn rate_all() by RateAll {}
    fn rate_50000() by Rate50000 {}
    fn rate_5000() by Rate5000 {}
}

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
    let probes = [slow_10us, slow_100us, slow_1ms, slow_10ms];
    for (least, probe) in SLOW.into_iter().zip(probes) {
        if waited >= least {
            probe(session, sequence, began, ended, length);
        }
    }
}

/// A session is open that may sample: the probes that only stand for caps need a caller.
#[inline]
pub fn capped(session: &Session) {
    rate_all(session);
    rate_50000(session);
    rate_5000(session);
}

/// Returns whether a tracer wants to know of snapshots and events.
#[inline]
pub fn wants_deliveries() -> bool {
    Semaphore::Deliveries.is_held()
}

/// Returns whether a tracer wants to know how long this thread slept.
#[inline]
pub fn wants_park_end() -> bool {
    Semaphore::ParkEnd.is_held()
}
