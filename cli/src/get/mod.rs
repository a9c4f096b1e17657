//! `bellwire get`: prints a provider's snapshot, once or at every change, or its answers to look-ups.

mod any;
pub(crate) mod args;
mod changes;
mod lookup;
mod print;
mod selection;
mod watch;

use std::time::{Duration, Instant};

use bellwire::{
    ErrorKind, ProviderState, RefreshError, Refreshed, RunDir, Snapshot, SnapshotCache,
};
use bellwire_cgroups::CgroupsSnapshot;

use crate::args::{Args, Subject};
use crate::config;
use crate::exit::{Exit, Failure, chain};
use crate::stop::Stop;
use args::{Get, Published};
use selection::Selection;

type Cache = SnapshotCache<CgroupsSnapshot>;

/// How long `get` without `--watch` waits.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(run_dir: &RunDir, args: &Get) -> Result<Exit, Failure> {
    match args.subject {
        Published::Known(Subject::Cgroups) => snapshot(run_dir, args),
        Published::Known(Subject::CgroupsLookup) => lookup::cgroups(run_dir, args),
        Published::Known(Subject::Apps) => lookup::apps(run_dir, args),
        Published::By(service) => any::snapshot(run_dir, service, args),
    }
}

fn snapshot(run_dir: &RunDir, args: &Get) -> Result<Exit, Failure> {
    if !args.keys.is_empty() {
        Args::refuse(
            "cgroups are printed all together: --filter TEXT selects, and cgroups-lookup takes paths",
        );
    }
    let selection = Selection::new(args.filter.as_deref(), &args.orchestrator);
    let mut cache = Cache::with_config(run_dir, config::client());
    if args.watch {
        let stop = Stop::on_signals()?;
        return watch::run(&mut cache, run_dir, args, &selection, &stop);
    }
    let timeout = args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    if !wait_for_first(&mut cache, timeout)? {
        return Err(nothing(cache.state(), CgroupsSnapshot::NAME, run_dir, timeout));
    }
    if let Some(current) = cache.current() {
        print::snapshot(current, &selection, args.output.format(), None)?;
    }
    Ok(Exit::Ok)
}

/// Waits for a snapshot, at most for `timeout`. A permanent failure ends the wait immediately.
fn wait_for_first<T: Snapshot>(
    cache: &mut SnapshotCache<T>,
    timeout: Duration,
) -> Result<bool, Failure> {
    let begun = Instant::now();
    let mut found = cache.refresh_within(timeout).map_err(|error| unfetched(&error))?;
    let refused =
        matches!(cache.state(), ProviderState::Refused { .. } | ProviderState::Incompatible { .. });
    if found != Refreshed::Changed && !refused {
        let left = timeout.saturating_sub(begun.elapsed());
        found = cache.wait_for_change(Some(left)).map_err(|error| unfetched(&error))?;
    }
    Ok(found == Refreshed::Changed)
}

fn unfetched<E: std::error::Error>(error: &RefreshError<E>) -> Failure {
    match error {
        RefreshError::Call(error) => Failure::of_kind(error.kind(), chain(error)),
        error => Failure::new(Exit::Provider, chain(error))
            .next("the provider and this command differ: upgrade the older of the two"),
    }
}

/// Explains why there is no snapshot to print.
fn nothing(state: ProviderState, name: &str, run_dir: &RunDir, waited: Duration) -> Failure {
    let dir = run_dir.path().display();
    let waited = crate::out::span(waited);
    match state {
        ProviderState::Refused { code, reason } => Failure::new(
            Exit::Refused,
            format!("the provider of {name} refused ({code:?}): {reason}"),
        ),
        ProviderState::Incompatible { ours, theirs } => Failure::new(
            Exit::Refused,
            format!(
                "the provider of {name} speaks protocol versions {}-{}, this command {}-{}",
                theirs.min, theirs.max, ours.min, ours.max
            ),
        )
        .next("upgrade the older of the two"),
        ProviderState::Failed { kind, reason } => {
            Failure::of_kind(kind, format!("no session with the provider of {name}: {reason}"))
        }
        ProviderState::Connecting | ProviderState::Unresponsive { .. } => Failure::of_kind(
            ErrorKind::Deadline,
            format!("the provider of {name} has not answered in {waited}"),
        ),
        ProviderState::Ready => Failure::new(
            Exit::Deadline,
            format!("the provider of {name} has published nothing in {waited}"),
        )
        .next("wait longer with --timeout 10s"),
        _ => {
            Failure::new(Exit::Absent, format!("nobody provides {name} in {dir} (waited {waited})"))
                .next(match name {
            CgroupsSnapshot::NAME => {
                "start `bellwire provide cgroups` with the same --run-dir, or check with `bellwire ls`"
            }
            _ => "start its provider with the same --run-dir, or check with `bellwire ls`",
        })
        }
    }
}
