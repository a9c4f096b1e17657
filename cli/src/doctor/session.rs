use std::time::Duration;

use bellwire::{Client, Refreshed, RunDir, Server, SnapshotCache};
use bellwire_cgroups::{CgroupsSnapshot, Meta, Mode, encode, synthetic};
use bellwire_doctor::{Check, CheckResult, Finding, Group};

use crate::demo::DemoPing;
use crate::out::span;
use crate::trace;

/// Tries everything together, in a private run dir.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("all together");
    let advice = "the checks above say what is missing; `bellwire demo` shows more";
    group.required("a session and a call", advice, call());
    group.required("a snapshot", advice, snapshot());
    let advice = "only `bellwire trace` needs it: cargo install --path ebpf --locked, then `bellwire trace doctor`";
    group.optional("bellwire-trace", advice, tracer());
    group.into_checks()
}

fn tracer() -> CheckResult {
    trace::PROGRAM.version().map(Finding::ok).ok_or_else(|| "it is not installed".into())
}

fn call() -> CheckResult {
    let dir = tempfile::tempdir()?;
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    builder.serve::<DemoPing>(|_, request| Ok(DemoPing::answer(request)))?;
    let server = builder.start()?;
    let mut client = Client::<DemoPing>::new(&run_dir);
    let begun = std::time::Instant::now();
    client.connect()?;
    let opened = begun.elapsed();
    for byte in 0..=255 {
        if client.call(&[byte; 64])? != DemoPing::answer([byte; 64]) {
            return Err("a wrong answer".into());
        }
    }
    drop(client);
    let stats = server.stop();
    if stats.answered != 256 {
        return Err(format!("the server answered {} of 256 calls", stats.answered).into());
    }
    Ok(Finding::ok(format!("opened in {}, 256 calls answered and verified", span(opened))))
}

fn snapshot() -> CheckResult {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let dir = tempfile::tempdir()?;
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    let publisher = builder.publish::<CgroupsSnapshot>()?;
    let _server = builder.start()?;
    publisher.publish(&encode(&synthetic::entries(100, 1), Meta::now(Mode::V2))?)?;
    let mut cache = SnapshotCache::<CgroupsSnapshot>::new(&run_dir);
    let refreshed = [cache.refresh_within(TIMEOUT)?, cache.refresh()?];
    let held = cache.current().map_or(0, |current| current.index().view().len());
    if refreshed != [Refreshed::Changed, Refreshed::Unchanged] || held != 100 {
        return Err(format!("{refreshed:?} with {held} of 100 items").into());
    }
    Ok(Finding::ok("published, mapped by a reader, validated"))
}
