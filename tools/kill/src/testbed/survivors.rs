use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use bellwire::RunDir;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde::Serialize;

use crate::channel::{Channel, Command, QuiescentState, Response, ScenarioResult};
use crate::error::{Error, Result, io, system};
use crate::phase::Side;
use crate::tracee::{Event, Poller, Tracee};
use crate::{fork, survivor};

/// Both survivors, addressed by the side of their victims.
pub(super) struct Survivors {
    caller: SurvivorProcess,
    provider: SurvivorProcess,
    poller: Rc<Poller>,
    timeout: Duration,
    _dir: tempfile::TempDir,
}

/// A survivor, and the channel to it.
struct SurvivorProcess {
    pid: Pid,
    channel: Channel,
    run_dir: RunDir,
}

impl Survivors {
    pub(super) fn start(poller: Rc<Poller>, timeout: Duration) -> Result<Self> {
        let dir = tempfile::tempdir().map_err(io("create a run dir"))?;
        let start = |name: &str, run: fn(&RunDir, Channel, Duration) -> Result<()>| {
            let run_dir = RunDir::new(dir.path().join(name));
            let [ours, theirs] = Channel::pair(["the survivor", "the harness"])?;
            let pid = fork::start(|| {
                if let Err(error) = run(&run_dir, theirs, timeout) {
                    eprintln!("a survivor: {error}");
                }
            })?;
            poller.add_survivor(pid);
            Ok::<_, Error>(SurvivorProcess { pid, channel: ours, run_dir })
        };
        let caller = start("servers-die", survivor::run_caller)?;
        let provider = start("clients-die", survivor::run_provider)?;
        Ok(Self { caller, provider, poller, timeout, _dir: dir })
    }

    pub(super) fn run_dir(&self, victim: Side) -> &RunDir {
        &self.of(victim).run_dir
    }

    pub(super) fn channel(&self, victim: Side) -> BorrowedFd<'_> {
        self.of(victim).channel.as_fd()
    }

    pub(super) fn send(&mut self, victim: Side, message: &impl Serialize) -> Result<()> {
        self.of_mut(victim).channel.send(message)
    }

    /// Has a survivor execute a command, while the victim, if any, continues.
    pub(super) fn execute(
        &mut self,
        side: Side,
        command: &Command,
        victim: Option<&mut Tracee>,
    ) -> Result<()> {
        self.send(side, command)?;
        match self.receive(side, victim)? {
            Response::Done => Ok(()),
            Response::Failed(what) => Err(Error::Survivor(what)),
            other => Err(Error::Survivor(format!("it answers {command:?} with {other:?}"))),
        }
    }

    /// Waits for the result of the survivor's half of a scenario.
    pub(super) fn scenario_result(
        &mut self,
        side: Side,
        victim: Option<&mut Tracee>,
    ) -> Result<ScenarioResult> {
        match self.receive(side, victim)? {
            Response::Finished(result) => Ok(result),
            other => Err(Error::Survivor(format!("it answers a scenario with {other:?}"))),
        }
    }

    /// Waits until a survivor whose peer is dead does not change any more, and returns its state.
    pub(super) fn quiesce(&mut self, side: Side) -> Result<QuiescentState> {
        self.send(side, &Command::Quiesce)?;
        match self.receive(side, None)? {
            Response::Quiescent(state) => Ok(*state),
            other => Err(Error::Survivor(format!("it answers Quiesce with {other:?}"))),
        }
    }

    fn receive(&mut self, side: Side, victim: Option<&mut Tracee>) -> Result<Response> {
        // Twice its own timeout: it may take that long until it is quiescent.
        let timeout = self.timeout * 2;
        let channel = self.of(side).channel.as_fd();
        let has_response = match victim {
            Some(victim) => loop {
                match victim.next(Some(channel), timeout)? {
                    Event::Response => break true,
                    Event::Timeout => break false,
                    // It has published everything, and its other thread serves on.
                    Event::End => {}
                    event => {
                        return Err(Error::Survivor(format!(
                            "a victim that was not killed: {event:?}"
                        )));
                    }
                }
            },
            None => self.poller.wait_for_channel(channel, timeout)?,
        };
        if !has_response {
            let what = format!(
                "it does not respond for {} s: it waits for the dead peer",
                timeout.as_secs()
            );
            return Err(Error::Survivor(what));
        }
        let exited = || Error::Survivor("the survivor exited".to_owned());
        self.of_mut(side).channel.receive()?.ok_or_else(exited)
    }

    fn of(&self, victim: Side) -> &SurvivorProcess {
        match victim {
            Side::Client => &self.provider,
            Side::Server => &self.caller,
        }
    }

    fn of_mut(&mut self, victim: Side) -> &mut SurvivorProcess {
        match victim {
            Side::Client => &mut self.provider,
            Side::Server => &mut self.caller,
        }
    }
}

impl Drop for Survivors {
    fn drop(&mut self) {
        for SurvivorProcess { pid, .. } in [&self.caller, &self.provider] {
            let _ = kill(*pid, Signal::SIGKILL).map_err(system("end a survivor"));
            let _ = waitpid(*pid, None);
        }
    }
}
