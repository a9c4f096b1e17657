//! Runs the scripts, several at a time.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::output::Output;
use super::report::{Notes, Outcome, Report, seconds};
use super::{JOBS, Job, Plan};
use crate::error::Error;
use crate::paint;

/// What timeout(1) answers when it had to end its command, and when that took a SIGKILL.
const ENDED_BY_TIMEOUT: [i32; 2] = [124, 137];

/// Runs jobs, each in a thread that waits for it.
pub(super) struct Runner<'a, W> {
    pub(super) root: &'a Path,
    pub(super) deadline: Option<Instant>,
    pub(super) output: Output<W>,
}

impl<W: Write + Send> Runner<'_, W> {
    /// Runs the jobs of `plan` and reports on all of them, in the order of [`JOBS`].
    pub(super) fn run(&self, plan: &Plan) -> Result<Vec<Report>, Error> {
        let mut waiting: Vec<Job> = JOBS.into_iter().filter(|job| plan.names(job)).collect();
        let mut running: Vec<Job> = Vec::new();
        let mut reports: Vec<Report> = Vec::new();
        let mut broken = None;
        let (ended, ends) = mpsc::channel();
        thread::scope(|scope| {
            loop {
                let failed = reports.iter().any(|report| report.outcome.is_failure());
                let stop = broken.is_some() || (failed && !plan.keep_going) || self.is_over();
                while !stop && running.len() < plan.parallel {
                    let Some(index) = next(&waiting, &running) else { break };
                    let job = waiting.remove(index);
                    running.push(job);
                    self.output.begin(job.name);
                    let ended = ended.clone();
                    scope.spawn(move || {
                        let result = self.run_job(job, plan.retry);
                        // The receiver outlives every thread.
                        let _ = ended.send((job, result));
                    });
                }
                if running.is_empty() {
                    break;
                }
                let Ok((job, result)) = ends.recv() else { break };
                running.retain(|other| other.name != job.name);
                match result {
                    Ok(report) => reports.push(report),
                    Err(error) => broken = broken.take().or(Some(error)),
                }
            }
        });
        if let Some(error) = broken {
            return Err(error);
        }
        reports.extend(waiting.into_iter().map(Report::not_run));
        reports.sort_by_key(|report| JOBS.iter().position(|job| job.name == report.job.name));
        Ok(reports)
    }

    /// Runs a job, and once more if it failed and that is asked for.
    fn run_job(&self, job: Job, retry: bool) -> Result<Report, Error> {
        let report = self.run_once(job).and_then(|first| {
            match retry && first.outcome == Outcome::Failed && !self.is_over() {
                false => Ok(first),
                true => Ok(first.retried(self.run_once(job)?)),
            }
        });
        self.output.end(job.name)?;
        report
    }

    /// Runs one script, and passes on what it prints.
    fn run_once(&self, job: Job) -> Result<Report, Error> {
        let start = Instant::now();
        self.title(job, &format!("\n==> {}: {}", job.name, job.about))?;
        let limit = self.time_left();
        let script = self.root.join("ci").join(job.name);
        // One pipe for both, so that they stay in order.
        let (from, to) = io::pipe()?;
        let mut command = self.command(&script, limit);
        command.stdout(to.try_clone()?).stderr(to);
        let mut child = command.spawn().map_err(Error::spawn(&script))?;
        // It holds the pipe open.
        drop(command);
        let notes = self.pass_on(job, from)?;
        let status = child.wait().map_err(Error::wait(&script))?;
        let timed =
            limit.is_some() && status.code().is_some_and(|code| ENDED_BY_TIMEOUT.contains(&code));
        let outcome = match status.success() {
            true => Outcome::Passed,
            false if timed => Outcome::OutOfTime,
            false => Outcome::Failed,
        };
        let took = start.elapsed();
        self.title(job, &format!("<== {}: {outcome}, {}", job.name, seconds(took)))?;
        let (note, tests) = notes.finish();
        Ok(Report { job, outcome, took, note, tests })
    }

    fn command(&self, script: &Path, limit: Option<Duration>) -> Command {
        // timeout(1) ends the script's whole process group, cargo and the tests included.
        let mut command = match limit {
            None => Command::new(script),
            Some(limit) => {
                let mut command = Command::new("timeout");
                command.arg("--kill-after=10").arg(limit.as_secs().max(1).to_string()).arg(script);
                command
            }
        };
        if *paint::IS_ON {
            // The script's output goes through this program: cargo cannot see the terminal by itself.
            command.env("CARGO_TERM_COLOR", "always");
        }
        command.current_dir(self.root).stdin(Stdio::null());
        command
    }

    fn title(&self, job: Job, text: &str) -> io::Result<()> {
        self.output.write(job.name, format!("{}\n", paint::bold(text)).as_bytes())
    }

    /// Passes on what a script prints as it comes, up to its end.
    fn pass_on(&self, job: Job, mut from: impl Read) -> Result<Notes, Error> {
        let mut notes = Notes::default();
        let mut buffer = [0; 4096];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => return Ok(notes),
                Ok(read) => buffer.get(..read).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.output.write(job.name, read)?;
            notes.read(read);
        }
    }

    fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn is_over(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }
}

/// The first of the waiting jobs that may start beside the running ones.
pub(super) fn next(waiting: &[Job], running: &[Job]) -> Option<usize> {
    waiting.iter().position(|job| {
        let waits_for = |other: &Job| job.after.contains(&other.name);
        !waiting.iter().chain(running).any(waits_for)
            && running.iter().all(|other| job.may_run_beside(other))
    })
}
