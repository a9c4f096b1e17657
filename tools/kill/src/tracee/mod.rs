//! A process under ptrace: run to where it stops itself, through system calls, and by single instructions.

mod bell;
mod code;
mod memory;

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::error::{Error, Result, system};
use crate::victim::{END, GATE};
pub(crate) use bell::Bell;
pub(crate) use code::Code;
use code::{CALL_NUMBER, user};
pub(crate) use memory::{Page, Words, read_static};

/// What became of a traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It stopped itself at a gate.
    Gate,
    /// It stopped itself at its end.
    End,
    /// The watched thread is at the start or the end of a system call.
    Call,
    /// The watched thread was interrupted.
    Interrupted,
    /// The survivor has sent a line.
    Told,
    /// It ended by itself.
    Gone,
    /// Nothing happened for so long.
    Late,
}

/// How far a watched thread got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    There,
    /// The scenario ended before.
    Past,
}

/// A traced process. One thread of it is watched; the others run.
#[derive(Debug)]
pub(crate) struct Tracee {
    pid: Pid,
    threads: Vec<Pid>,
    watched: Pid,
    counts: bool,
    /// The watched thread was interrupted and has not stopped for it.
    interrupting: bool,
    /// The survivor has reported how its half ended.
    told: bool,
    bell: Rc<Bell>,
    patience: Duration,
    /// How it ended.
    end: Option<WaitStatus>,
}

/// The number of the event, above the signal in a status, that tells of a stop of a seized thread.
const EVENT_STOP: i32 = 128;
/// Interval between checks whether a thread has anything left to do.
const BRIEFLY: Duration = Duration::from_millis(5);
/// Interval between checks whether a thread sleeps.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

impl Tracee {
    /// Traces a process that this one started, and all its threads to come. They die with this process.
    pub(crate) fn seize(pid: Pid, bell: Rc<Bell>, patience: Duration) -> Result<Self> {
        let options = ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::seize(pid, options).map_err(system("trace a victim"))?;
        let (threads, watched) = (Vec::new(), pid);
        Ok(Self {
            pid,
            threads,
            watched,
            counts: false,
            interrupting: false,
            told: false,
            bell,
            patience,
            end: None,
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for what happens next; `line` is the survivor's, if it is to be listened to.
    pub(crate) fn next(
        &mut self,
        line: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<Event> {
        loop {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
            let status = waitpid(None, Some(flags)).map_err(system("wait for a victim"))?;
            if status == WaitStatus::StillAlive {
                match self.bell.wait(line, patience)? {
                    bell::Rung::Line => return Ok(Event::Told),
                    bell::Rung::Late => return Ok(Event::Late),
                    bell::Rung::Child => continue,
                }
            }
            if let Some(event) = self.take(status)? {
                return Ok(event);
            }
        }
    }

    /// Runs on until it stops itself, as it must.
    pub(crate) fn run_to(&mut self, wanted: Event) -> Result<()> {
        match self.next(None, self.patience)? {
            event if event == wanted => Ok(()),
            event => Err(Error::Survivor(format!("a victim that nobody killed: {event:?}"))),
        }
    }

    /// Lets the first thread go on from where it stopped itself.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        if self.watched == self.pid {
            self.counts = false;
        }
        ptrace::cont(self.pid, None).map_err(system("resume a victim"))
    }

    /// Watches the second thread, wherever it is, from now on: stopped.
    pub(crate) fn watch_second(&mut self) -> Result<()> {
        let Some(second) = self.threads.first().copied() else {
            return Err(Error::Usage("a server without a reactor thread".to_owned()));
        };
        self.watched = second;
        self.interrupting = true;
        ptrace::interrupt(second).map_err(system("interrupt a victim"))?;
        self.run_to(Event::Interrupted)
    }

    /// Resumes the stopped, watched thread, unwatched.
    pub(crate) fn run_freely(&mut self) -> Result<()> {
        self.counts = false;
        self.resume(self.watched, None)
    }

    /// Whether it ended by itself, with success.
    pub(crate) fn ended_well(&self) -> Result<()> {
        match self.end {
            Some(WaitStatus::Exited(_, 0)) => Ok(()),
            end => Err(Error::Survivor(format!("a victim that nobody killed ended in {end:?}"))),
        }
    }

    /// Runs to the start of the next system call, and returns its number. `None` at the end.
    pub(crate) fn enter_call(&mut self, line: Option<BorrowedFd<'_>>) -> Result<Option<i64>> {
        self.go_on_in_call()?;
        Ok(match self.wait_for_call(line)? {
            Reached::There => Some(user(self.watched, CALL_NUMBER)?),
            Reached::Past => None,
        })
    }

    /// Lets the watched thread go on to the next start or end of a system call.
    pub(crate) fn go_on_in_call(&mut self) -> Result<()> {
        self.counts = true;
        self.resume(self.watched, None)
    }

    /// Waits for the end of a system call.
    pub(crate) fn leave_call(&mut self, line: Option<BorrowedFd<'_>>) -> Result<Reached> {
        self.wait_for_call(line)
    }

    /// Runs the watched thread into its wait for events: where it was before it was interrupted.
    pub(crate) fn enter_wait(&mut self) -> Result<()> {
        while let Some(call) = self.enter_call(None)? {
            self.go_on_in_call()?;
            if call == libc::SYS_epoll_wait || call == libc::SYS_epoll_pwait {
                return Ok(());
            }
            self.leave_call(None)?;
        }
        Err(Error::Survivor("a victim's reactor ended before it was killed".to_owned()))
    }

    /// Runs `count` instructions, or up to the next system call if it comes first.
    pub(crate) fn step(&self, count: u64, code: &mut Code) -> Result<Reached> {
        for _ in 0..count {
            if code.is_at_call(self.watched)? {
                break;
            }
            if self.step_once()? == Reached::Past {
                return Ok(Reached::Past);
            }
        }
        Ok(Reached::There)
    }

    pub(crate) fn is_at_call(&self, code: &mut Code) -> Result<bool> {
        code.is_at_call(self.watched)
    }

    /// Runs one instruction, unless the thread stops itself there.
    pub(crate) fn step_once(&self) -> Result<Reached> {
        ptrace::step(self.watched, None).map_err(system("step"))?;
        let status = waitpid(self.watched, Some(WaitPidFlag::__WALL)).map_err(system("step"))?;
        match status {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(Reached::There),
            WaitStatus::Stopped(thread, END) if thread == self.pid => Ok(Reached::Past),
            status => Err(Error::Survivor(format!("a victim met {status:?} between system calls"))),
        }
    }

    /// Lets the watched thread go on until it sleeps.
    pub(crate) fn run_to_sleep(&mut self) -> Result<Reached> {
        self.run_freely()?;
        let start = Instant::now();
        while start.elapsed() < self.patience {
            match self.next(None, LOOK_AGAIN)? {
                Event::Late if self.sleeps()? => return Ok(Reached::There),
                Event::Late => {}
                _ => return Ok(Reached::Past),
            }
        }
        Err(Error::Survivor("a victim that should sleep does not".to_owned()))
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.end_it()
    }

    fn end_it(&mut self) -> Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        kill(self.pid, Signal::SIGKILL).map_err(system("kill a victim"))?;
        while self.end.is_none() {
            let status =
                waitpid(None, Some(WaitPidFlag::__WALL)).map_err(system("bury a victim"))?;
            if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                self.take(status)?;
            }
        }
        Ok(())
    }

    fn wait_for_call(&mut self, line: Option<BorrowedFd<'_>>) -> Result<Reached> {
        let start = Instant::now();
        loop {
            let (line, patience) = if self.told { (None, BRIEFLY) } else { (line, self.patience) };
            match self.next(line, patience)? {
                Event::Call => return Ok(Reached::There),
                Event::Told => self.told = true,
                Event::End => return Ok(Reached::Past),
                // It waits for a thread that has nothing left to do, or has not run yet.
                Event::Late if self.told && self.sleeps()? => return Ok(Reached::Past),
                Event::Late if self.told && start.elapsed() < self.patience => {}
                event => {
                    return Err(Error::Survivor(format!("a victim, not yet killed: {event:?}")));
                }
            }
        }
    }

    /// Handles an event of the kernel; returns what the caller should know.
    fn take(&mut self, status: WaitStatus) -> Result<Option<Event>> {
        let event = match status {
            WaitStatus::PtraceSyscall(thread) if thread == self.watched && self.counts => {
                Event::Call
            }
            WaitStatus::PtraceEvent(thread, _, EVENT_STOP) => {
                if self.interrupting && thread == self.watched {
                    self.interrupting = false;
                    return Ok(Some(Event::Interrupted));
                }
                if thread != self.pid && !self.threads.contains(&thread) {
                    self.threads.push(thread);
                }
                self.resume(thread, None)?;
                return Ok(None);
            }
            WaitStatus::Stopped(thread, GATE) if thread == self.pid => Event::Gate,
            WaitStatus::Stopped(thread, END) if thread == self.pid => Event::End,
            WaitStatus::Stopped(thread, signal) => {
                self.resume(thread, Some(signal))?;
                return Ok(None);
            }
            WaitStatus::PtraceSyscall(thread) | WaitStatus::PtraceEvent(thread, ..) => {
                self.resume(thread, None)?;
                if self.interrupting && thread == self.watched {
                    // The kernel takes any stop for the one that was asked for.
                    ptrace::interrupt(thread).map_err(system("interrupt a victim"))?;
                }
                return Ok(None);
            }
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                if pid == self.pid {
                    self.end = Some(status);
                    Event::Gone
                } else if self.bell.is_survivor(pid) {
                    let what = format!("the survivor did not survive: {status:?}");
                    return Err(Error::Survivor(what));
                } else {
                    return Ok(None);
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(event))
    }

    fn resume(&self, thread: Pid, signal: Option<Signal>) -> Result<()> {
        let resumed = if thread == self.watched && self.counts {
            ptrace::syscall(thread, signal)
        } else {
            ptrace::cont(thread, signal)
        };
        match resumed {
            // It is being killed.
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(source) => Err(Error::System { doing: "resume a victim's thread", source }),
        }
    }

    fn sleeps(&self) -> Result<bool> {
        let path = format!("/proc/{}/task/{}/stat", self.pid, self.watched);
        let stat = std::fs::read_to_string(path).map_err(crate::error::io("look at a thread"))?;
        Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.end_it();
    }
}
