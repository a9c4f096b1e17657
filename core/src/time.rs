use core::time::Duration;

/// A point of a monotonic clock, in nanoseconds from that clock's own zero.
///
/// Core never reads a clock: the caller passes the time in. On Linux, it is `CLOCK_MONOTONIC`
/// ([`clock_gettime(2)`](https://man7.org/linux/man-pages/man2/clock_gettime.2.html)), which both ends of a session
/// share; in the simulator, it is virtual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Returns the point `nanos` after the clock's zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns this point plus `span`; the last representable point on overflow.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// Returns the time since `earlier`; zero when that is in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the end of a slice of a wait until `until`, or `until` if that is earlier, and whether it is the slice's.
pub fn sliced(until: Option<Instant>, slice: Instant) -> (Instant, bool) {
    match until {
        Some(until) if until <= slice => (until, false),
        _ => (slice, true),
    }
}

/// When a wait gives up. Resolved when the caller first reads the clock: an answer that arrives during the spin needs
/// no clock. So a span starts up to about a microsecond late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    within: Option<Duration>,
    at: Option<Instant>,
}

impl Deadline {
    /// Never.
    pub const NEVER: Self = Self { within: None, at: None };

    /// Returns a deadline `span` after the clock is first read.
    pub const fn within(span: Duration) -> Self {
        Self { within: Some(span), at: None }
    }

    /// Returns a deadline at `instant`.
    pub const fn at(instant: Instant) -> Self {
        Self { within: None, at: Some(instant) }
    }

    /// Resolves the deadline, now that it is `now`; `None` for never.
    pub fn resolve(&mut self, now: Instant) -> Option<Instant> {
        if let (None, Some(span)) = (self.at, self.within) {
            self.at = Some(now.after(span));
        }
        self.at
    }
}

/// Returns a span in nanoseconds; a longer one than 584 years counts as that.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
