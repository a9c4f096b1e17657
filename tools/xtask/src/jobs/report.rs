//! How the jobs went.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::Job;
use crate::paint;

/// How many of the slowest tests are listed.
const SLOWEST: usize = 20;

/// How a job went.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) job: Job,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    pub(super) note: String,
    pub(super) tests: Vec<Timed>,
}

/// A test, and how long it took.
#[derive(Debug, PartialEq)]
pub(super) struct Timed {
    seconds: f64,
    name: String,
}

impl Report {
    pub(super) fn not_run(job: Job) -> Self {
        Self {
            job,
            outcome: Outcome::NotRun,
            took: Duration::ZERO,
            note: String::new(),
            tests: Vec::new(),
        }
    }

    /// What both runs of a job say together.
    pub(super) fn retried(self, again: Self) -> Self {
        let outcome = match again.outcome {
            Outcome::Passed => Outcome::Flaky,
            other => other,
        };
        Self { outcome, took: self.took + again.took, ..again }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// Failed, and passed when it was run again.
    Flaky,
    Failed,
    OutOfTime,
    NotRun,
}

impl Outcome {
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::OutOfTime)
    }

    pub(super) fn is_success(self) -> bool {
        matches!(self, Self::Passed | Self::Flaky)
    }

    fn painted(self) -> String {
        let text = format!("{self:<11}");
        match self {
            Self::Passed => paint::green(&text),
            Self::Failed | Self::OutOfTime => paint::red(&text),
            Self::Flaky | Self::NotRun => paint::yellow(&text),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "ok",
            Self::Flaky => "ok, FLAKY",
            Self::Failed => "FAILED",
            Self::OutOfTime => "OUT OF TIME",
            Self::NotRun => "not run",
        })
    }
}

/// What the summary says about a job beside its outcome: the sum of its `test result:` lines, or its last
/// `summary:` line; and the tests whose time it printed.
#[derive(Debug, Default)]
pub(super) struct Notes {
    line: Vec<u8>,
    results: Option<[u64; 3]>,
    summary: String,
    tests: Vec<Timed>,
}

impl Notes {
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_line();
            } else {
                self.line.push(byte);
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if let Some(summary) = line.strip_prefix("summary: ") {
            summary.trim().clone_into(&mut self.summary);
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let sum = self.results.get_or_insert_default();
            for (total, kind) in sum.iter_mut().zip(["passed", "failed", "ignored"]) {
                *total += count(result, kind);
            }
        } else {
            self.tests.extend(Timed::read(&line));
        }
    }

    pub(super) fn finish(mut self) -> (String, Vec<Timed>) {
        self.end_line();
        let note = match self.results {
            _ if !self.summary.is_empty() => self.summary,
            Some([passed, failed, ignored]) => {
                format!("{passed} tests passed, {failed} failed, {ignored} ignored")
            }
            None => String::new(),
        };
        (note, self.tests)
    }
}

impl Timed {
    /// Reads a line such as `test path ... ok <0.123s>`.
    fn read(line: &str) -> Option<Self> {
        let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let seconds = outcome.trim_end().strip_suffix("s>")?.split_once('<')?.1.parse().ok()?;
        Some(Self { seconds, name: name.to_owned() })
    }
}

/// Prints which tests took longest, if any job said how long its tests took.
pub(super) fn print_slowest(reports: &[Report]) {
    let mut tests: Vec<&Timed> = reports.iter().flat_map(|report| &report.tests).collect();
    tests.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    if !tests.is_empty() {
        println!("\nthe slowest tests: CONTRIBUTING.md says why each is worth it");
    }
    for Timed { seconds, name } in tests.into_iter().take(SLOWEST) {
        println!("{seconds:>8.1} s  {name}");
    }
}

/// The number before `kind` in a line such as `ok. 3 passed; 0 failed; 1 ignored; …`.
fn count(result: &str, kind: &str) -> u64 {
    let part = result.split([';', '.']).map(str::trim).find_map(|part| part.strip_suffix(kind));
    part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

pub(super) fn print_summary(reports: &[Report], took: Duration) {
    println!("\n{}", paint::bold("job         outcome          time  "));
    for Report { job, outcome, took, note, .. } in reports {
        let line =
            format!("{:<10}  {}  {:>8}  {note}", job.name, outcome.painted(), seconds(*took));
        println!("{}", line.trim_end());
    }
    let failed: Vec<String> = reports
        .iter()
        .filter(|report| report.outcome.is_failure())
        .map(|report| format!("ci/{}", report.job.name))
        .collect();
    let not_run = reports.iter().filter(|report| report.outcome == Outcome::NotRun).count();
    if !failed.is_empty() {
        println!(
            "{}; again, alone: {}",
            paint::red(&format!("{} failed", failed.len())),
            failed.join(", ")
        );
    }
    let flaky = reports.iter().filter(|report| report.outcome == Outcome::Flaky).count();
    if flaky > 0 {
        let text = format!("{flaky} failed once and passed when run again: find out why");
        println!("{}", paint::yellow(&text));
    }
    if not_run > 0 {
        println!("{}", paint::yellow(&format!("{not_run} not run")));
    }
    if failed.is_empty() && not_run == 0 {
        println!("{} in {}", paint::green("all passed"), seconds(took));
    }
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::{Notes, Timed};

    fn read(output: &str) -> (String, Vec<Timed>) {
        let mut notes = Notes::default();
        notes.read(output.as_bytes());
        notes.finish()
    }

    fn notes(output: &str) -> String {
        read(output).0
    }

    #[test]
    fn the_test_results_of_all_binaries_are_summed() {
        let output = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(notes(output), "7 tests passed, 2 failed, 1 ignored");
    }

    #[test]
    fn a_summary_line_takes_precedence_over_test_results() {
        assert_eq!(notes("test result: ok. 3 passed; 0 failed\nsummary: 21 crates\n"), "21 crates");
        assert_eq!(notes("nothing to say\n"), "");
    }

    #[test]
    fn the_time_of_a_test_is_read_where_it_is_printed() {
        let output = "test a::b ... ok <0.250s>\ntest a::c ... ok\ntest d - should panic ... FAILED <12.000s>";
        let timed = |name: &str, seconds| Timed { seconds, name: name.to_owned() };
        assert_eq!(read(output).1, [timed("a::b", 0.25), timed("d - should panic", 12.0)]);
    }
}
