//! Runs the tests against each mutant, several at a time.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::scratch::{Ended, Scratch, TestName};
use super::{Layout, Mutant};
use crate::error::Error;
use crate::queue::{self, lock};

/// What became of a mutant.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) mutant: Mutant,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A test failed, as one must.
    Caught { by: TestName },
    /// Every test passed.
    Survived,
    /// A test did not end, and none had failed before.
    TimedOut { test: TestName },
}

/// Builds all mutants, checks that the tests pass without one, and tries each, with so many threads. Prints what it finds, and
/// returns it in the order of `mutants`.
pub(crate) fn campaign(
    layout: &Layout,
    mutants: &[Mutant],
    threads: usize,
) -> Result<Vec<Finding>, Error> {
    let start = Instant::now();
    let numbered: Vec<_> = (1..).zip(mutants).collect();
    let scratch = Scratch::build(layout, &numbered)?;
    let known = baseline(layout, &scratch, threads)?;
    println!(
        "all built, nothing weakened: {} tests pass in {:.1} s; now one mutant at a time",
        known.len(),
        start.elapsed().as_secs_f64()
    );
    let known = Mutex::new(known);
    queue::share(threads, numbered.into_iter(), |(number, mutant)| {
        let start = Instant::now();
        let verdict = run_tests(layout, &scratch, number, &known)?;
        let finding = Finding { mutant: mutant.clone(), verdict, took: start.elapsed() };
        finding.print();
        Ok(finding)
    })
}

/// A test that passes on the code as it is.
struct Known {
    name: TestName,
    /// How long it takes there.
    took: Duration,
    /// How many mutants it has caught.
    caught: u32,
}

impl Known {
    /// Catches by time: what to try first.
    fn promise(&self) -> f64 {
        (f64::from(self.caught) + 1.0) / self.took.as_secs_f64().max(0.001)
    }
}

/// Runs every test on the code as it is: each must pass.
fn baseline(layout: &Layout, scratch: &Scratch, threads: usize) -> Result<Vec<Known>, Error> {
    let names = scratch.list()?;
    if names.is_empty() {
        return Err(Error::NoTests { package: layout.package.clone() });
    }
    queue::share(threads, names.into_iter(), |name| {
        let start = Instant::now();
        let log = match scratch.run(&name, 0, BASELINE_LIMIT)? {
            Ended::Passed => return Ok(Known { name, took: start.elapsed(), caught: 0 }),
            Ended::Failed(log) => log,
            Ended::TimedOut => "it does not end".to_owned(),
        };
        Err(Error::BaselineTest { test: name.test, log })
    })
}

/// More than any test that ends should need.
const BASELINE_LIMIT: Duration = Duration::from_secs(600);

/// Runs the tests with this mutant until one fails.
fn run_tests(
    layout: &Layout,
    scratch: &Scratch,
    mutant: usize,
    known: &Mutex<Vec<Known>>,
) -> Result<Verdict, Error> {
    let mut timed_out = None;
    for (name, limit) in in_order(layout, known) {
        match scratch.run(&name, mutant, limit)? {
            Ended::Passed => {}
            Ended::Failed(_) => {
                let mut known = lock(known);
                known.iter_mut().filter(|test| test.name == name).for_each(|test| test.caught += 1);
                return Ok(Verdict::Caught { by: name });
            }
            Ended::TimedOut => timed_out = timed_out.or(Some(name)),
        }
    }
    Ok(timed_out.map_or(Verdict::Survived, |test| Verdict::TimedOut { test }))
}

/// The tests and the time that each gets, the most promising first.
fn in_order(layout: &Layout, known: &Mutex<Vec<Known>>) -> Vec<(TestName, Duration)> {
    let mut known = lock(known);
    known.sort_by(|a, b| b.promise().total_cmp(&a.promise()).then_with(|| a.name.cmp(&b.name)));
    known.iter().map(|test| (test.name.clone(), layout.timeout.max(test.took * 10))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::{Verdict, campaign};
    use crate::error::Error;
    use crate::mutants::{Layout, find};

    /// A crate whose "orderings" are numbers, and tests that look at them: no loom, quick to build.
    const SUBJECT: &str = "\
pub mod sync {
    #[derive(Clone, Copy, PartialEq)]
    pub enum Ordering { Relaxed, Acquire, Release, AcqRel, SeqCst }
    pub fn fence(log: &mut Vec<Ordering>, order: Ordering) { log.push(order) }
}
mod lane;
pub use lane::*;
";
    const LANE: &str = "\
use crate::sync::{Ordering, fence};
pub fn caught() -> Ordering { Ordering::Release }
pub fn survives() -> Ordering { Ordering::Acquire }
pub fn hangs() -> bool { Ordering::Acquire == Ordering::Relaxed }
pub fn skipped() -> Ordering { Ordering::Acquire } // mutant: equivalent because nobody asks
pub fn fenced(log: &mut Vec<Ordering>) {
    fence(log, Ordering::SeqCst);
}
pub fn typed() -> Strong { Strong::of([Ordering::AcqRel]) }
pub struct Strong;
impl Strong { const fn of(_: [Ordering; 1]) -> Self { Self } }
";
    const TESTS: &str = "\
#[test] fn release_is_kept() { assert!(subject::caught() == subject::sync::Ordering::Release) }
#[test] fn fence_is_kept() {
    let mut log = Vec::new();
    subject::fenced(&mut log);
    assert!(log.iter().any(|order| *order == subject::sync::Ordering::SeqCst));
}
#[test] fn ends() { while subject::hangs() { std::thread::yield_now() } }
";

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn project(lane: &str, tests: &str) -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("workspace");
        let package = |name| {
            format!(
                "[package]\nname = \"{name}\"\nversion.workspace = true\nedition.workspace = true\n"
            )
        };
        let manifest = "[workspace]\nmembers = [\"subject\", \"checks\"]\nresolver = \"3\"\n\
            [workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\"\n";
        write(&root.join("Cargo.toml"), manifest);
        write(&root.join("subject/Cargo.toml"), &package("subject"));
        write(&root.join("subject/src/lib.rs"), SUBJECT);
        write(&root.join("subject/src/lane.rs"), lane);
        let depends =
            format!("{}[dependencies]\nsubject = {{ path = \"../subject\" }}\n", package("checks"));
        write(&root.join("checks/Cargo.toml"), &depends);
        write(&root.join("checks/src/lib.rs"), "");
        write(&root.join("checks/tests/all.rs"), tests);
        let layout = Layout {
            scratch: dir.path().join("scratch"),
            seed: root.join("nothing-here"),
            root,
            subject: "subject".to_owned(),
            tests: "checks".to_owned(),
            package: "checks".to_owned(),
            rustflags: String::new(),
            timeout: Duration::from_secs(2),
        };
        (dir, layout)
    }

    #[test]
    fn each_mutant_is_classified_by_the_outcome_of_the_tests() {
        let (_dir, layout) = project(LANE, TESTS);
        let mut mutants = find(&layout).unwrap();
        mutants.retain(|mutant| mutant.mutation.equivalent.is_none());
        let findings = campaign(&layout, &mutants, 2).unwrap();
        let verdicts: Vec<_> = findings
            .iter()
            .map(|finding| (finding.mutant.mutation.line, verdict(&finding.verdict)))
            .collect();
        assert_eq!(
            verdicts,
            [
                (2, "caught by release_is_kept"),
                (3, "survived"),
                (4, "timed out in ends"),
                (7, "caught by fence_is_kept"),
                (7, "caught by fence_is_kept"),
                (9, "survived"),
                (9, "survived"),
            ]
        );
    }

    fn verdict(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Caught { by } if by.test == "release_is_kept" => "caught by release_is_kept",
            Verdict::Caught { by } if by.test == "fence_is_kept" => "caught by fence_is_kept",
            Verdict::Caught { .. } => "caught by another",
            Verdict::Survived => "survived",
            Verdict::TimedOut { test } if test.test == "ends" => "timed out in ends",
            Verdict::TimedOut { .. } => "timed out elsewhere",
        }
    }

    #[test]
    fn tests_that_fail_before_anything_is_weakened_prove_nothing() {
        let (_dir, layout) = project(LANE, "#[test] fn fails() { panic!(\"as planned\") }");
        let error = campaign(&layout, &find(&layout).unwrap(), 1).unwrap_err();
        assert!(
            matches!(&error, Error::BaselineTest { test, log } if test == "fails" && log.contains("as planned"))
        );
    }

    #[test]
    fn code_that_does_not_build_is_an_error() {
        let (_dir, layout) = project("fn broken( {}", "#[test] fn passes() {}");
        assert!(matches!(campaign(&layout, &[], 1), Err(Error::Baseline { .. })));
    }

    #[test]
    fn no_tests_is_an_error() {
        let (_dir, layout) = project(LANE, "");
        assert!(matches!(campaign(&layout, &[], 1), Err(Error::NoTests { .. })));
    }
}
