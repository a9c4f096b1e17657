use bellwire_process::Usage;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::protocol::Load;
use crate::bench::args::Subject;

/// One measurement of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) calls_per_second: f64,
    /// The server's CPU nanoseconds per call.
    pub(super) cpu: f64,
    /// Context switches of the server's threads per call.
    pub(super) switches: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Bytes.
    pub(super) rss: f64,
    /// The share of the server's CPU time, since it began, that was spent in the kernel.
    pub(super) kernel: f64,
}

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// One load and its cost for each server.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) sessions: u32,
    pub(super) load: Load,
    pub(super) columns: Vec<(Subject, Vec<Sample>)>,
}

impl Sample {
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn new(
        before: &Usage,
        after: &Usage,
        calls: u64,
        nanos: u64,
        took: &Histogram<u64>,
    ) -> Self {
        let each = calls.max(1) as f64;
        Self {
            calls_per_second: calls as f64 * 1e9 / nanos.max(1) as f64,
            cpu: after.cpu.saturating_sub(before.cpu).as_nanos() as f64 / each,
            switches: after.switches.saturating_sub(before.switches) as f64 / each,
            p50: took.value_at_quantile(0.5) as f64,
            p99: took.value_at_quantile(0.99) as f64,
            rss: after.rss as f64,
            kernel: f64::from(after.kernel) / 1000.0,
        }
    }
}

impl Spread {
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let at = |at: usize| figures.get(at).copied().unwrap_or(f64::NAN);
        let last = figures.len().saturating_sub(1);
        let median = (at(last / 2) + at(last.div_ceil(2))) / 2.0;
        Self { median, min: at(0), max: at(last) }
    }
}

impl Row {
    pub(super) fn new(sessions: u32, load: Load, subjects: impl Iterator<Item = Subject>) -> Self {
        Self { sessions, load, columns: subjects.map(|subject| (subject, Vec::new())).collect() }
    }

    /// Adds one round, in the order of the columns.
    pub(super) fn add(&mut self, samples: Vec<Sample>) {
        for ((_, column), sample) in self.columns.iter_mut().zip(samples) {
            column.push(sample);
        }
    }

    /// Returns the calls a second of the fastest round of any server.
    pub(super) fn most_calls(&self) -> f64 {
        let samples = self.columns.iter().flat_map(|(_, samples)| samples);
        samples.map(|sample| sample.calls_per_second).fold(0.0, f64::max)
    }

    /// Returns, for each round, the ratio of one server's CPU time to another's.
    pub(super) fn ratio(&self, of: Subject, to: Subject) -> Option<Spread> {
        let column = |wanted| {
            self.columns.iter().find(|(subject, _)| *subject == wanted).map(|(_, column)| column)
        };
        let rounds = column(of)?.iter().zip(column(to)?);
        Some(Spread::of(rounds.map(|(of, to)| of.cpu / to.cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        let odd = Spread::of([3.0, 1.0, 9.0].into_iter());
        assert_eq!((odd.median, odd.min, odd.max), (3.0, 1.0, 9.0));
        assert_eq!(Spread::of([4.0, 2.0].into_iter()).median, 3.0);
        assert!(Spread::of(std::iter::empty()).median.is_nan());
    }

    #[test]
    fn a_ratio_is_of_two_figures_of_one_round() {
        let mut row = Row::new(1, Load::Closed, [Subject::Epoll, Subject::IoUring].into_iter());
        for (epoll, uring) in [(100.0, 50.0), (1000.0, 2000.0), (10.0, 10.0)] {
            let sample = |cpu| Sample { cpu, ..Sample::default() };
            row.add(vec![sample(epoll), sample(uring)]);
        }
        let ratio = row.ratio(Subject::IoUring, Subject::Epoll).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (1.0, 0.5, 2.0));
        assert!(row.ratio(Subject::Epoll, Subject::Seqpacket).is_none());
    }
}
