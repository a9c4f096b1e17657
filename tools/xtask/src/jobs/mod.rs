mod output;
mod report;
mod runner;

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::Error;
use Takes::{Everything, Nothing, OwnSessions, Sessions};
use output::Output;
use report::{print_slowest, print_summary};
use runner::Runner;

/// One check: the script `ci/{name}`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// What it does: the beginning of its row in CONTRIBUTING.md.
    about: &'static str,
    group: Group,
    takes: Takes,
    /// The jobs that have to end first, if they run at all.
    after: &'static [&'static str],
}

/// What a job wants for itself, which says what may not run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// It runs nothing of what it builds, or not as processes that others of this machine see.
    Nothing,
    /// It runs processes with sessions, and looks at those of others: no job with sessions may run beside it.
    Sessions,
    /// It runs processes with sessions, and looks at no others.
    OwnSessions,
    /// It measures, or shares a folder with others: it runs alone.
    Everything,
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
    Job { name, about, group: Group::Required, takes: Nothing, after: &[] }
}

const fn further(name: &'static str, about: &'static str) -> Job {
    Job { group: Group::Further, ..required(name, about) }
}

const fn matrix(name: &'static str, about: &'static str) -> Job {
    Job { group: Group::Matrix, ..required(name, about) }
}

impl Job {
    const fn takes(self, takes: Takes) -> Self {
        Self { takes, ..self }
    }

    const fn after(self, after: &'static [&'static str]) -> Self {
        Self { after, ..self }
    }

    fn may_run_beside(&self, other: &Self) -> bool {
        match (self.takes, other.takes) {
            (Everything, _) | (_, Everything) => false,
            (Sessions, others) | (others, Sessions) => others == Nothing,
            (Nothing | OwnSessions, Nothing | OwnSessions) => true,
        }
    }
}

/// What names every job.
pub(crate) const ALL: &str = "all";

/// What names the jobs of other platforms.
pub(crate) const MATRIX: &str = "matrix";

/// Every check, in the order of the summary: those first that a change needs before it is proposed. The tests are built before the
/// lints want cargo's lock, and run beside them.
pub(crate) const JOBS: [Job; 31] = [
    required("fmt", "the code is formatted"),
    required("rules", "the rules of this repository that no lint covers"),
    required("test", "unit, integration and documentation tests").takes(Sessions),
    required("clippy", "lints for every target, with and without loom; warnings are errors"),
    required("tree", "how many crates the library adds to a program"),
    required("doc", "the documentation builds; warnings are errors"),
    required("loom", "lanes and parking, every interleaving within the tests' bounds"),
    required("proof", "every test that the threat model names ran in test or loom, and passed")
        .after(&["test", "loom"]),
    further("mutants", "the loom tests notice every weakened ordering and missing fence")
        .after(&["clippy", "loom"]),
    further("kill", "the survivor of a peer that is killed at any of 10 000 points")
        .takes(OwnSessions),
    further("fuzz", "the fuzz targets, 10 s each, and that they find injected double fetches"),
    further("benches", "lints and tests of bellwire-bench").takes(OwnSessions),
    further(
        "budget",
        "what the hot paths cost: no allocation, instructions and ratios within the budget",
    )
    .takes(Everything),
    further("sanitizers", "tests of core, the Linux transport and the facade with sanitizers")
        .takes(Everything),
    further(
        "soak",
        "processes killed, stopped and restarted for 60 s: nothing is lost, wrong or left behind",
    )
    .takes(OwnSessions),
    further("hostile", "32 attacks on a server in a memory cgroup of 64 MiB").takes(OwnSessions),
    further(
        "trace",
        "the tracer and its probes: lints, tests that attach to processes, a static build",
    )
    .takes(Sessions),
    further("c", "the C library: its header and symbols, C and C++ programs that use it")
        .takes(OwnSessions),
    further("go", "the Go module: its tests, and each two of Rust, C and Go with each other")
        .takes(OwnSessions),
    further("windows", "core builds, with lints, for Windows and for no operating system"),
    further(
        "wine",
        "lints and tests of the Windows transport, the facade over it and the command, under Wine",
    )
    .takes(Everything),
    matrix("msrv", "the embedded library builds with Rust 1.85"),
    matrix("oldest", "the Linux transport's tests on Linux 5.10 in QEMU"),
    matrix("aarch64", "the Linux transport's tests on aarch64"),
    matrix("kernels", "as oldest, on Linux 6.1, 6.12 and 7").takes(Everything),
    matrix("release", "the crates, as the registry gets them, build").takes(Everything),
    matrix("deb", "the Debian packages, built twice, installed, used and purged").takes(Everything),
    matrix("musl", "static programs with musl, on x86-64 and aarch64").takes(Everything),
    matrix("systemd", "the tutorial's units under systemd").takes(Everything),
    matrix("book", "the pages of docs/ as a book").takes(Everything),
    matrix(
        "litmus",
        "lanes, doorbells, boards and broadcast rings on ARM's memory model and C11's",
    )
    .takes(Everything),
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
    /// How many jobs run at the same time.
    pub(crate) parallel: usize,
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
    Ok(Command::new(&script).current_dir(root).status().map_err(Error::spawn(&script))?.success())
}

/// Runs the jobs of `plan`, several at a time, and prints how each went; `true` when all passed.
pub(crate) fn run(root: &Path, plan: &Plan, to: impl Write + Send) -> Result<bool, Error> {
    let start = Instant::now();
    let deadline = plan.within.map(|within| start + within);
    let runner = Runner { root, deadline, output: Output::new(to) };
    let reports = runner.run(plan)?;
    print_slowest(&reports);
    print_summary(&reports, start.elapsed());
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::report::{Outcome, Report};
    use super::runner::next;
    use super::{ALL, JOBS, Job, MATRIX, Output, Plan, Runner};

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
            parallel: 1,
            within: None,
        }
    }

    fn run(root: &Path, plan: &Plan) -> bool {
        super::run(root, plan, std::io::sink()).unwrap()
    }

    /// Runs `plan` for a minute at most; what the jobs printed goes to `printed`.
    fn reports(root: &Path, plan: &Plan, printed: &mut Vec<u8>) -> Vec<Report> {
        let deadline = Some(Instant::now() + plan.within.unwrap_or(Duration::from_secs(60)));
        let output = Output::new(printed);
        Runner { root, deadline, output }.run(plan).unwrap()
    }

    fn job(name: &str) -> Job {
        JOBS.into_iter().find(|job| job.name == name).unwrap()
    }

    #[test]
    fn every_job_has_a_script_that_runs() {
        let ci = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci");
        for job in JOBS {
            let mode = fs::metadata(ci.join(job.name)).unwrap().permissions().mode();
            assert_ne!(mode & 0o111, 0, "ci/{} is not executable", job.name);
        }
    }

    /// Text without links and code spans.
    fn plain(markdown: &str) -> String {
        let mut text = markdown.replace('`', "");
        while let Some((before, rest)) = text.split_once("](") {
            let (_, after) = rest.split_once(')').unwrap();
            text = format!("{}{after}", before.replacen('[', "", 1));
        }
        text
    }

    #[test]
    fn contributing_lists_every_job_and_begins_with_what_the_job_prints() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
        let rows: Vec<String> = page.lines().map(plain).collect();
        for Job { name, about, .. } in JOBS {
            let begin = format!("| {name} | ci/{name} | {about}");
            assert!(
                rows.iter().any(|row| row.starts_with(&begin)),
                "CONTRIBUTING.md lacks {begin:?}"
            );
        }
    }

    #[test]
    fn named_jobs_run_up_to_the_first_failure_unless_they_keep_going() {
        // The names; whether it keeps going, and whether `rules` fails; a job that runs then, and one that does not.
        let rows: [(&[&str], bool, bool, &str, &str); 5] = [
            (&[], false, false, "proof", "mutants"),
            (&["doc"], false, false, "doc", "fmt"),
            (&[MATRIX], false, false, "litmus", "fmt"),
            (&[], false, true, "fmt", "clippy"),
            (&[ALL], true, true, "windows", ""),
        ];
        for row in rows {
            let (names, keep_going, fails, is_run, is_not) = row;
            let root = checkout(|job| match job {
                "rules" if fails => "exit 1".to_owned(),
                job => format!("touch ran-{job}"),
            });
            assert_eq!(run(root.path(), &plan(names, keep_going)), !fails, "{row:?}");
            let has_run = |job| root.path().join(format!("ran-{job}")).exists();
            assert_eq!([is_run, is_not].map(has_run), [true, false], "{row:?}");
        }
    }

    #[test]
    fn a_job_that_passes_on_retry_succeeds_only_with_the_option() {
        let flaky = || {
            checkout(|job| match job {
                "rules" => "mkdir first 2>&- && exit 1; exit 0".to_owned(),
                job => format!("touch ran-{job}"),
            })
        };
        let retry = Plan { retry: true, ..plan(&[], false) };
        let root = flaky();
        assert!(run(root.path(), &retry));
        assert!(root.path().join("ran-proof").exists());
        assert!(!run(flaky().path(), &plan(&[], false)));
        let broken = checkout(|_| "echo >>runs; exit 1".to_owned());
        assert!(!run(broken.path(), &retry));
        let runs = fs::read_to_string(broken.path().join("runs")).unwrap();
        assert_eq!(runs.lines().count(), 2, "the first job twice, and no other");
    }

    #[test]
    fn a_job_that_hangs_is_ended_at_the_limit() {
        let root = checkout(|_| "exec sleep 600".to_owned());
        let plan = Plan { within: Some(Duration::from_secs(1)), ..plan(&["fmt", "rules"], true) };
        let reports = reports(root.path(), &plan, &mut Vec::new());
        let outcomes: Vec<_> = reports.iter().map(|report| report.outcome).collect();
        assert_eq!(outcomes, [Outcome::OutOfTime, Outcome::NotRun]);
    }

    /// Says a word, waits until the other job has begun, and says another one; `ends` follows.
    fn waits_for(other: &str, job: &str, ends: &str) -> String {
        format!(
            "touch began-{job}; echo {job} 1; until [ -e began-{other} ]; do sleep 0.01; done; \
             echo {job} 2 >&2; {ends}"
        )
    }

    #[test]
    fn two_jobs_run_at_the_same_time_and_are_shown_one_after_the_other() {
        let root = checkout(|job| match job {
            "fmt" => waits_for("rules", job, "until [ -e after-rules ]; do sleep 0.01; done"),
            "rules" => waits_for("fmt", job, "touch after-rules"),
            _ => String::new(),
        });
        let mut printed = Vec::new();
        let plan = Plan { parallel: 2, ..plan(&["fmt", "rules"], false) };
        let reports = reports(root.path(), &plan, &mut printed);
        let names: Vec<_> = reports.iter().map(|report| report.job.name).collect();
        assert_eq!(names, ["fmt", "rules"]);
        assert!(reports.iter().all(|report| report.outcome == Outcome::Passed), "{reports:?}");
        let printed = String::from_utf8(printed).unwrap();
        let said: Vec<_> = printed.lines().filter(|line| !line.contains('=')).collect();
        assert_eq!(said, ["", "fmt 1", "fmt 2", "", "rules 1", "rules 2"], "{printed}");
    }

    #[test]
    fn after_a_failure_running_jobs_finish_and_none_begins() {
        let root = checkout(|job| match job {
            "fmt" => "exec sleep 600".to_owned(),
            _ => "exit 1".to_owned(),
        });
        let within = Some(Duration::from_secs(2));
        let plan = Plan { parallel: 2, within, ..plan(&["fmt", "rules", "doc"], false) };
        let reports = reports(root.path(), &plan, &mut Vec::new());
        let outcomes: Vec<_> = reports.iter().map(|report| report.outcome).collect();
        assert_eq!(outcomes[0], Outcome::OutOfTime);
        assert!(outcomes[1].is_failure());
        assert_eq!(outcomes[2], Outcome::NotRun);
    }

    #[test]
    fn a_job_starts_only_beside_jobs_that_do_not_want_the_same() {
        for (waiting, running, starts) in [
            (&["soak"][..], &["test"][..], None),
            (&["soak"], &["kill"], Some(0)),
            (&["trace"], &["soak"], None),
            (&["soak", "fuzz"], &["test"], Some(1)),
            (&["budget", "soak"], &["loom"], Some(1)),
            (&["budget", "soak"], &[], Some(0)),
            (&["soak"], &["budget"], None),
            (&["proof"], &["loom"], None),
            (&["test", "proof"], &["budget"], None),
            (&["proof"], &["soak"], Some(0)),
        ] {
            let [waits, runs] = [waiting, running].map(|names| names.iter().copied().map(job));
            let found = next(&waits.collect::<Vec<_>>(), &runs.collect::<Vec<_>>());
            assert_eq!(found, starts, "{waiting:?} beside {running:?}");
        }
    }

    #[test]
    fn a_job_waits_only_for_jobs_listed_before_it() {
        for (index, job) in JOBS.iter().enumerate() {
            let is_before = |name| JOBS[..index].iter().any(|before| before.name == name);
            assert!(job.after.iter().copied().all(is_before), "{job:?}");
        }
    }
}
