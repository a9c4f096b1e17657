//! `bellwire bench reactor`: the cost of a server by the mechanism with which it waits.

pub(crate) mod load;
mod protocol;
mod report;
pub(crate) mod server;
mod tally;
mod testbed;

use std::io::{IsTerminal, Write};
use std::num::NonZero;

use bellwire_cli::private_run_dir;
use bellwire_process as process;
use bellwire_process::scratch::{self, Owned};

use super::args::{Reactor, Subject};
use crate::exit::{Exit, Failure};
use crate::out::rate;
use crate::stop::Stop;
use protocol::Load;
use report::Report;
use tally::{Row, Sample};
use testbed::Testbed;

/// Paced loads up to this many calls a second in all are always measured; larger ones only if the machine can reach them.
const MOST_PACED: u64 = 200_000;
/// The prefix of its directories' names.
const PREFIX: &str = "bellwire-bench-";

pub(crate) fn run(args: &Reactor) -> Result<Exit, Failure> {
    if !process::IS_POSSIBLE {
        let what = "processes cannot be observed on this system";
        return Err(Failure::new(Exit::Failed, what).next("run the benchmark on Linux"));
    }
    let stop = Stop::on_signals()?;
    let mut report = Report::new(args);
    for &sessions in &args.sessions {
        let why = match rows(args, sessions, &stop, &mut report) {
            Ok(()) => stop.requested(),
            Err(failure) => match stop.requested() {
                Some(why) => Some(why),
                None => return Err(failure),
            },
        };
        if let Some(why) = why {
            erase_progress();
            return Ok(why.exit());
        }
    }
    erase_progress();
    report.print()?;
    Ok(Exit::Ok)
}

/// Measures everything with one number of sessions.
fn rows(args: &Reactor, sessions: u32, stop: &Stop, report: &mut Report) -> Result<(), Failure> {
    let (dir, _owned) = private_dir()?;
    let mut testbeds = Vec::new();
    for subject in [Subject::Epoll, Subject::IoUring, Subject::Seqpacket] {
        progress(&format!("{sessions} sessions: {} begins", subject.as_str()));
        if stop.requested().is_some() {
            return Ok(());
        }
        match Testbed::set(subject, sessions, args, dir.path())? {
            Ok(testbed) => testbeds.push(testbed),
            Err(why) => report.note(format!("{} is left out: {why}", subject.as_str())),
        }
    }
    for testbed in &testbeds {
        if let Some(short) = testbed.short() {
            report.note(format!("{}: {short}", testbed.subject.as_str()));
        }
    }
    let Some(closed) = row(&mut testbeds, Load::Closed, args, sessions, stop)? else {
        return Ok(());
    };
    let most = closed.most_calls();
    report.add(closed);
    let (paced, wanted) =
        (Load::Paced { rate: args.rate }, u64::from(sessions) * u64::from(args.rate));
    if let Some(why) = out_of_reach(wanted, most) {
        report.note(format!("{sessions} sessions, {paced}, is left out: {why}"));
    } else if let Some(row) = row(&mut testbeds, paced, args, sessions, stop)? {
        report.add(row);
    }
    Ok(())
}

/// Returns why a paced load cannot be reached, if one call after the other yields at most `most`.
#[allow(clippy::cast_precision_loss, reason = "a rate with three digits")]
fn out_of_reach(wanted: u64, most: f64) -> Option<String> {
    let wanted = (wanted > MOST_PACED && wanted as f64 > most).then_some(wanted as f64)?;
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    Some(format!(
        "{} calls/s are wanted in all, and calls without a pause reach at most {} with {processors} processors; \
         late calls would measure the queue, not a call",
        rate(wanted),
        rate(most),
    ))
}

/// Measures all rounds with one load; returns `None` if the run was stopped.
fn row(
    testbeds: &mut [Testbed],
    load: Load,
    args: &Reactor,
    sessions: u32,
    stop: &Stop,
) -> Result<Option<Row>, Failure> {
    let mut row = Row::new(sessions, load, testbeds.iter().map(|testbed| testbed.subject));
    for round in 0..args.rounds {
        progress(&format!("{sessions} sessions, {load}: round {} of {}", round + 1, args.rounds));
        let samples = one_round(testbeds, load, args, round)?;
        if stop.requested().is_some() {
            return Ok(None);
        }
        row.add(samples);
    }
    Ok(Some(row))
}

/// Measures each server once; each round begins with another one.
fn one_round(
    testbeds: &mut [Testbed],
    load: Load,
    args: &Reactor,
    round: u32,
) -> Result<Vec<Sample>, Failure> {
    let mut samples = vec![Sample::default(); testbeds.len()];
    let first = usize::try_from(round).unwrap_or(0);
    for turn in 0..testbeds.len() {
        let at = (first + turn) % testbeds.len();
        if let (Some(testbed), Some(sample)) = (testbeds.get_mut(at), samples.get_mut(at)) {
            *sample = testbed.measure(load, args.window)?;
        }
    }
    Ok(samples)
}

/// Shows progress if standard error is a terminal.
fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}");
        let _ = stderr.flush();
    }
}

fn erase_progress() {
    progress("");
}

/// A run dir for this benchmark alone, mode 0700.
///
/// It is removed when the returned value is dropped. Directories of earlier killed runs are removed now.
fn private_dir() -> Result<(tempfile::TempDir, Owned), Failure> {
    loop {
        let dir = private_run_dir(PREFIX)?;
        let owned = scratch::own(dir.path());
        let failed = |error| {
            Failure::of(Exit::Failed, "cannot create a private run dir", &error)
                .next("name a writable directory in TMPDIR")
        };
        if let Some(owned) = owned.map_err(failed)? {
            dir.path().parent().into_iter().for_each(|parent| scratch::sweep(parent, PREFIX));
            return Ok((dir, owned));
        }
    }
}
