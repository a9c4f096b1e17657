//! The clocks.

use std::time::Duration;

use bellwire_core::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the time on `CLOCK_MONOTONIC`, which all processes of the machine share
/// ([`clock_gettime(2)`](https://man7.org/linux/man-pages/man2/clock_gettime.2.html); no system call where the vDSO provides
/// it).
pub fn now() -> Instant {
    let at = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(at.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Returns the time left until `deadline`; `None` if there is no deadline.
pub(crate) fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|at| at.since(now()))
}

/// Converts a point of the monotonic clock to the kernel's type.
pub(crate) fn absolute(at: Instant) -> Timespec {
    span(Duration::from_nanos(at.as_nanos()))
}

/// Converts a time span to the kernel's type.
pub(crate) fn span(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}
