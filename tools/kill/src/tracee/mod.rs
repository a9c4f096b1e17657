//! A process under ptrace: it runs to where it stops itself, from system call to system call, or by single instructions.

mod code;
mod memory;
mod poller;

use std::collections::HashSet;
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
pub(crate) use code::Code;
use code::{CALL_NUMBER, read_register, set_breakpoint};
pub(crate) use memory::{Page, Progress, Words, read_static};
pub(crate) use poller::Poller;

/// An event of a traced process, or of its survivor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It stopped itself at a gate.
    Gate,
    /// It stopped itself at its end.
    End,
    /// The watched thread has stopped at the start or the end of a system call.
    Call,
    /// The watched thread was interrupted.
    Interrupted,
    /// The survivor has sent a response.
    Response,
    /// It exited, without a kill by the harness.
    Exited,
    /// Nothing happened until the timeout.
    Timeout,
}

/// Whether a watched thread reached the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    There,
    /// The scenario ended before the point.
    Past,
}

/// A traced process. One thread of it is watched; the others run freely.
#[derive(Debug)]
pub(crate) struct Tracee {
    pid: Pid,
    threads: Vec<Pid>,
    watched: Pid,
    /// The watched thread stops at the start and the end of each system call.
    stops_at_calls: bool,
    /// The watched thread was interrupted, and has not stopped yet.
    interrupting: bool,
    /// The survivor has reported the result of its half.
    has_response: bool,
    poller: Rc<Poller>,
    timeout: Duration,
    /// Its exit status, once it has exited.
    exit: Option<WaitStatus>,
}

/// PTRACE_EVENT_STOP: the event number, above the signal in a wait status, of a stop of a seized thread.
const EVENT_STOP: i32 = 128;
/// The interval between checks whether a thread still has work.
const WORK_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The interval between checks whether a thread sleeps.
const SLEEP_POLL_INTERVAL: Duration = Duration::from_micros(50);

impl Tracee {
    /// Traces a child of this process, and all its later threads. They die with this process.
    pub(crate) fn seize(pid: Pid, poller: Rc<Poller>, timeout: Duration) -> Result<Self> {
        let options = ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::seize(pid, options).map_err(system("trace a victim"))?;
        let (threads, watched) = (Vec::new(), pid);
        Ok(Self {
            pid,
            threads,
            watched,
            stops_at_calls: false,
            interrupting: false,
            has_response: false,
            poller,
            timeout,
            exit: None,
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the next event; `channel` is the survivor's, if its responses count as events.
    pub(crate) fn next(
        &mut self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<Event> {
        loop {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
            let status = waitpid(None, Some(flags)).map_err(system("wait for a victim"))?;
            if status == WaitStatus::StillAlive {
                match self.poller.wait(channel, timeout)? {
                    poller::Ready::Channel => return Ok(Event::Response),
                    poller::Ready::Timeout => return Ok(Event::Timeout),
                    poller::Ready::Child => continue,
                }
            }
            if let Some(event) = self.handle_status(status)? {
                return Ok(event);
            }
        }
    }

    /// Runs until the expected event; any other event is an error.
    pub(crate) fn run_to(&mut self, wanted: Event) -> Result<()> {
        match self.next(None, self.timeout)? {
            event if event == wanted => Ok(()),
            event => Err(Error::Survivor(format!("a victim that was not killed: {event:?}"))),
        }
    }

    /// Resumes the main thread, which has stopped itself.
    pub(crate) fn resume_main(&mut self) -> Result<()> {
        if self.watched == self.pid {
            self.stops_at_calls = false;
        }
        ptrace::cont(self.pid, None).map_err(system("resume a victim"))
    }

    /// Watches the second thread from now on: interrupts it wherever it is, and leaves it stopped.
    pub(crate) fn watch_second(&mut self) -> Result<()> {
        let Some(second) = self.threads.first().copied() else {
            return Err(Error::Usage("a server without a reactor thread".to_owned()));
        };
        self.watched = second;
        self.interrupting = true;
        ptrace::interrupt(second).map_err(system("interrupt a victim"))?;
        self.run_to(Event::Interrupted)
    }

    /// Resumes the stopped watched thread without stops at its system calls.
    pub(crate) fn run_freely(&mut self) -> Result<()> {
        self.stops_at_calls = false;
        self.resume(self.watched, None)
    }

    /// Checks that it exited successfully by itself.
    pub(crate) fn check_exit(&self) -> Result<()> {
        match self.exit {
            Some(WaitStatus::Exited(_, 0)) => Ok(()),
            exit => Err(Error::Survivor(format!("a victim that was not killed: {exit:?}"))),
        }
    }

    /// Runs to the start of the next system call, and returns its number; `None` at the end of the scenario.
    pub(crate) fn enter_call(&mut self, channel: Option<BorrowedFd<'_>>) -> Result<Option<i64>> {
        self.resume_to_call_stop()?;
        Ok(match self.wait_for_call_stop(channel)? {
            Reached::There => Some(read_register(self.watched, CALL_NUMBER)?),
            Reached::Past => None,
        })
    }

    /// Resumes the watched thread up to the next start or end of a system call.
    pub(crate) fn resume_to_call_stop(&mut self) -> Result<()> {
        self.stops_at_calls = true;
        self.resume(self.watched, None)
    }

    /// Waits for the end of a system call.
    pub(crate) fn leave_call(&mut self, channel: Option<BorrowedFd<'_>>) -> Result<Reached> {
        self.wait_for_call_stop(channel)
    }

    /// Runs the watched thread into its epoll wait, where it was before it was interrupted.
    pub(crate) fn enter_wait(&mut self) -> Result<()> {
        while let Some(call) = self.enter_call(None)? {
            self.resume_to_call_stop()?;
            if call == libc::SYS_epoll_wait || call == libc::SYS_epoll_pwait {
                return Ok(());
            }
            self.leave_call(None)?;
        }
        Err(Error::Survivor("a victim's reactor exited before it was killed".to_owned()))
    }

    /// Runs `count` instructions, or up to the next system call if it comes first. `path` has the addresses of the
    /// instructions that a victim ran there before: what it did not run twice is not stepped through.
    pub(crate) fn step(&self, count: u64, path: &[u64], code: &mut Code) -> Result<Reached> {
        let mut done = last_new(path, count);
        if let Some(address) = path.get(done).filter(|_| done > 0) {
            set_breakpoint(self.watched, *address)?;
            ptrace::syscall(self.watched, None).map_err(system("run to a breakpoint"))?;
            match self.wait_for_trap()? {
                // It took another path.
                None => return Ok(Reached::There),
                Some(Reached::Past) => return Ok(Reached::Past),
                Some(Reached::There) => set_breakpoint(self.watched, 0)?,
            }
        }
        while (done as u64) < count && code.next(self.watched)?.is_some() {
            if self.step_once()? == Reached::Past {
                return Ok(Reached::Past);
            }
            done += 1;
        }
        Ok(Reached::There)
    }

    /// The address of the watched thread's next instruction; `None` if that is a system call.
    pub(crate) fn next_instruction(&self, code: &mut Code) -> Result<Option<u64>> {
        code.next(self.watched)
    }

    /// Runs one instruction, at which the thread may stop itself.
    pub(crate) fn step_once(&self) -> Result<Reached> {
        ptrace::step(self.watched, None).map_err(system("step"))?;
        self.wait_for_trap()?.ok_or_else(|| {
            Error::Survivor("a victim made a system call that was not seen".to_owned())
        })
    }

    /// Waits until the watched thread has run one instruction or up to a breakpoint; `None` if it makes a system call.
    fn wait_for_trap(&self) -> Result<Option<Reached>> {
        let status = waitpid(self.watched, Some(WaitPidFlag::__WALL)).map_err(system("step"))?;
        match status {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(Some(Reached::There)),
            WaitStatus::Stopped(thread, END) if thread == self.pid => Ok(Some(Reached::Past)),
            WaitStatus::PtraceSyscall(_) => Ok(None),
            status => Err(Error::Survivor(format!("a victim got {status:?} between system calls"))),
        }
    }

    /// Resumes the watched thread until it sleeps.
    pub(crate) fn run_to_sleep(&mut self) -> Result<Reached> {
        self.run_freely()?;
        let start = Instant::now();
        while start.elapsed() < self.timeout {
            match self.next(None, SLEEP_POLL_INTERVAL)? {
                Event::Timeout if self.is_sleeping()? => return Ok(Reached::There),
                Event::Timeout => {}
                _ => return Ok(Reached::Past),
            }
        }
        Err(Error::Survivor("a victim that should sleep does not".to_owned()))
    }

    /// Kills it, and waits until it is reaped.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.kill_and_reap()
    }

    fn kill_and_reap(&mut self) -> Result<()> {
        if self.exit.is_some() {
            return Ok(());
        }
        kill(self.pid, Signal::SIGKILL).map_err(system("kill a victim"))?;
        while self.exit.is_none() {
            let status =
                waitpid(None, Some(WaitPidFlag::__WALL)).map_err(system("reap a victim"))?;
            if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                self.handle_status(status)?;
            }
        }
        Ok(())
    }

    fn wait_for_call_stop(&mut self, channel: Option<BorrowedFd<'_>>) -> Result<Reached> {
        let start = Instant::now();
        loop {
            let (channel, timeout) = if self.has_response {
                (None, WORK_POLL_INTERVAL)
            } else {
                (channel, self.timeout)
            };
            match self.next(channel, timeout)? {
                Event::Call => return Ok(Reached::There),
                Event::Response => self.has_response = true,
                Event::End => return Ok(Reached::Past),
                // It waits for a thread that has no work left, or that has not run yet.
                Event::Timeout if self.has_response && self.is_sleeping()? => {
                    return Ok(Reached::Past);
                }
                Event::Timeout if self.has_response && start.elapsed() < self.timeout => {}
                event => {
                    return Err(Error::Survivor(format!("a victim before its kill: {event:?}")));
                }
            }
        }
    }

    /// Handles a wait status; returns an event if the caller needs to know of it.
    fn handle_status(&mut self, status: WaitStatus) -> Result<Option<Event>> {
        let event = match status {
            WaitStatus::PtraceSyscall(thread) if thread == self.watched && self.stops_at_calls => {
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
                    // The kernel counts any stop as the requested interrupt.
                    ptrace::interrupt(thread).map_err(system("interrupt a victim"))?;
                }
                return Ok(None);
            }
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                if pid == self.pid {
                    self.exit = Some(status);
                    Event::Exited
                } else if self.poller.is_survivor(pid) {
                    let what = format!("the survivor exited: {status:?}");
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
        let resumed = if thread == self.watched && self.stops_at_calls {
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

    fn is_sleeping(&self) -> Result<bool> {
        let path = format!("/proc/{}/task/{}/stat", self.pid, self.watched);
        let stat = std::fs::read_to_string(path)
            .map_err(crate::error::io("read the state of a thread"))?;
        Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
    }
}

/// The last of the first `count` instructions of a path, and of the one after them, at whose address it was not before.
fn last_new(path: &[u64], count: u64) -> usize {
    let mut seen = HashSet::new();
    let upto = usize::try_from(count).unwrap_or(usize::MAX).saturating_add(1);
    let is_new = |(at, address): (usize, &u64)| seen.insert(*address).then_some(at);
    path.iter().take(upto).enumerate().filter_map(is_new).last().unwrap_or(0)
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.kill_and_reap();
    }
}

#[cfg(test)]
mod tests {
    use super::last_new;

    #[test]
    fn a_loop_is_stepped_through_from_its_second_turn_on() {
        let path = [1, 2, 3, 2, 3, 4, 5];
        let found = [0, 1, 2, 3, 4, 5, 6, 7].map(|count| last_new(&path, count));
        assert_eq!(found, [0, 1, 2, 2, 2, 5, 6, 6]);
        assert_eq!(last_new(&[], 3), 0);
    }
}
