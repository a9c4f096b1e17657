//! `bellwire provide`: serves this machine's cgroups or processes until stopped.

pub(crate) mod args;
mod feed;
mod incidents;
mod lookup;
mod names;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bellwire::{Liveness, RunDir, ServeError, Server, ServiceName, Snapshot};
use bellwire_cgroups::CgroupsSnapshot;

use crate::args::Subject;
use crate::config;
use crate::exit::{Exit, Failure, chain};
use crate::out::{FAINT, GOOD, WARN, count, span};
use crate::stop::Stop;
use args::Provide;
use bellwire_cgroups::scan::Scanner;
pub(crate) use feed::{Feed, FeedError, FeedUpdate, Source};
use incidents::Incidents;
use names::{Names, Patterns, Spec};

pub(crate) fn run(run_dir: &RunDir, args: &Provide) -> Result<Exit, Failure> {
    match args.subject {
        Subject::Cgroups => cgroups(run_dir, args),
        Subject::CgroupsLookup => lookup::cgroups(run_dir, args),
        Subject::Apps => lookup::apps(run_dir, args),
    }
}

/// How long a provider waits for the first names.
const FIRST_NAMES_TIMEOUT: Duration = Duration::from_secs(1);

fn cgroups(run_dir: &RunDir, args: &Provide) -> Result<Exit, Failure> {
    let names = Names::of(args)?;
    let stop = Stop::of_provider()?;
    let mut builder = Server::builder_with_config(run_dir, config::provider(args));
    let incidents = Incidents::print(&mut builder);
    let publisher =
        builder.publish::<CgroupsSnapshot>().map_err(|error| unserved(run_dir, &error))?;
    let source = Source::of(args);
    let is_synthetic = matches!(source, Source::Synthetic { .. });
    let mut feed = Feed::new(source, publisher).with_names(names);
    // The first client shall find a snapshot, with names if their sources are fast.
    let mut first = feed.step().map_err(|error| no_feed(&error))?;
    if feed.wait_for_names(FIRST_NAMES_TIMEOUT) {
        first = feed.step().map_err(|error| no_feed(&error))?.or(first);
    }
    let server = builder.start().map_err(|error| unserved(run_dir, &error))?;
    announce(run_dir, args, is_synthetic, first.as_ref());
    follow(&mut feed, args, &stop);
    let stats = server.stop();
    incidents.finish();
    let (clients, answered) = (stats.admitted, stats.answered);
    log(format_args!("stopped: {clients} sessions served, {answered} snapshots passed"));
    Ok(Exit::Ok)
}

/// Scans at every interval and publishes changes, until stopped.
fn follow(feed: &mut Feed, args: &Provide, stop: &Stop) {
    let mut due = Instant::now() + args.interval;
    let mut failing: Option<String> = None;
    while !stop.sleep_until(due) {
        match feed.step() {
            Ok(update) => {
                if failing.take().is_some() {
                    log(format_args!("{GOOD}scanning again{GOOD:#}"));
                }
                if let Some(FeedUpdate { generation, cgroups, bytes, took, .. }) =
                    update.filter(|_| args.verbose)
                {
                    let (bytes, took) = (count(bytes as u64), span(took));
                    log(format_args!(
                        "generation {generation}: {cgroups} cgroups, {bytes} bytes, {FAINT}scanned and published in {took}{FAINT:#}"
                    ));
                }
            }
            Err(error) => {
                let why = chain(&error);
                // Report each new reason once, not once a second.
                if failing.as_ref() != Some(&why) {
                    log(format_args!("{WARN}the last snapshot stays{WARN:#}: {why}"));
                    failing = Some(why);
                }
            }
        }
        // Skip intervals missed by a long scan.
        due = (due + args.interval).max(Instant::now());
    }
}

/// Explains why a name could not be taken, and who holds it, if known.
pub(crate) fn unserved(run_dir: &RunDir, error: &ServeError) -> Failure {
    let failure = |exit| Failure::new(exit, chain(error));
    match error {
        ServeError::Taken { service } => {
            let dir = run_dir.path().display();
            let (who, stop) = match holder(run_dir, *service) {
                Some(pid) => (format!("process {pid}"), format!("stop it (kill {pid})")),
                None => ("another process".into(), "stop it".into()),
            };
            Failure::new(Exit::Taken, format!("{who} provides {service} in {dir} already"))
                .next(format!("{stop}, or use another --run-dir"))
        }
        ServeError::Endpoint { .. } => failure(Exit::Failed)
            .next("name a directory of your own with --run-dir DIR, or accept one of a group with --group-run-dir"),
        _ => failure(Exit::Failed).next("`bellwire doctor` shows what this machine lacks"),
    }
}

fn holder(run_dir: &RunDir, service: ServiceName) -> Option<u32> {
    let endpoints = run_dir.endpoints().ok()?;
    let endpoint = endpoints.into_iter().find(|endpoint| endpoint.service == service)?;
    match endpoint.liveness {
        Liveness::Alive(pid) => pid,
        _ => None,
    }
}

fn no_feed(error: &FeedError) -> Failure {
    Failure::of(Exit::Failed, "nothing to provide", error)
        .next("name the mount point of the cgroup hierarchies with --root DIR")
}

/// Returns the address to which clients connect.
fn place(run_dir: &RunDir, service: &str) -> String {
    let endpoints = run_dir.endpoints().unwrap_or_default();
    let own = endpoints.iter().find(|one| one.service.as_str() == service);
    own.map_or_else(|| run_dir.path().display().to_string(), |own| own.address.clone())
}

/// Tells the operator what is provided, and what the first scan found.
fn announce(run_dir: &RunDir, args: &Provide, is_synthetic: bool, first: Option<&FeedUpdate>) {
    let (cgroups, mode) = first.map_or((0, "?"), |update| (update.cgroups, update.mode.as_str()));
    let what = if is_synthetic {
        format!("{cgroups} synthetic cgroups, which do not change")
    } else {
        let root = args.root.as_deref().unwrap_or(Path::new(Scanner::ROOT)).display();
        format!("{cgroups} cgroups of {root} ({mode}), scanned every {}", span(args.interval))
    };
    let name = CgroupsSnapshot::NAME;
    let place = place(run_dir, name);
    log(format_args!("{GOOD}providing{GOOD:#} {name} at {place}: {what}"));
    if is_synthetic && args.synthetic.is_none() {
        log(format_args!("{WARN}synthetic{WARN:#}: this system has no cgroups"));
    }
    if let Some(skipped) = first.map(|update| update.skipped).filter(|skipped| *skipped > 0) {
        log(format_args!("{WARN}incomplete{WARN:#}: {skipped} directories could not be read"));
    }
}

/// Writes a message to the operator on stderr.
fn log(what: std::fmt::Arguments<'_>) {
    // An operator who closed stderr does not want messages.
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}
