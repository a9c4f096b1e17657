//! Logs counters at a fixed interval.

use std::fmt;
use std::time::Duration;

use bellwire_core::Instant;

use super::Reactor;
use crate::stats::{ServerStats, ServiceStats};
use crate::transport::{Os, prelude::*};

/// When the next lines are due, and the counters of the last ones.
pub(super) struct Log {
    every: Option<Duration>,
    due: Option<Instant>,
    reported: Vec<ServiceStats>,
}

/// A line of counters: totals and, in brackets, the differences from the line before.
struct Line<'a> {
    now: &'a ServiceStats,
    before: ServerStats,
}

/// One of the counters.
type Count = fn(&ServerStats) -> u64;

impl Log {
    pub(super) fn new(every: Option<Duration>) -> Self {
        Self { every, due: every.map(|every| Os::now().after(every)), reported: Vec::new() }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Reactor {
    /// Logs the counters if it is time to.
    pub(super) fn log_stats(&mut self, now: Instant) {
        let (Some(every), Some(due)) = (self.log.every, self.log.due) else { return };
        if now < due {
            return;
        }
        self.flush_all_stats();
        let rows = self.shared.stats().services.clone();
        let reported = std::mem::take(&mut self.log.reported);
        for row in &rows {
            let before = reported.iter().find(|before| before.service == row.service);
            let before = before.map_or_else(ServerStats::default, |before| before.stats);
            log::info!(target: "bellwire", "{}", Line { now: row, before });
        }
        self.log.reported = rows;
        // A late reactor does not catch up.
        self.log.due = Some(now.after(every));
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceStats { service, stats } = self.now;
        write!(f, "[STATS] service={service} sessions={}", stats.sessions)?;
        write!(f, " in_flight={}", stats.in_flight())?;
        let counts: [(&str, Count); 9] = [
            ("accepted", |stats| stats.accepted),
            ("answered", |stats| stats.answered),
            ("refused", |stats| stats.refused),
            ("errors", |stats| stats.errors),
            ("lost", |stats| stats.lost),
            ("handshakes_failed", |stats| stats.handshakes_failed),
            ("lane_full", |stats| stats.lane_full),
            ("bytes_received", |stats| stats.bytes_received),
            ("bytes_sent", |stats| stats.bytes_sent),
        ];
        for (name, of) in counts {
            let (now, before) = (of(stats), of(&self.before));
            write!(f, " {name}={now}(+{})", now.saturating_sub(before))?;
        }
        Ok(())
    }
}
