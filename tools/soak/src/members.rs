//! The processes of a soak and their states.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use bellwire_process as process;

use crate::Event;
use crate::args::Soak;
use crate::protocol::{ChildMessage, ConsumerCalls, Defect, Served};
use bellwire_cli::exit::{Exit, Failure};

/// A role in the soak, played by one process after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Lives through the whole run, without faults.
    SteadyProvider,
    /// Lives through the whole run, without faults.
    SteadyConsumer,
    FragileProvider,
    /// One of two.
    FragileConsumer(u8),
}

pub(super) const ROLES: [Role; 5] = [
    Role::SteadyProvider,
    Role::FragileProvider,
    Role::SteadyConsumer,
    Role::FragileConsumer(1),
    Role::FragileConsumer(2),
];

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SteadyProvider => "steady provider",
            Self::SteadyConsumer => "steady consumer",
            Self::FragileProvider => "fragile provider",
            Self::FragileConsumer(1) => "fragile consumer 1",
            Self::FragileConsumer(_) => "fragile consumer 2",
        }
    }

    pub(super) fn is_steady(self) -> bool {
        matches!(self, Self::SteadyProvider | Self::SteadyConsumer)
    }

    pub(super) fn is_consumer(self) -> bool {
        matches!(self, Self::SteadyConsumer | Self::FragileConsumer(_))
    }
}

/// The state of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Started but not ready yet.
    Starting,
    Running,
    /// Stopped by SIGSTOP until this time.
    Stopped(Instant),
    /// Asked to end by this time.
    Ending(Instant),
    /// Without a process until this time.
    Away(Instant),
}

/// A role and its current process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) role: Role,
    pub(super) state: State,
    /// The number of the current process; unique in the run.
    pub(super) who: u64,
    process: Option<Process>,
    /// Its last reported counters.
    pub(super) consumer_calls: ConsumerCalls,
    pub(super) served: Served,
    /// It reported that its counters are final.
    pub(super) is_done: bool,
}

/// How to start a process.
pub(super) struct Launch<'a> {
    pub(super) run_dir: &'a Path,
    pub(super) args: &'a Soak,
    pub(super) seed: u64,
    pub(super) events: Sender<Event>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    commands: Option<ChildStdin>,
}

impl Member {
    pub(super) fn start(role: Role, who: u64, launch: &Launch<'_>) -> Result<Self, Failure> {
        let process = Some(Process::start(role, who, launch)?);
        let (consumer_calls, served) = (ConsumerCalls::default(), Served::default());
        Ok(Self {
            role,
            state: State::Starting,
            who,
            process,
            consumer_calls,
            served,
            is_done: false,
        })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// Kills it with SIGKILL and waits for its end.
    pub(super) fn kill(&mut self) -> Option<ExitStatus> {
        let mut process = self.process.take()?;
        process.child.kill().ok()?;
        process.child.wait().ok()
    }

    /// Asks it to end in order.
    pub(super) fn ask_to_end(&mut self) {
        if let Some(process) = &mut self.process {
            process.commands = None;
        }
    }

    /// Returns how it ended, after it has closed its output.
    pub(super) fn wait(&mut self) -> Option<ExitStatus> {
        self.process.take()?.child.wait().ok()
    }
}

impl Process {
    fn start(role: Role, who: u64, launch: &Launch<'_>) -> Result<Self, Failure> {
        let Launch { run_dir, args, seed, .. } = launch;
        let mut command = Command::new(process::PROGRAM);
        if role.is_consumer() {
            command.arg("consumer");
            command.args(["--sessions", &args.sessions.to_string(), "--who", &who.to_string()]);
            command.args(["--seed", &seed.to_string()]);
        } else {
            command.arg("provider");
        }
        command.arg("--run-dir").arg(run_dir);
        if matches!(role, Role::FragileConsumer(_)) {
            command.arg("--stops-taking");
        }
        if role == Role::SteadyProvider {
            command.arg("--steady");
        }
        if let Some(defect) = args.defect.filter(|_| role.is_steady()) {
            command.args(["--defect", &Defect::name(defect)]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        process::keep_signals_off(&mut command);
        let failed =
            |error| Failure::of(Exit::Failed, "cannot start a process of the soak", &error);
        let mut child = command.spawn().map_err(failed)?;
        let (commands, received) = (child.stdin.take(), child.stdout.take());
        let events = launch.events.clone();
        thread::spawn(move || {
            let lines = received.into_iter().flat_map(|received| BufReader::new(received).lines());
            for line in lines.map_while(Result::ok) {
                // A killed process may have written half a line.
                if let Ok(received) = serde_json::from_str::<ChildMessage>(&line)
                    && events.send(Event::ChildMessage(who, received)).is_err()
                {
                    return;
                }
            }
            let _ = events.send(Event::Ended(who));
        });
        Ok(Self { child, commands })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails without harm if it has ended. SIGKILL also ends a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
