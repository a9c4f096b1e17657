//! Runs the programs, several at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::report::Progress;
use crate::error::Error;
use crate::queue::{self, lock};

/// One target's run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) target: String,
    pub(super) program: PathBuf,
    /// A variable of its environment.
    pub(super) variable: Option<(&'static str, String)>,
    /// Where new inputs go, then where others are.
    pub(super) corpora: Vec<PathBuf>,
    /// Where libFuzzer stores the input that ends the run.
    pub(super) artifacts: PathBuf,
    /// What libFuzzer prints.
    pub(super) log: PathBuf,
    /// When to stop, and the like.
    pub(super) options: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) target: String,
    pub(super) progress: Progress,
    /// No promise was broken.
    pub(super) passed: bool,
    pub(super) took: Duration,
}

/// What a campaign reports while it runs.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The runs that go on now, and how far each is.
    Progress(&'a BTreeMap<String, (Progress, Duration)>),
    /// A run is over.
    Over(&'a Finding),
}

/// How far a campaign is.
struct State<F> {
    tell: F,
    going_on: BTreeMap<String, (Progress, Duration)>,
    /// When progress was told last.
    told: Instant,
    findings: Vec<Finding>,
}

/// How often a campaign reports progress.
const TELL: Duration = Duration::from_secs(5);

/// Runs all of them, `jobs` at a time; the findings come as the runs end.
pub(super) fn run_all(
    runs: &[Run],
    jobs: usize,
    tell: impl FnMut(Event<'_>) + Send,
) -> Result<Vec<Finding>, Error> {
    let (going_on, told) = (BTreeMap::new(), Instant::now());
    let state = Mutex::new(State { tell, going_on, told, findings: Vec::new() });
    queue::share(jobs.min(runs.len()), runs.iter(), |run| {
        let finding = self::run(run, |progress, took| {
            let state = &mut *lock(&state);
            state.going_on.insert(run.target.clone(), (progress.clone(), took));
            if state.told.elapsed() >= TELL {
                state.told = Instant::now();
                (state.tell)(Event::Progress(&state.going_on));
            }
        })?;
        let state = &mut *lock(&state);
        state.going_on.remove(&finding.target);
        (state.tell)(Event::Over(&finding));
        state.findings.push(finding);
        Ok(())
    })?;
    Ok(state.into_inner().unwrap_or_else(PoisonError::into_inner).findings)
}

/// Runs one program, and reports progress once a second.
pub(super) fn run(run: &Run, mut tell: impl FnMut(&Progress, Duration)) -> Result<Finding, Error> {
    for dir in run.corpora.iter().chain([&run.artifacts]).map(PathBuf::as_path) {
        fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
    }
    if let Some(dir) = run.log.parent() {
        fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
    }
    let mut log = File::create(&run.log).map_err(Error::file("create", &run.log))?;
    let start = Instant::now();
    let mut child = command(run).spawn().map_err(Error::spawn(&run.program))?;
    let mut progress = Progress::default();
    let mut told = start;
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(Error::file("read what is printed by", &run.program))?;
            log.write_all(&line)
                .and_then(|()| log.write_all(b"\n"))
                .map_err(Error::file("write", &run.log))?;
            progress.read(&String::from_utf8_lossy(&line));
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                tell(&progress, start.elapsed());
            }
        }
    }
    let passed = child.wait().map_err(Error::wait(&run.program))?.success();
    Ok(Finding { target: run.target.clone(), progress, passed, took: start.elapsed() })
}

fn command(run: &Run) -> Command {
    let mut command = Command::new(&run.program);
    command
        .arg(format!("-artifact_prefix={}/", run.artifacts.display()))
        .args(["-use_value_profile=1", "-print_final_stats=1"])
        .args(&run.options)
        .args(&run.corpora)
        .env("RUST_BACKTRACE", "0")
        .envs(run.variable.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}
