use core::fmt;
use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// Which cgroup hierarchies a machine mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// One hierarchy per controller, and no unified one.
    V1 = 1,
    /// The unified hierarchy alone.
    V2 = 2,
    /// Controllers in v1 hierarchies, and a unified hierarchy beside them.
    Hybrid = 3,
}

/// A snapshot's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The wall-clock time at which the hierarchy was scanned. The snapshot carries nanoseconds since 1970, which covers 1970
    /// to 2554; a time outside is written as the nearest end.
    pub scanned_at: SystemTime,
    /// The machine's cgroup mode.
    pub mode: Mode,
    /// How many directories the scan saw and left out (no permission, a name that cannot be carried, a limit); 0 means that
    /// the snapshot is complete. Directories below such a directory are not counted.
    pub skipped: u32,
}

impl Mode {
    /// Returns the mode of this number, or `None` if layout 1 has none.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            3 => Some(Self::Hybrid),
            _ => None,
        }
    }

    /// Returns the number that the snapshot carries.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns `v1`, `v2` or `hybrid`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Meta {
    /// Returns the description of a complete scan that ends now.
    pub fn now(mode: Mode) -> Self {
        Self { scanned_at: SystemTime::now(), mode, skipped: 0 }
    }

    pub(super) fn scanned_at_nanos(&self) -> u64 {
        let since = self.scanned_at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn time_from_nanos(nanos: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_the_range_are_written_as_the_nearest_end() {
        let at = |scanned_at| Meta { scanned_at, mode: Mode::V2, skipped: 0 }.scanned_at_nanos();
        assert_eq!(at(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(at(UNIX_EPOCH + Duration::from_secs(20_000_000_000)), u64::MAX);
        // Some clocks count in steps of 100 ns.
        assert_eq!(at(Meta::time_from_nanos(1700)), 1700);
    }
}
