//! Shortages and interruptions of a process: each ends in a typed error, or is not noticed at all, and does no
//! lasting damage.

mod addresses;
mod connects;
mod descriptors;
mod displaced;
mod exec;
mod fork;
mod handlers;
mod memory;
mod quotas;
mod run_dir;
mod signals;
mod watches;

use crate::support::child::Parent;

/// Plays `limits PART`.
pub(crate) fn play(parent: Parent, role: &str) {
    match role.split(' ').nth(1).unwrap() {
        "addresses" => addresses::play(parent),
        "descriptors" => descriptors::play(parent),
        "exec" => exec::play(parent),
        "fork" => fork::play(parent),
        "run-dir" => run_dir::play(parent),
        "signals" => signals::play(parent, role.contains("workers")),
        "watches" => watches::play(parent),
        part => panic!("no such part: {part}"),
    }
}
