//! Runs the programs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::report::Progress;
use crate::error::Error;

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

/// Runs one program.
pub(super) fn run(run: &Run) -> Result<Finding, Error> {
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
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(Error::file("read what is printed by", &run.program))?;
            log.write_all(&line)
                .and_then(|()| log.write_all(b"\n"))
                .map_err(Error::file("write", &run.log))?;
            progress.read(&String::from_utf8_lossy(&line));
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
