//! The surviving peers: one process is the client of all victims, the other their server. They execute commands, and
//! report their state after each kill.

mod caller;
mod provider;

use std::thread;
use std::time::{Duration, Instant};

use bellwire::RunDir;

use crate::channel::{Channel, Command, QuiescentState, Response};
use crate::error::Result;
use crate::resources::ResourceSnapshot;

/// How long a survivor sleeps between two polls of its state.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// How long the resources must be unchanged to become the baseline.
const STABLE_TIME: Duration = Duration::from_millis(50);

/// What differs between the two survivors.
pub(crate) trait Survivor {
    /// Executes a command other than [`Command::Quiesce`].
    fn execute(&mut self, command: &Command) -> Response;
    /// Checks its state without a peer. Returns what is wrong; empty if nothing is.
    fn problem(&mut self) -> String;
    /// Takes the numbers of the requests that the handler, if there is one, ran since the last call.
    fn take_ran(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

/// Runs the client of the victims in `run_dir`.
pub(crate) fn run_caller(run_dir: &RunDir, channel: Channel, timeout: Duration) -> Result<()> {
    serve_commands(caller::Caller::new(run_dir), channel, timeout)
}

/// Runs the server of the victims in `run_dir`.
pub(crate) fn run_provider(run_dir: &RunDir, channel: Channel, timeout: Duration) -> Result<()> {
    serve_commands(provider::Provider::new(run_dir)?, channel, timeout)
}

fn serve_commands(
    mut survivor: impl Survivor,
    mut channel: Channel,
    timeout: Duration,
) -> Result<()> {
    let mut baseline = None;
    while let Some(command) = channel.receive()? {
        let response = match command {
            Command::Quiesce => quiesce(&mut survivor, &mut baseline, timeout),
            command => survivor.execute(&command),
        };
        channel.send(&response)?;
    }
    Ok(())
}

/// Polls until nothing is wrong and nothing is leaked, or until `timeout`. The first call records the baseline.
fn quiesce(
    survivor: &mut impl Survivor,
    baseline: &mut Option<ResourceSnapshot>,
    timeout: Duration,
) -> Response {
    let start = Instant::now();
    let mut state = QuiescentState::default();
    loop {
        state.problem = survivor.problem();
        if state.problem.is_empty() {
            let resources = baseline.get_or_insert_with(stable_resources);
            state.leaked = ResourceSnapshot::take().difference(resources);
        }
        if state.problem.is_empty() && state.leaked.is_empty() || start.elapsed() > timeout {
            state.ran = survivor.take_ran();
            return Response::Quiescent(Box::new(state));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Takes a snapshot of the resources once they have been unchanged for [`STABLE_TIME`].
fn stable_resources() -> ResourceSnapshot {
    let mut resources = ResourceSnapshot::take();
    let mut since = Instant::now();
    while since.elapsed() < STABLE_TIME {
        thread::sleep(POLL_INTERVAL);
        let now = ResourceSnapshot::take();
        if now != resources {
            (resources, since) = (now, Instant::now());
        }
    }
    resources
}
