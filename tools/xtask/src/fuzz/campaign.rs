//! Runs the programs, several at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::report::Progress;
use crate::error::Error;

/// One target's run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) target: String,
    pub(super) program: PathBuf,
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

enum Message {
    Progress(String, Progress, Duration),
    Over(Result<Finding, Error>),
}

/// How often a campaign reports progress.
const TELL: Duration = Duration::from_secs(5);

/// Runs all of them, `jobs` at a time; the findings come as the runs end.
pub(super) fn run_all(
    runs: &[Run],
    jobs: usize,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Vec<Finding>, Error> {
    let queue = Mutex::new(runs.iter());
    let (send, receive) = mpsc::channel();
    let mut findings = Vec::new();
    let mut going_on = BTreeMap::new();
    let mut told = Instant::now();
    thread::scope(|scope| {
        for _ in 0..jobs.min(runs.len()) {
            let (send, queue) = (send.clone(), &queue);
            scope.spawn(move || {
                while let Some(run) =
                    { queue.lock().unwrap_or_else(PoisonError::into_inner).next() }
                {
                    let tell = |progress: &Progress, took| {
                        let name = run.target.clone();
                        // The receiver is gone when another run could not be started.
                        let _ = send.send(Message::Progress(name, progress.clone(), took));
                    };
                    let finding = self::run(run, tell);
                    if send.send(Message::Over(finding)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for message in receive {
            match message {
                Message::Progress(target, progress, took) => {
                    going_on.insert(target, (progress, took));
                    if told.elapsed() >= TELL {
                        tell(Event::Progress(&going_on));
                        told = Instant::now();
                    }
                }
                Message::Over(finding) => {
                    let finding = finding?;
                    going_on.remove(&finding.target);
                    tell(Event::Over(&finding));
                    findings.push(finding);
                }
            }
        }
        Ok(findings)
    })
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
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}
