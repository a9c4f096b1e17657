use std::path::Path;
use std::time::Duration;

use bellwire_process::usage;
use clap::ValueEnum;

use super::load::histogram;
use super::protocol::{Connected, Done, Load, Order, Serving};
use super::tally::Sample;
use crate::bench::args::{Reactor, Subject};
use crate::bench::process::Process;
use crate::exit::{Exit, Failure};

/// The number of processes that call one server: as many as a small machine has processors.
const CALLERS: u32 = 2;

/// A server and the processes that call it.
pub(super) struct Testbed {
    pub(super) subject: Subject,
    server: Process,
    callers: Vec<Process>,
    short: Option<String>,
}

impl Testbed {
    /// Starts all processes. Returns an inner `Err` if the server does not use the requested wait mechanism.
    pub(super) fn set(
        subject: Subject,
        sessions: u32,
        args: &Reactor,
        dir: &Path,
    ) -> Result<Result<Self, String>, Failure> {
        let place = dir.join(subject.as_str());
        std::fs::create_dir(&place)?;
        let kind = subject.to_possible_value();
        let kind = kind.map_or_else(String::new, |kind| format!("--subject={}", kind.get_name()));
        let socket = format!("--socket={}", place.join("plain.sock").display());
        let count = format!("--sessions={sessions}");
        let spin = args.spin.map(|spin| format!("--spin={}ns", spin.as_nanos()));
        let mut words = vec!["bench-server", &kind, &socket, &count];
        words.extend(spin.as_deref());
        let mut server = Process::start(&place, &words)?;
        let serving: Serving = server.hear()?;
        if let Some(why) = serving.why_not {
            return Ok(Err(why));
        }
        let mut callers = Vec::new();
        let processes = CALLERS.min(sessions);
        for number in 0..processes {
            let share = sessions / processes + u32::from(number < sessions % processes);
            let count = format!("--sessions={share}");
            callers.push(Process::start(&place, &["bench-load", &kind, &socket, &count])?);
        }
        let (mut connected, mut why) = (0, None);
        for caller in &mut callers {
            let Connected { sessions, short } = caller.hear()?;
            connected += sessions;
            why = why.or(short);
        }
        let short = why.map(|why| format!("{connected} sessions of {sessions}: {why}"));
        if connected == 0 {
            return Err(Failure::new(Exit::Failed, short.unwrap_or_default()));
        }
        Ok(Ok(Self { subject, server, callers, short }))
    }

    /// Returns why there are fewer sessions than intended.
    pub(super) fn short(&self) -> Option<&str> {
        self.short.as_deref()
    }

    /// Runs a load on the server for this long and measures the server's cost.
    pub(super) fn measure(&mut self, load: Load, window: Duration) -> Result<Sample, Failure> {
        let order = Order { load, millis: u64::try_from(window.as_millis()).unwrap_or(u64::MAX) };
        let look = |pid| {
            usage(pid).map_err(|error| Failure::of(Exit::Failed, "what the server uses", &error))
        };
        let before = look(self.server.pid())?;
        for caller in &mut self.callers {
            caller.tell(&order);
        }
        let mut took =
            histogram().map_err(|error| Failure::of(Exit::Failed, "cannot count", &error))?;
        let (mut calls, mut nanos) = (0, 0);
        for caller in &mut self.callers {
            let done: Done = caller.hear()?;
            if let Some(why) = done.failed {
                let what = format!("a call of {} failed: {why}", self.subject.as_str());
                return Err(Failure::new(Exit::Failed, what));
            }
            calls += done.calls;
            nanos = done.nanos.max(nanos);
            for (value, count) in done.took {
                took.saturating_record_n(value, count);
            }
        }
        let after = look(self.server.pid())?;
        Ok(Sample::new(&before, &after, calls, nanos, &took))
    }
}
