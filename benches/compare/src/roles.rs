//! The processes that the coordinator starts: this program again, in a role.

use std::hint::spin_loop;

use bellwire_floor::process::{Child, Peer, Role, RoleResult, spawn};

use crate::Outcome;
use crate::contender::Entry;
use crate::load::Case;
use crate::measure::Measure;

/// The server of a contender.
pub(crate) const SERVER: &str = "server";
/// A measuring process.
pub(crate) const CLIENT: &str = "client";

/// What takes a processor away from the others.
const NEIGHBOR: &str = "neighbor";

/// For [`bellwire_floor::peer_main`].
pub(crate) const ROLES: &[Role] = &[(SERVER, serve), (CLIENT, measure), (NEIGHBOR, compute)];

/// Starts a process that never sleeps, on any processor.
pub(crate) fn neighbor() -> Outcome<Child> {
    Ok(spawn(NEIGHBOR, &[], &[], &[])?)
}

/// Starts a process of `entry` on these processors; none means all.
pub(crate) fn start(
    role: &'static str,
    entry: &Entry,
    case: &Case,
    cpus: &[usize],
) -> Outcome<Child> {
    let args = [entry.name.to_owned(), serde_json::to_string(case)?];
    Ok(spawn(role, cpus, &args, &[])?)
}

fn serve(peer: &mut Peer) -> RoleResult {
    let (entry, case) = started(peer)?;
    (entry.serve)(peer, &case)
}

fn measure(peer: &mut Peer) -> RoleResult {
    let (entry, case) = started(peer)?;
    (entry.measure)(&case, Measure { peer, load: &case.load })
}

fn compute(peer: &mut Peer) -> RoleResult {
    std::thread::spawn(|| {
        loop {
            spin_loop();
        }
    });
    peer.ready()?;
    // Until the bench closes its end: then the process ends, and the thread with it.
    while peer.receive()?.is_some() {}
    Ok(())
}

fn started(peer: &Peer) -> Outcome<(&'static Entry, Case)> {
    let name = peer.arg(0)?;
    let entry = Entry::named(name).ok_or_else(|| format!("no contender is called {name}"))?;
    Ok((entry, serde_json::from_str(peer.arg(1)?)?))
}
