use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;

use crate::error::{Result, system};

/// Reports when the kernel has an event of this process's children, without losing a survivor's lines.
#[derive(Debug)]
pub(crate) struct Bell {
    signals: SignalFd,
    /// Children that are not to end.
    survivors: RefCell<Vec<Pid>>,
}

pub(crate) enum Rung {
    Child,
    Line,
    Late,
}

impl Bell {
    /// Blocks SIGCHLD in this thread, and listens to it.
    pub(crate) fn new() -> Result<Self> {
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        children.thread_block().map_err(system("block a signal"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&children, flags).map_err(system("make a signalfd"))?;
        Ok(Self { signals, survivors: RefCell::default() })
    }

    pub(crate) fn add_survivor(&self, pid: Pid) {
        self.survivors.borrow_mut().push(pid);
    }

    /// Whether this child is not to end.
    pub(crate) fn is_survivor(&self, pid: Pid) -> bool {
        self.survivors.borrow().contains(&pid)
    }

    /// Waits for whatever comes first.
    pub(crate) fn wait(&self, line: Option<BorrowedFd<'_>>, patience: Duration) -> Result<Rung> {
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(line.map(|line| PollFd::new(line, PollFlags::POLLIN)));
        let timeout = TimeSpec::from_duration(patience);
        let ready = ppoll(&mut polled, Some(timeout), None).map_err(system("poll"))?;
        if ready == 0 {
            return Ok(Rung::Late);
        }
        // A child first: its action came before a survivor's report of it.
        if self.signals.read_signal().map_err(system("read a signal"))?.is_some() {
            return Ok(Rung::Child);
        }
        Ok(Rung::Line)
    }

    /// Waits for the line alone. False when it stayed silent.
    pub(crate) fn wait_for_line(&self, line: BorrowedFd<'_>, patience: Duration) -> Result<bool> {
        let start = Instant::now();
        while let Some(left) = patience.checked_sub(start.elapsed()) {
            match self.wait(Some(line), left)? {
                Rung::Line => return Ok(true),
                // The child's state is queried later.
                Rung::Child => {}
                Rung::Late => return Ok(false),
            }
        }
        Ok(false)
    }
}
