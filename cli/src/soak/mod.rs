//! `bellwire soak`: providers and consumers that are killed, stopped and restarted, and whose lanes change their sizes.
//!
//! Two processes live all along: a provider and a consumer that nobody harms. Beside them there are a provider and two
//! consumers that come to harm. All consumers call both providers. So the first two show whether others' troubles reach
//! them, and whether anything is left behind.

mod cast;
mod checks;
pub(crate) mod consumer;
mod faults;
mod letter;
mod protocol;
pub(crate) mod provider;
mod random;
mod report;
mod run;
mod trend;

use std::path::Path;
use std::time::Duration;

use bellwire::doctor::trial;
use serde::Serialize;

use crate::args::Soak;
use crate::exit::{Exit, Failure};
use crate::stop::Stop;
pub(crate) use protocol::Plant;
use protocol::Said;
use report::Report;
use run::Run;

/// How often a process tells its books.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Sample {
    descriptors: u64,
    threads: u64,
    /// Different memfds that are mapped, or that there are descriptors of.
    memfds: u64,
    /// Resident memory in bytes, shared memory included.
    rss: u64,
}

impl From<trial::Holdings> for Sample {
    fn from(holdings: trial::Holdings) -> Self {
        let trial::Holdings { descriptors, threads, memfds, rss } = holdings;
        Self { descriptors, threads, memfds, rss }
    }
}

/// What the soak waits for. Processes go by the number that they were given.
#[derive(Debug)]
enum Event {
    Said(u64, Said),
    /// It closed its output.
    Ended(u64),
    /// It is time to stop.
    Stop,
}

pub(crate) fn run(args: &Soak) -> Result<Exit, Failure> {
    if !trial::IS_POSSIBLE {
        let what = "no process can be stopped and looked at here";
        return Err(Failure::new(Exit::Failed, what).next("run the soak on Linux"));
    }
    let stop = Stop::on_signals()?;
    let dir = private_dir()?;
    let mut report = Report::new(args);
    let outcome = Run::start(dir.path(), args, &stop, &mut report)?.finish(&mut report)?;
    // Before the summary, which nobody may be there to read.
    drop(dir);
    let holds = report.end(&outcome)?;
    Ok(match outcome.interrupted {
        Some(why) => why.exit(),
        None if holds => Exit::Ok,
        None => Exit::Failed,
    })
}

/// A run dir for this soak alone, mode 0700.
fn private_dir() -> Result<tempfile::TempDir, Failure> {
    let temp = std::env::temp_dir();
    // The path of a socket has at most 107 bytes.
    let parent = if temp.as_os_str().len() > 60 { Path::new("/tmp") } else { &temp };
    tempfile::Builder::new().prefix("bellwire-soak-").tempdir_in(parent).map_err(|error| {
        Failure::of(Exit::Failed, "cannot make a private run dir", &error)
            .next("name a writable directory in TMPDIR")
    })
}
