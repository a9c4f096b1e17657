#![allow(unsafe_code, reason = "the performance counter has no safe interface with a shared zero")]
//! The clocks.

use std::sync::OnceLock;
use std::time::Duration;

use bellwire_core::Instant;
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::Threading::INFINITE;

const NANOS: u64 = 1_000_000_000;

/// Returns the time on the performance counter, which all processes of the machine share
/// ([`QueryPerformanceCounter`](https://learn.microsoft.com/en-us/windows/win32/api/profileapi/nf-profileapi-queryperformancecounter)).
/// It usually ticks every 100 ns.
pub fn now() -> Instant {
    let mut ticks = 0;
    // SAFETY: `ticks` is a live local. It cannot fail on Windows XP or newer.
    let _ = unsafe { QueryPerformanceCounter(&mut ticks) };
    Instant::from_nanos(nanos(ticks.cast_unsigned(), frequency()))
}

/// Returns the milliseconds left until `deadline`, rounded up, as Windows wait functions take them.
pub(crate) fn left(deadline: Option<Instant>) -> u32 {
    let Some(at) = deadline else { return INFINITE };
    let millis = at.since(now()).as_nanos().div_ceil(Duration::from_millis(1).as_nanos());
    u32::try_from(millis).unwrap_or(INFINITE).min(INFINITE - 1)
}

/// Returns whether `deadline` has passed.
pub(crate) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| at <= now())
}

fn frequency() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    *FREQUENCY.get_or_init(|| {
        let mut frequency = 0;
        // SAFETY: `frequency` is a live local. It cannot fail on Windows XP or newer.
        let _ = unsafe { QueryPerformanceFrequency(&mut frequency) };
        frequency.cast_unsigned().max(1)
    })
}

/// Converts `ticks` of `frequency` per second to nanoseconds, in two parts: the product of the whole would overflow.
fn nanos(ticks: u64, frequency: u64) -> u64 {
    let (whole, part) = (ticks / frequency, ticks % frequency);
    whole.saturating_mul(NANOS).saturating_add(part.saturating_mul(NANOS) / frequency)
}

#[cfg(test)]
mod tests {
    use super::nanos;

    #[test]
    fn ticks_become_nanoseconds_without_overflow() {
        assert_eq!(nanos(10_000_001, 10_000_000), 1_000_000_100);
        assert_eq!(nanos(u64::from(u32::MAX) * 10_000_000, 10_000_000), 4_294_967_295_000_000_000);
        assert_eq!(nanos(3_579_545, 3_579_545), 1_000_000_000);
        assert_eq!(nanos(u64::MAX, 1), u64::MAX);
    }
}
