//! Run the fuzz targets, each for so many seconds; and show that they find injected faults.
//!
//! The targets are in `fuzz/`, laid out as cargo-fuzz has them, and [`build`] builds them as it does. [`campaign`]
//! runs them, [`report`] reads what libFuzzer prints, [`faults`] has the double fetches.

mod build;
mod campaign;
mod faults;
mod report;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use self::build::Build;
use self::campaign::{Finding, Run};
pub(crate) use self::faults::FAULTS;
use crate::copy;
use crate::error::Error;
use crate::paint;
use crate::queue;
use crate::root::target_dir;

/// How to run the fuzz targets.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The targets; all when none is named.
    targets: Vec<String>,
    /// How long each target runs.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// How many targets run at the same time; one for each processor by default.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Then inject double fetches into a copy of core, one at a time: each must be found within 50 000 executions.
    #[arg(long)]
    faults: bool,
}

/// Runs the targets and prints what became of them; `true` when no guarantee was broken, and every injected fault was
/// found.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let all = targets(root)?;
    if let Some(name) = args.targets.iter().find(|name| !all.contains(name)) {
        return Err(Error::NoTarget { name: name.clone(), known: all.join(", ") });
    }
    let names: Vec<&str> = if args.targets.is_empty() { &all } else { &args.targets }
        .iter()
        .map(String::as_str)
        .collect();
    let start = Instant::now();
    let build = Build { root: root.to_path_buf(), target: target_dir(root).join("fuzz") };
    build.build(&names, &[])?;
    println!("built in {}; each runs for {} s", seconds(start.elapsed()), args.seconds);

    let runs: Vec<Run> = names.iter().map(|name| plan(&build, name, args.seconds)).collect();
    let findings = queue::share(queue::threads(args.jobs), runs.iter(), |run| {
        campaign::run(run).inspect(print_finding)
    })?;
    print_table(&findings);
    let faults = args.faults.then(|| search_for_faults(&build)).transpose()?;
    print_summary(&findings, faults, start.elapsed());
    let all_found = faults.is_none_or(|(found, tried)| found == tried);
    Ok(all_found && findings.iter().all(|finding| finding.passed))
}

/// The names of the targets: those of their files.
fn targets(root: &Path) -> Result<Vec<String>, Error> {
    let dir = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).map_err(Error::file("read", &dir))? {
        let path = entry.map_err(Error::file("read", &dir))?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn plan(build: &Build, target: &str, seconds: u32) -> Run {
    // A session of more operations finds nothing that a shorter one does not, and takes longer. The others' longest
    // inputs are a lane, and some items.
    let longest = if target == "consumer" { 1024 } else { 4608 };
    let fuzz = build.root.join("fuzz");
    Run {
        target: target.to_owned(),
        program: build.program(target),
        variable: None,
        corpora: vec![build.target.join("corpus").join(target), fuzz.join("seeds").join(target)],
        artifacts: fuzz.join("artifacts").join(target),
        log: build.target.join("logs").join(target),
        options: vec![
            format!("-max_total_time={seconds}"),
            format!("-max_len={longest}"),
            "-len_control=0".to_owned(),
            "-timeout=25".to_owned(),
        ],
    }
}

/// At once: other targets end meanwhile.
fn print_finding(finding: &Finding) {
    let Finding { target, progress, passed, .. } = finding;
    if *passed {
        return println!("{}  {target}", paint::green("ok    "));
    }
    let mut lines = vec![format!("{}  {target}", paint::red("BROKEN"))];
    lines.extend(progress.panic.iter().cloned());
    if let Some(artifact) = &progress.artifact {
        lines
            .push(format!("again: cargo run --package bellwire-fuzz --bin {target} -- {artifact}"));
        lines.push(format!(
            "when it is mended, keep that file in fuzz/seeds/{target}/ under the name of the fault"
        ));
    }
    println!("{}", lines.join("\n        "));
}

fn print_table(findings: &[Finding]) {
    let head = "target      outcome  executions   a second     edges  new inputs";
    println!("\n{}", paint::bold(head));
    for Finding { target, progress, passed, took } in findings {
        let outcome = if *passed { paint::green("ok     ") } else { paint::red("BROKEN ") };
        let rate = u128::from(progress.executions) * 1000 / took.as_millis().max(1);
        println!(
            "{target:<10}  {outcome}  {:>10}  {rate:>9}  {:>8}  {:>10}",
            progress.executions, progress.coverage, progress.new
        );
    }
}

/// Searches for every injected fault in a copy of the workspace, where all are built in at once. Returns how many were found,
/// and how many there are.
fn search_for_faults(build: &Build) -> Result<(usize, usize), Error> {
    println!("\n{}", paint::bold("injected double fetches, each looked for without a seed"));
    let dir = build.target.with_file_name("fuzz-faults");
    copy::dir(&build.root, &dir)?;
    FAULTS.inject(&build.root, &dir)?;
    let copied = Build { target: dir.join("target"), root: dir };
    copy::built(&build.target, &copied.target)?;
    // Nothing but core: the rest need not be built again.
    copied.build(&[faults::TARGET], &["--no-default-features"])?;
    FAULTS.search_for_each("", |number| faults::search_for(number, &copied))
}

fn print_summary(findings: &[Finding], faults: Option<(usize, usize)>, took: Duration) {
    let executions: u64 = findings.iter().map(|finding| finding.progress.executions).sum();
    let broken = findings.iter().filter(|finding| !finding.passed).count();
    let found = faults.map_or_else(String::new, |(found, tried)| {
        format!("; {found} of {tried} double fetches found")
    });
    println!(
        "\nsummary: {} targets, {executions} executions, {broken} broken{found}; {}",
        findings.len(),
        seconds(took)
    );
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
