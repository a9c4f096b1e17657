//! `bellwire ping`: measures how soon a service answers.

pub(crate) mod args;
mod call;
mod tally;

use std::io::Write;
use std::time::{Duration, Instant};

use bellwire::{Backoff, ClientConfig, ConnectError, RefuseCode, RunDir, probe};
use serde_json::json;

use crate::config;
use crate::exit::{Exit, Failure};
use crate::out::{self, FAINT, span};
use crate::stop::Stop;
use args::Ping;
pub(crate) use call::version_of;
use tally::Tally;

/// The result of one try.
struct Pong {
    took: Duration,
    /// The kind of answer, in a word.
    word: &'static str,
    /// Further remarks.
    note: String,
}

/// How to measure a service.
struct Way<'a> {
    /// Describes it.
    what: String,
    /// What is counted.
    unit: &'static str,
    once: Box<dyn FnMut() -> Result<Pong, Failure> + 'a>,
}

pub(crate) fn run(run_dir: &RunDir, args: &Ping) -> Result<Exit, Failure> {
    let stop = Stop::on_signals()?;
    let config = config::client()
        .timeout(args.timeout)
        .connect_timeout(args.timeout)
        // Each ping is a separate try.
        .backoff(Backoff::default().initial(Duration::ZERO).max(Duration::ZERO));
    let calls = match args.service_version {
        Some(_) => None,
        None => call::known(args.service, run_dir, &config),
    };
    let mut way = calls.unwrap_or_else(|| handshakes(run_dir, args, &config));
    if !args.output.is_json() {
        print(&format!("PING {} in {}: {}", args.service, run_dir.path().display(), way.what))?;
    }
    let mut tally = Tally::new();
    let mut note = String::new();
    let begun = Instant::now();
    let mut due = begun;
    while args.count == 0 || tally.tried() < args.count {
        if stop.sleep_until(due) {
            break;
        }
        due = (due + args.interval).max(Instant::now());
        let tried = (way.once)();
        let number = tally.add(tried.as_ref());
        if args.output.is_json() {
            print(&for_programs(number, &tried))?;
        } else {
            report(number, &tried, &mut note)?;
        }
        if let Err(failure) = tried {
            tally.keep(failure);
        }
    }
    if !args.output.is_json() {
        print(&tally.summary(args.service, way.unit, begun.elapsed()))?;
    }
    tally.verdict()
}

/// Returns a line of JSON for one try.
fn for_programs(number: u64, tried: &Result<Pong, Failure>) -> String {
    match tried {
        Ok(pong) => {
            let nanos = u64::try_from(pong.took.as_nanos()).unwrap_or(u64::MAX);
            let note = format!("{}{}", pong.word, pong.note);
            json!({ "try": number, "nanos": nanos, "note": note.trim() }).to_string()
        }
        Err(failure) => json!({ "try": number, "error": failure.to_string() }).to_string(),
    }
}

/// Prints one line for one try. The same note is not printed twice in a row.
fn report(
    number: u64,
    tried: &Result<Pong, Failure>,
    last_note: &mut String,
) -> Result<(), Failure> {
    match tried {
        Ok(Pong { took, word, note }) => {
            let new_note = if note == last_note { "" } else { note };
            print(&format!("{number}: {}{word}{FAINT}{new_note}{FAINT:#}", span(*took)))?;
            last_note.clone_from(note);
            Ok(())
        }
        Err(failure) => print(&format!("{number}: no answer: {failure}")),
    }
}

/// Measures one handshake per try.
fn handshakes<'a>(run_dir: &'a RunDir, args: &'a Ping, config: &'a ClientConfig) -> Way<'a> {
    let version = args.service_version.unwrap_or_else(|| version_of(args.service));
    let what =
        format!("one handshake each (connect, HELLO, WELCOME, JOIN, READY), version {version}");
    let once = move || handshake(run_dir, args, version, config);
    Way { what, unit: "handshakes", once: Box::new(once) }
}

fn handshake(
    run_dir: &RunDir,
    args: &Ping,
    version: u32,
    config: &ClientConfig,
) -> Result<Pong, Failure> {
    let probe = probe(run_dir, args.service, version, config)
        .map_err(|error| unanswered(run_dir, args, &error))?;
    let by = probe.pid.map_or(String::new(), |pid| format!(" by process {pid}"));
    let (word, note) = match probe.refused {
        None => ("  welcomed", by),
        // The provider serves another version: it is there, and it answered.
        Some((RefuseCode::Service, reason)) => ("  refused", format!("{by}: {reason}")),
        Some((code, reason)) => {
            return Err(Failure::new(Exit::Refused, format!("refused{by} ({code:?}): {reason}")));
        }
    };
    Ok(Pong { took: probe.took, word, note })
}

fn unanswered(run_dir: &RunDir, args: &Ping, error: &ConnectError) -> Failure {
    if !matches!(error, ConnectError::Absent) {
        return error.into();
    }
    let (service, dir) = (args.service, run_dir.path().display());
    Failure::new(Exit::Absent, format!("nobody provides {service} in {dir}"))
        .next("list the providers with `bellwire ls`, or name another --run-dir")
}

fn print(line: &str) -> Result<(), Failure> {
    let mut stdout = out::stdout();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
