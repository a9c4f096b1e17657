//! The messages from the soak's processes: one JSON object a line, on standard output. The processes end in order when their
//! standard input does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bellwire::{CallError, Executed, RunDir, Service};
use bellwire_cli::exit::Failure;
use bellwire_cli::out;
use bellwire_process::at_end_of_input;
use serde::{Deserialize, Serialize};

/// How often a process reports its counters.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// The service of both providers, each in a run dir of its own.
#[derive(Debug, Service)]
#[service(name = "soak", request = Vec<u8>, response = Vec<u8>)]
pub(super) struct Echo;

/// Returns the run dir of the provider that gets no faults, or of the one that is killed, stopped and restarted.
pub(super) fn run_dir(dir: &Path, steady: bool) -> RunDir {
    RunDir::new(dir.join(if steady { "steady" } else { "faulted" }))
}

/// A message from a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ChildMessage {
    /// It provides, or begins to call.
    Ready,
    /// A consumer's counters so far.
    ConsumerCalls(ConsumerCalls),
    /// A provider's counters so far.
    Served(Served),
    /// Its last report is final: it ends now.
    Done,
}

/// Reports that this process is ready, and then its counters, until its standard input ends.
pub(super) fn report(counters: impl Fn() -> ChildMessage) -> Result<(), Failure> {
    out::json_line(&ChildMessage::Ready)?;
    let (ended, end) = mpsc::channel::<()>();
    at_end_of_input(move || drop(ended));
    while end.recv_timeout(REPORT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        out::json_line(&counters())?;
    }
    Ok(())
}

/// A consumer's calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ConsumerCalls {
    pub(super) steady: CallCounts,
    pub(super) faulted: CallCounts,
}

/// Calls of one service. `made = answered + wrong + refused + failed + in_flight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallCounts {
    pub(super) made: u64,
    /// Answered correctly.
    pub(super) answered: u64,
    /// Answered with anything else.
    pub(super) wrong: u64,
    /// Failed, and the request was not executed.
    pub(super) refused: u64,
    /// Failed, and the request may have been executed.
    pub(super) failed: u64,
    pub(super) in_flight: u64,
    /// The refused and the failed calls, by reason.
    pub(super) reasons: BTreeMap<String, u64>,
    /// How often lanes grew.
    pub(super) grown: u64,
    /// How often lanes shrank.
    pub(super) shrunk: u64,
    /// Sessions that ended, or were left, with a `made` that differs from the sum.
    pub(super) miscounted: u64,
}

/// A provider's work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Served {
    pub(super) sessions: u64,
    pub(super) admitted: u64,
    pub(super) accepted: u64,
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) lost: u64,
    pub(super) poisoned: u64,
    /// Sessions closed because their client took nothing.
    pub(super) stalled: u64,
    /// Requests that arrived damaged.
    pub(super) damaged: u64,
    /// Requests whose number had arrived before, or after a later one of the same thread.
    pub(super) repeated: u64,
    /// How often the handler ran, by consumer.
    pub(super) runs: BTreeMap<u64, u64>,
}

impl CallCounts {
    pub(super) fn is_sound(&self) -> bool {
        let Self { answered, wrong, refused, failed, in_flight, .. } = self;
        self.made == answered + wrong + refused + failed + in_flight
    }

    pub(super) fn fail(&mut self, error: &CallError) {
        match error.executed() {
            Executed::No => self.refused += 1,
            Executed::Maybe => self.failed += 1,
        }
        self.give_reason(error);
    }

    pub(super) fn give_reason(&mut self, error: &CallError) {
        *self.reasons.entry(format!("{:?}", error.kind())).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.made, other.made),
            (&mut self.answered, other.answered),
            (&mut self.wrong, other.wrong),
            (&mut self.refused, other.refused),
            (&mut self.failed, other.failed),
            (&mut self.in_flight, other.in_flight),
            (&mut self.grown, other.grown),
            (&mut self.shrunk, other.shrunk),
            (&mut self.miscounted, other.miscounted),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }
}

impl ConsumerCalls {
    pub(super) fn add(&mut self, other: &Self) {
        self.steady.add(&other.steady);
        self.faulted.add(&other.faulted);
    }

    pub(super) fn total(&self) -> CallCounts {
        let mut total = self.steady.clone();
        total.add(&self.faulted);
        total
    }
}

impl Served {
    /// Returns whether the figures of a stopped server add up.
    pub(super) fn reconciles(&self) -> bool {
        self.accepted == self.answered + self.refused + self.lost
    }
}

/// A defect that a test injects, to see that the soak finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Defect {
    /// The steady provider's handler leaks a descriptor now and then.
    Descriptor,
    /// … a thread.
    Thread,
    /// … a mapped memfd.
    Memfd,
    /// … memory.
    Memory,
    /// … answers with a byte that it changed.
    WrongAnswer,
    /// The steady consumer forgets how one call ended.
    LostCall,
    /// The steady consumer sends one request twice.
    RunTwice,
    /// The soak counts kills that it does not do, and does them not.
    NoKill,
}
