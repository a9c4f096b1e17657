//! Weaken every ordering and every fence of core, one at a time. The loom tests must notice each.
//!
//! The mutants are derived from the current source ([`mutation`]), all are built at once in a copy of the workspace
//! ([`scratch`]), and [`campaign`] runs the tests with one at a time until one fails.

mod campaign;
mod mutation;
mod scratch;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::campaign::{Finding, Verdict};
use self::mutation::Mutation;
use crate::error::Error;
use crate::paint;
use crate::queue;
use crate::root::target_dir;

/// How to run the mutants.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only mutants whose `file:line` contains one of these.
    filters: Vec<String>,
    /// Print the mutants and do not run them.
    #[arg(long)]
    list: bool,
    /// How many mutants to try at the same time; one for each processor by default.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// Where the code to weaken is, and the tests that must notice.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The workspace.
    pub(crate) root: PathBuf,
    /// The folder of the crate to weaken.
    pub(crate) subject: String,
    /// The folder of the crate with the tests, and its name.
    pub(crate) tests: String,
    pub(crate) package: String,
    /// For the build of both.
    pub(crate) rustflags: String,
    /// Where to copy the workspace to.
    pub(crate) scratch: PathBuf,
    /// Where the dependencies may have been built before.
    pub(crate) seed: PathBuf,
    /// The least time that a test gets.
    pub(crate) timeout: Duration,
}

impl Layout {
    pub(crate) fn of_bellwire(root: PathBuf) -> Self {
        Self {
            scratch: target_dir(&root).join("mutants"),
            seed: target_dir(&root).join("loom"),
            root,
            subject: "core".to_owned(),
            tests: "loom-tests".to_owned(),
            package: "bellwire-loom-tests".to_owned(),
            rustflags: "--cfg loom".to_owned(),
            timeout: Duration::from_secs(60),
        }
    }
}

/// A mutation of one file.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    /// From the root of the workspace.
    pub(crate) file: PathBuf,
    pub(crate) mutation: Mutation,
}

impl Mutant {
    fn place(&self) -> String {
        let Mutation { line, column, .. } = self.mutation;
        format!("{}:{line}:{column}", self.file.display())
    }

    fn row(&self) -> String {
        format!("{:<40} {:<22}", self.place(), self.mutation.change)
    }
}

/// Runs the mutants and prints what became of them; `true` when the tests noticed all.
pub(crate) fn run(layout: &Layout, args: &Args) -> Result<bool, Error> {
    let start = Instant::now();
    let all = find(layout)?;
    if all.is_empty() {
        return Err(Error::NothingToWeaken { dir: layout.root.join(&layout.subject).join("src") });
    }
    let matching = all.into_iter().filter(|mutant| {
        args.filters.is_empty() || args.filters.iter().any(|filter| mutant.place().contains(filter))
    });
    let (mutants, skipped): (Vec<_>, Vec<_>) =
        matching.partition(|mutant| mutant.mutation.equivalent.is_none());
    if mutants.is_empty() && skipped.is_empty() {
        return Err(Error::NoMatch { filters: args.filters.clone() });
    }
    if args.list {
        mutants.iter().for_each(|mutant| println!("{}", mutant.row().trim_end()));
        print_skipped(&skipped);
        return Ok(true);
    }
    let findings = campaign::campaign(layout, &mutants, queue::threads(args.jobs))?;
    print_skipped(&skipped);
    Ok(print_summary(&findings, skipped.len(), start.elapsed()))
}

/// Every mutant of the crate, in the order of the files and their lines.
fn find(layout: &Layout) -> Result<Vec<Mutant>, Error> {
    let mut files = Vec::new();
    sources(&layout.root.join(&layout.subject).join("src"), &mut files)?;
    files.sort();
    let mut mutants = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let file = path.strip_prefix(&layout.root).unwrap_or(&path);
        let of_file = mutation::find(&text)
            .map_err(|what| Error::NotRust { path: path.clone(), what: what.to_string() })?;
        let mutant = |mutation| Mutant { file: file.to_path_buf(), mutation };
        mutants.extend(of_file.into_iter().map(mutant));
    }
    Ok(mutants)
}

/// Names the atomics, or tests: nothing there orders anything.
const LEFT_OUT: [&str; 2] = ["sync", "tests"];

fn sources(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(Error::file("read", dir))? {
        let path = entry.map_err(Error::file("read", dir))?.path();
        if path.file_stem().is_some_and(|stem| LEFT_OUT.iter().any(|name| stem == *name)) {
            continue;
        }
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

impl Finding {
    fn print(&self) {
        let Self { mutant, verdict, took } = self;
        let row = format!("{} {:>6.1} s", mutant.row(), took.as_secs_f64());
        match verdict {
            Verdict::Caught { by } => {
                println!("{}  {row}  by {}", paint::green("caught   "), by.test);
            }
            Verdict::Survived => println!("{}  {row}", paint::red("SURVIVED ")),
            Verdict::TimedOut { test } => {
                println!("{}  {row}  in {}", paint::red("TIMED OUT"), test.test);
            }
        }
    }
}

fn print_skipped(skipped: &[Mutant]) {
    for mutant in skipped {
        let reason = mutant.mutation.equivalent.as_deref().unwrap_or_default();
        println!("{}  {}  because {reason}", paint::yellow("skipped  "), mutant.row());
    }
}

/// Prints the sum; `true` when every mutant was caught.
fn print_summary(findings: &[Finding], skipped: usize, took: Duration) -> bool {
    let [mut caught, mut survived, mut timed_out] = [0_usize; 3];
    for finding in findings {
        *match finding.verdict {
            Verdict::Caught { .. } => &mut caught,
            Verdict::Survived => &mut survived,
            Verdict::TimedOut { .. } => &mut timed_out,
        } += 1;
    }
    let advice = [
        (
            survived,
            "SURVIVED: no loom test needs that ordering: add the test, or weaken the code, or say \
            at the line `// mutant: equivalent because …`",
        ),
        (timed_out, "TIMED OUT: nobody knows whether a test would fail: bound that test"),
    ];
    for (_, text) in advice.into_iter().filter(|(count, _)| *count > 0) {
        println!("{}", paint::red(text));
    }
    println!(
        "summary: {} mutants: {caught} caught, {survived} survived, {timed_out} timed out; {skipped} skipped; \
         {:.0} s",
        findings.len(),
        took.as_secs_f64()
    );
    caught == findings.len()
}
