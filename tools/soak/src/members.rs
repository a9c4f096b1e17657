//! The processes of a soak and their states.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::Sender;
use std::time::Instant;

use bellwire_process::{self as process, Subprocess};
use serde::{Deserialize, Serialize};

use crate::Event;
use crate::args::{Child, Soak};
use crate::protocol::{ChildMessage, ConsumerCalls, Served};
use bellwire_cli::exit::{Exit, Failure};

/// A role in the soak, played by one process after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Lives through the whole run, without faults.
    SteadyProvider,
    /// Lives through the whole run, without faults.
    SteadyConsumer,
    FaultedProvider,
    /// One of two.
    FaultedConsumer(u8),
}

pub(super) const ROLES: [Role; 5] = [
    Role::SteadyProvider,
    Role::FaultedProvider,
    Role::SteadyConsumer,
    Role::FaultedConsumer(1),
    Role::FaultedConsumer(2),
];

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SteadyProvider => "steady provider",
            Self::SteadyConsumer => "steady consumer",
            Self::FaultedProvider => "faulted provider",
            Self::FaultedConsumer(1) => "faulted consumer 1",
            Self::FaultedConsumer(_) => "faulted consumer 2",
        }
    }

    pub(super) fn is_steady(self) -> bool {
        matches!(self, Self::SteadyProvider | Self::SteadyConsumer)
    }

    pub(super) fn is_consumer(self) -> bool {
        matches!(self, Self::SteadyConsumer | Self::FaultedConsumer(_))
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
    process: Option<Subprocess>,
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

impl Member {
    pub(super) fn start(role: Role, who: u64, launch: &Launch<'_>) -> Result<Self, Failure> {
        Ok(Self {
            role,
            state: State::Starting,
            who,
            process: Some(start(role, who, launch)?),
            consumer_calls: ConsumerCalls::default(),
            served: Served::default(),
            is_done: false,
        })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Subprocess::pid)
    }

    /// Kills it with SIGKILL and waits for its end.
    pub(super) fn kill(&mut self) -> Option<ExitStatus> {
        self.process.take()?.kill().ok()
    }

    /// Asks it to end in order.
    pub(super) fn ask_to_end(&mut self) {
        if let Some(process) = &mut self.process {
            process.close();
        }
    }

    /// Returns how it ended, after it has closed its output.
    pub(super) fn wait(&mut self) -> Option<ExitStatus> {
        self.process.take()?.wait().ok()
    }
}

fn start(role: Role, who: u64, launch: &Launch<'_>) -> Result<Subprocess, Failure> {
    let child = Child {
        role,
        who,
        run_dir: launch.run_dir.to_owned(),
        sessions: launch.args.sessions,
        seed: launch.seed,
        defect: launch.args.defect.filter(|_| role.is_steady()),
    };
    let failed =
        |error: &dyn Error| Failure::of(Exit::Failed, "cannot start a process of the soak", error);
    let child = serde_json::to_string(&child).map_err(|error| failed(&error))?;
    let mut command = Command::new(process::PROGRAM);
    command.args(["--child", &child]);
    process::ignore_terminal_signals(&mut command);
    let events = launch.events.clone();
    let on_line = move |line: Option<String>| {
        let event = match line.as_deref().map(serde_json::from_str::<ChildMessage>) {
            Some(Ok(message)) => Event::ChildMessage(who, message),
            // A killed process may have written half a line.
            Some(Err(_)) => return,
            None => Event::Ended(who),
        };
        let _ = events.send(event);
    };
    Subprocess::start(&mut command, on_line).map_err(|error| failed(&error))
}
