//! The peers that die. Each is a copy of this process, made for one point, and runs one scenario over the public
//! library. Signals that it sends to itself stop it under its tracer: at the gate, from which on it is watched, and at
//! the end.

mod caller;
mod provider;

use std::ops::Range;
use std::os::fd::OwnedFd;

use bellwire::RunDir;
use bellwire_core::sync::{AtomicU64, Ordering};
use nix::sys::signal::{Signal, raise};

use crate::phase::{Scenario, Side};

/// What a victim is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    pub(crate) side: Side,
    pub(crate) scenario: Scenario,
    /// Its messages carry this number and a few next ones.
    pub(crate) number: u64,
    /// The survivor's handler is to hold its request.
    pub(crate) hold: bool,
}

impl Orders {
    /// The numbers of the requests after the gate.
    pub(crate) fn requests(self) -> Range<u64> {
        let first = self.number + 3;
        first..first + self.scenario.requests()
    }

    /// The numbers of the snapshot that the survivor has, and of the next one.
    pub(crate) fn sheets(self) -> [u64; 2] {
        [1, 2].map(|next| self.number + next)
    }
}

/// Stops a victim where it is watched from.
pub(crate) const GATE: Signal = Signal::SIGUSR1;
/// Stops it when all is done.
pub(crate) const END: Signal = Signal::SIGUSR2;

/// What a victim's handler ran last. Its tracer reads it at the same address, which a copy of a process keeps.
pub(crate) static RAN: AtomicU64 = AtomicU64::new(0);

/// Runs in the victim, when `go` says that it is traced. An error ends it, and its tracer notices.
pub(crate) fn run(orders: Orders, run_dir: &RunDir, go: &OwnedFd) {
    let mut byte = [0];
    let _ = nix::unistd::read(go, &mut byte);
    RAN.store(0, Ordering::Relaxed);
    let done = match orders.side {
        Side::Client => caller::run(orders, run_dir),
        Side::Server => provider::run(orders, run_dir),
    };
    if let Err(what) = done {
        eprintln!("a victim could not do its part of {:?}: {what}", orders.scenario);
        std::process::exit(1);
    }
}

fn stop(signal: Signal) {
    let _ = raise(signal);
}
