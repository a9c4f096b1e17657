//! The peers that are killed. Each is a fork of this process for one point, and runs one scenario over the public library.
//! It raises signals to stop under its tracer: at the gate, after which it is watched, and at the end.

#[cfg(feature = "c")]
mod c;
mod caller;
mod provider;

use std::ops::Range;
use std::os::fd::OwnedFd;

use bellwire::RunDir;
use bellwire_core::sync::{AtomicU64, Ordering};
use nix::sys::signal::{Signal, raise};

use crate::phase::{Language, Scenario, Side};

/// What a victim does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimTask {
    pub(crate) language: Language,
    pub(crate) side: Side,
    pub(crate) scenario: Scenario,
    /// The first of the numbers that its messages carry; the others follow it.
    pub(crate) number: u64,
    /// The survivor's handler holds its request until it is released.
    pub(crate) hold: bool,
}

impl VictimTask {
    /// The numbers of the requests after the gate.
    pub(crate) fn requests(self) -> Range<u64> {
        let first = self.number + 3;
        first..first + self.scenario.requests()
    }

    /// The numbers of the snapshot that the survivor has, and of the next one.
    pub(crate) fn snapshots(self) -> [u64; 2] {
        [1, 2].map(|next| self.number + next)
    }
}

/// Stops a victim at the point after which it is watched.
pub(crate) const GATE: Signal = Signal::SIGUSR1;
/// Stops it at the end of its scenario.
pub(crate) const END: Signal = Signal::SIGUSR2;

/// The number of the last request that a victim's handler ran. The tracer reads it at the same address in the fork.
pub(crate) static RAN: AtomicU64 = AtomicU64::new(0);

/// Runs in the victim, once `go` reports that it is traced. It exits on an error, which its tracer notices.
pub(crate) fn run(task: VictimTask, run_dir: &RunDir, go: &OwnedFd) {
    let mut byte = [0];
    let _ = nix::unistd::read(go, &mut byte);
    RAN.store(0, Ordering::Relaxed);
    let done = match (task.language, task.side) {
        #[cfg(feature = "c")]
        (Language::C, _) => c::run(task, run_dir),
        (_, Side::Client) => caller::run(task, run_dir),
        (_, Side::Server) => provider::run(task, run_dir),
    };
    if let Err(what) = done {
        eprintln!("a victim could not run {:?}: {what}", task.scenario);
        std::process::exit(1);
    }
}

fn stop(signal: Signal) {
    let _ = raise(signal);
}
