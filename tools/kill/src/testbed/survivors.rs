use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use bellwire::RunDir;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde::Serialize;

use crate::error::{Error, Result, io, system};
use crate::line::{Ask, Ended, Line, Settled, Told};
use crate::phase::Side;
use crate::tracee::{Bell, Event, Tracee};
use crate::{fork, survivor};

/// Both survivors, by the side on which their victims are.
pub(super) struct Survivors {
    caller: Survivor,
    provider: Survivor,
    bell: Rc<Bell>,
    patience: Duration,
    _dir: tempfile::TempDir,
}

/// A peer that lives.
struct Survivor {
    pid: Pid,
    line: Line,
    run_dir: RunDir,
}

impl Survivors {
    pub(super) fn start(bell: Rc<Bell>, patience: Duration) -> Result<Self> {
        let dir = tempfile::tempdir().map_err(io("make a run dir"))?;
        let start = |name: &str, role: fn(&RunDir, Line, Duration) -> Result<()>| {
            let run_dir = RunDir::new(dir.path().join(name));
            let [ours, theirs] = Line::pair(["the survivor", "the harness"])?;
            let pid = fork::start(|| {
                if let Err(error) = role(&run_dir, theirs, patience) {
                    eprintln!("a survivor: {error}");
                }
            })?;
            bell.add_survivor(pid);
            Ok::<_, Error>(Survivor { pid, line: ours, run_dir })
        };
        let caller = start("servers-die", survivor::call)?;
        let provider = start("clients-die", survivor::provide)?;
        Ok(Self { caller, provider, bell, patience, _dir: dir })
    }

    pub(super) fn run_dir(&self, victim: Side) -> &RunDir {
        &self.of(victim).run_dir
    }

    pub(super) fn line(&self, victim: Side) -> BorrowedFd<'_> {
        self.of(victim).line.as_fd()
    }

    pub(super) fn say(&mut self, victim: Side, what: &impl Serialize) -> Result<()> {
        self.of_mut(victim).line.say(what)
    }

    /// Runs a command, while the victim, if any, continues.
    pub(super) fn ask(&mut self, side: Side, ask: &Ask, victim: Option<&mut Tracee>) -> Result<()> {
        self.say(side, ask)?;
        match self.hear(side, victim)? {
            Told::Done => Ok(()),
            Told::Wrong(what) => Err(Error::Survivor(what)),
            told => Err(Error::Survivor(format!("asked for {ask:?}, it says {told:?}"))),
        }
    }

    /// How its half of a scenario ended.
    pub(super) fn ended(&mut self, side: Side, victim: Option<&mut Tracee>) -> Result<Ended> {
        match self.hear(side, victim)? {
            Told::Ended(ended) => Ok(ended),
            told => Err(Error::Survivor(format!("asked to act, it says {told:?}"))),
        }
    }

    /// What is left, now that its peer is dead.
    pub(super) fn settle(&mut self, side: Side) -> Result<Settled> {
        self.say(side, &Ask::Settle)?;
        match self.hear(side, None)? {
            Told::Settled(settled) => Ok(*settled),
            told => Err(Error::Survivor(format!("asked to settle, it says {told:?}"))),
        }
    }

    fn hear(&mut self, side: Side, victim: Option<&mut Tracee>) -> Result<Told> {
        // Twice: to settle takes it as long as it is patient itself.
        let patience = self.patience * 2;
        let line = self.of(side).line.as_fd();
        let is_there = match victim {
            Some(victim) => match victim.next(Some(line), patience)? {
                Event::Told => true,
                Event::Late => false,
                event => return Err(Error::Survivor(format!("a victim, not killed: {event:?}"))),
            },
            None => self.bell.wait_for_line(line, patience)?,
        };
        if !is_there {
            let what =
                format!("it says nothing for {} s: it waits for the dead", patience.as_secs());
            return Err(Error::Survivor(what));
        }
        let gone = || Error::Survivor("the survivor did not survive".to_owned());
        self.of_mut(side).line.hear()?.ok_or_else(gone)
    }

    fn of(&self, victim: Side) -> &Survivor {
        match victim {
            Side::Client => &self.provider,
            Side::Server => &self.caller,
        }
    }

    fn of_mut(&mut self, victim: Side) -> &mut Survivor {
        match victim {
            Side::Client => &mut self.provider,
            Side::Server => &mut self.caller,
        }
    }
}

impl Drop for Survivors {
    fn drop(&mut self) {
        for Survivor { pid, .. } in [&self.caller, &self.provider] {
            let _ = kill(*pid, Signal::SIGKILL).map_err(system("end a survivor"));
            let _ = waitpid(*pid, None);
        }
    }
}
