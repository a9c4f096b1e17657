//! The peers that live: one process that calls, one that provides. They execute commands, see many victims die, and
//! report what is left.

mod caller;
mod provider;

use std::thread;
use std::time::{Duration, Instant};

use bellwire::RunDir;

use crate::error::Result;
use crate::line::{Ask, Line, Told};
use crate::resources::ResourceSnapshot;

/// How long a survivor waits between two looks.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// How long nothing may change before the current holdings count as the base.
const STILL: Duration = Duration::from_millis(50);

/// A survivor's own part.
pub(crate) trait Part {
    /// Executes a command, except settling.
    fn act(&mut self, ask: &Ask) -> Told;
    /// What is wrong without a peer; empty if nothing.
    fn wrong(&mut self) -> String;
    /// What the handler ran since the last time.
    fn ran(&mut self) -> Vec<u64>;
}

/// Lives as the client of victims in `run_dir`.
pub(crate) fn call(run_dir: &RunDir, line: Line, patience: Duration) -> Result<()> {
    live(caller::Caller::new(run_dir), line, patience)
}

/// Lives as the server of victims in `run_dir`.
pub(crate) fn provide(run_dir: &RunDir, line: Line, patience: Duration) -> Result<()> {
    live(provider::Provider::new(run_dir)?, line, patience)
}

fn live(mut part: impl Part, mut line: Line, patience: Duration) -> Result<()> {
    let mut base = None;
    while let Some(ask) = line.hear()? {
        let told = match ask {
            Ask::Settle => settle(&mut part, &mut base, patience),
            ask => part.act(&ask),
        };
        line.say(&told)?;
    }
    Ok(())
}

/// Polls until nothing is wrong and nothing is left, or for `patience`. What is left the first time is the base.
fn settle(part: &mut impl Part, base: &mut Option<ResourceSnapshot>, patience: Duration) -> Told {
    let start = Instant::now();
    let mut settled = crate::line::Settled::default();
    loop {
        settled.wrong = part.wrong();
        if settled.wrong.is_empty() {
            let resources = base.get_or_insert_with(still);
            settled.left = ResourceSnapshot::take().difference(resources);
        }
        if settled.wrong.is_empty() && settled.left.is_empty() || start.elapsed() > patience {
            settled.ran = part.ran();
            return Told::Settled(Box::new(settled));
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// What is held when nothing has changed for a while.
fn still() -> ResourceSnapshot {
    let mut resources = ResourceSnapshot::take();
    let mut since = Instant::now();
    while since.elapsed() < STILL {
        thread::sleep(LOOK_AGAIN);
        let now = ResourceSnapshot::take();
        if now != resources {
            (resources, since) = (now, Instant::now());
        }
    }
    resources
}
