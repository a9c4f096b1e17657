mod report;

use std::io::{self, Read, Write, stdout};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::paint::Paint;
use report::{Notes, Outcome, Report, print_summary, seconds};

/// One check: the script `ci/{name}`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    about: &'static str,
    group: Group,
}

/// When a job runs without being named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Before a change is proposed.
    Required,
    /// With [`ALL`].
    Further,
    /// With [`ALL`] or [`MATRIX`]: other kernels, processors, compilers, C libraries and packages.
    Matrix,
}

const fn required(name: &'static str, about: &'static str) -> Job {
    Job { name, about, group: Group::Required }
}

const fn further(name: &'static str, about: &'static str) -> Job {
    Job { name, about, group: Group::Further }
}

const fn matrix(name: &'static str, about: &'static str) -> Job {
    Job { name, about, group: Group::Matrix }
}

/// What names every job.
pub(crate) const ALL: &str = "all";

/// What names the jobs of other platforms.
pub(crate) const MATRIX: &str = "matrix";

/// Every check, those first that a change needs before it is proposed.
pub(crate) const JOBS: [Job; 30] = [
    required("fmt", "the code is formatted"),
    required("rules", "the rules of this repository that no lint knows"),
    required("clippy", "lints for every target, with and without loom; warnings are errors"),
    required("tree", "what the embedded library depends on, counted"),
    required("test", "unit, integration and documentation tests"),
    required("doc", "the documentation builds; warnings are errors"),
    required("loom", "the lanes and the parking protocol, every interleaving"),
    required("proof", "every test that the threat model names was run, and passed"),
    further("mutants", "the loom tests notice every weakened ordering"),
    further("kill", "a peer that is killed at any point; injected faults are found"),
    further("fuzz", "what a peer may send, and what its memory may say"),
    further("budget", "what the hot paths cost: instructions, allocations, ratios"),
    further("sanitizers", "the tests with AddressSanitizer, ThreadSanitizer and valgrind"),
    further("soak", "processes killed, stopped and restarted for a minute; nothing lost or left"),
    further("hostile", "what a peer can make a server hold, in a memory cgroup of 64 MiB"),
    further("trace", "the tracer: lints, tests as root, and a static build"),
    further("c", "the C library: its header, its symbols, and C and C++ programs that use it"),
    further("go", "the Go module: lints, vectors, races, and each two of Rust, C and Go"),
    further("windows", "core for Windows and for no operating system at all"),
    further("wine", "the Windows transport, facade and command: lints, and tests under Wine"),
    matrix("msrv", "the embedded library builds with the oldest Rust that it promises"),
    matrix("oldest", "the Linux transport's tests on Linux 5.10, in QEMU"),
    matrix("aarch64", "the same on aarch64, in QEMU"),
    matrix("kernels", "the same on the kernels between 5.10 and the newest, in QEMU"),
    matrix("release", "the crates as the registry gets them, licences, sources"),
    matrix("deb", "the Debian packages: built twice, installed, used and purged"),
    matrix("musl", "static programs with musl, on x86-64 and aarch64"),
    matrix("systemd", "the tutorial's units under systemd"),
    matrix("book", "the pages of docs/ as a book"),
    matrix("litmus", "the orderings on ARM's memory model and C11's"),
];

/// What to run, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Names out of [`JOBS`], [`ALL`] or [`MATRIX`]; those that are required when empty.
    pub(crate) jobs: Vec<String>,
    /// Go on after a failure.
    pub(crate) keep_going: bool,
    /// Run a job that failed once more; the summary says which needed it.
    pub(crate) retry: bool,
    /// When to stop, from now.
    pub(crate) within: Option<Duration>,
}

/// Prints the jobs.
pub(crate) fn list() {
    for job in JOBS {
        let by_default = match job.group {
            Group::Required => ' ',
            Group::Further => '+',
            Group::Matrix => '*',
        };
        println!("{by_default} {:<10}  ci/{:<10}  {}", job.name, job.name, job.about);
    }
}

/// Runs `ci/check`; `true` when it passed.
pub(crate) fn check(root: &Path) -> Result<bool, Error> {
    let script = root.join("ci/check");
    let spawn = |source| Error::Spawn { program: script.display().to_string(), source };
    Ok(Command::new(&script).current_dir(root).status().map_err(spawn)?.success())
}

/// Runs the jobs of `plan` in order and prints how each went; `true` when all passed.
pub(crate) fn run(root: &Path, plan: &Plan, paint: Paint) -> Result<bool, Error> {
    let start = Instant::now();
    let mut reports: Vec<Report> = Vec::new();
    for job in JOBS.into_iter().filter(|job| plan.names(job)) {
        let left = plan.within.map(|within| within.saturating_sub(start.elapsed()));
        let stop = !plan.keep_going && reports.iter().any(|report| report.outcome.is_failure());
        let report = if stop || left.is_some_and(|left| left.is_zero()) {
            Report { job, outcome: Outcome::NotRun, took: Duration::ZERO, note: String::new() }
        } else {
            let first = run_one(root, job, left, paint)?;
            let left = plan.within.map(|within| within.saturating_sub(start.elapsed()));
            let has_time = left.is_none_or(|left| !left.is_zero());
            match plan.retry && first.outcome == Outcome::Failed && has_time {
                false => first,
                true => first.retried(run_one(root, job, left, paint)?),
            }
        };
        reports.push(report);
    }
    print_summary(&reports, start.elapsed(), paint);
    Ok(reports.iter().all(|report| report.outcome.is_success()))
}

impl Plan {
    fn names(&self, job: &Job) -> bool {
        let is_matrix = job.group == Group::Matrix;
        let is_named =
            |name: &String| name == job.name || name == ALL || (name == MATRIX && is_matrix);
        match self.jobs.is_empty() {
            true => job.group == Group::Required,
            false => self.jobs.iter().any(is_named),
        }
    }
}

/// What timeout(1) answers when it had to end its command, and when that took a SIGKILL.
const ENDED_BY_TIMEOUT: [i32; 2] = [124, 137];

/// Runs one script, and passes on what it prints.
fn run_one(root: &Path, job: Job, limit: Option<Duration>, paint: Paint) -> Result<Report, Error> {
    let start = Instant::now();
    println!("\n{}", paint.bold(&format!("==> {}: {}", job.name, job.about)));
    let script = root.join("ci").join(job.name);
    // timeout(1) ends the script's whole process group, cargo and the tests included.
    let mut command = match limit {
        None => Command::new(&script),
        Some(limit) => {
            let mut command = Command::new("timeout");
            command.arg("--kill-after=10").arg(limit.as_secs().max(1).to_string()).arg(&script);
            command
        }
    };
    if paint.is_on() {
        // The script's output goes through this program: cargo cannot see the terminal by itself.
        command.env("CARGO_TERM_COLOR", "always");
    }
    let spawn = |source| Error::Spawn { program: script.display().to_string(), source };
    let mut child = command
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(spawn)?;
    let mut notes = Notes::default();
    if let Some(output) = child.stdout.take() {
        pass_on(output, &mut notes)?;
    }
    let wait = |source| Error::Wait { program: script.display().to_string(), source };
    let status = child.wait().map_err(wait)?;
    let timed =
        limit.is_some() && status.code().is_some_and(|code| ENDED_BY_TIMEOUT.contains(&code));
    let outcome = match status.success() {
        true => Outcome::Passed,
        false if timed => Outcome::OutOfTime,
        false => Outcome::Failed,
    };
    let took = start.elapsed();
    let end = format!("<== {}: {outcome}, {}", job.name, seconds(took));
    println!("{}", paint.bold(&end));
    Ok(Report { job, outcome, took, note: notes.finish() })
}

/// Copies `output` to the standard output as it comes, and passes it to `notes` too.
fn pass_on(mut output: ChildStdout, notes: &mut Notes) -> Result<(), Error> {
    let mut buffer = [0; 4096];
    loop {
        let read = match output.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let mut out = stdout().lock();
        out.write_all(read)?;
        out.flush()?;
        notes.read(read);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Duration;

    use super::{ALL, JOBS, Job, MATRIX, Outcome, Plan, Report, run, run_one};
    use crate::paint::Paint;

    /// A checkout whose `ci/` holds every job; `script` gives the text of each.
    fn checkout(script: impl Fn(&str) -> String) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("ci")).unwrap();
        for job in JOBS {
            let path = root.path().join("ci").join(job.name);
            fs::write(&path, format!("#!/bin/sh\n{}\n", script(job.name))).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        root
    }

    fn plan(jobs: &[&str], keep_going: bool) -> Plan {
        Plan {
            jobs: jobs.iter().map(|&job| job.to_owned()).collect(),
            keep_going,
            retry: false,
            within: None,
        }
    }

    fn one(root: &Path, job: Job, limit: Option<Duration>) -> Report {
        run_one(root, job, limit, Paint::for_stdout()).unwrap()
    }

    #[test]
    fn every_job_has_a_script_that_runs() {
        let ci = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci");
        for job in JOBS {
            let mode = fs::metadata(ci.join(job.name)).unwrap().permissions().mode();
            assert_ne!(mode & 0o111, 0, "ci/{} is not executable", job.name);
        }
    }

    #[test]
    fn a_failure_stops_the_run_and_is_what_the_run_answers() {
        let root = checkout(|job| match job {
            "rules" => "exit 1".to_owned(),
            job => format!("touch ran-{job}"),
        });
        assert!(!run(root.path(), &plan(&[], false), Paint::for_stdout()).unwrap());
        assert!(root.path().join("ran-fmt").exists());
        assert!(!root.path().join("ran-clippy").exists());
    }

    #[test]
    fn keep_going_runs_the_rest_and_still_fails() {
        let root = checkout(|job| match job {
            "rules" => "exit 1".to_owned(),
            job => format!("touch ran-{job}"),
        });
        assert!(!run(root.path(), &plan(&[ALL], true), Paint::for_stdout()).unwrap());
        assert!(root.path().join("ran-windows").exists());
    }

    #[test]
    fn only_a_job_that_passes_when_it_is_run_again_is_forgiven_and_only_if_asked() {
        let flaky = || {
            checkout(|job| match job {
                "rules" => "mkdir first 2>&- && exit 1; exit 0".to_owned(),
                job => format!("touch ran-{job}"),
            })
        };
        let retry = Plan { retry: true, ..plan(&[], false) };
        let root = flaky();
        assert!(run(root.path(), &retry, Paint::for_stdout()).unwrap());
        assert!(root.path().join("ran-proof").exists());
        assert!(!run(flaky().path(), &plan(&[], false), Paint::for_stdout()).unwrap());
        let broken = checkout(|_| "echo >>runs; exit 1".to_owned());
        assert!(!run(broken.path(), &retry, Paint::for_stdout()).unwrap());
        let runs = fs::read_to_string(broken.path().join("runs")).unwrap();
        assert_eq!(runs.lines().count(), 2, "the first job twice, and no other");
    }

    #[test]
    fn without_a_name_what_a_change_needs_is_run() {
        let root = checkout(|job| format!("touch ran-{job}"));
        assert!(run(root.path(), &plan(&[], false), Paint::for_stdout()).unwrap());
        assert!(root.path().join("ran-proof").exists());
        assert!(!root.path().join("ran-mutants").exists());
    }

    #[test]
    fn only_the_jobs_named_are_run() {
        let root = checkout(|job| format!("touch ran-{job}"));
        assert!(run(root.path(), &plan(&["doc"], false), Paint::for_stdout()).unwrap());
        assert!(root.path().join("ran-doc").exists());
        assert!(!root.path().join("ran-fmt").exists());
    }

    #[test]
    fn the_matrix_is_its_jobs_only() {
        let root = checkout(|job| format!("touch ran-{job}"));
        assert!(run(root.path(), &plan(&[MATRIX], false), Paint::for_stdout()).unwrap());
        assert!(root.path().join("ran-litmus").exists());
        assert!(!root.path().join("ran-fmt").exists());
    }

    #[test]
    fn a_job_that_hangs_is_ended_at_the_limit() {
        let root = checkout(|_| "exec sleep 600".to_owned());
        let report = one(root.path(), JOBS[0], Some(Duration::from_secs(1)));
        assert_eq!(report.outcome, Outcome::OutOfTime);
    }
}
