use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;

use crate::error::{Result, system};

/// Waits for events of this process's children, by a signalfd, and for messages of a survivor at the same time.
#[derive(Debug)]
pub(crate) struct Poller {
    signals: SignalFd,
    /// Children that must not exit.
    survivors: RefCell<Vec<Pid>>,
}

/// Why [`Poller::wait`] returned.
pub(crate) enum Ready {
    Child,
    Channel,
    Timeout,
}

impl Poller {
    /// Blocks SIGCHLD in this thread, and receives it by a signalfd.
    pub(crate) fn new() -> Result<Self> {
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        children.thread_block().map_err(system("block a signal"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals =
            SignalFd::with_flags(&children, flags).map_err(system("create a signalfd"))?;
        Ok(Self { signals, survivors: RefCell::default() })
    }

    pub(crate) fn add_survivor(&self, pid: Pid) {
        self.survivors.borrow_mut().push(pid);
    }

    /// Whether this child is a survivor, which must not exit.
    pub(crate) fn is_survivor(&self, pid: Pid) -> bool {
        self.survivors.borrow().contains(&pid)
    }

    /// Waits for the first event of either kind.
    pub(crate) fn wait(&self, channel: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<Ready> {
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(channel.map(|channel| PollFd::new(channel, PollFlags::POLLIN)));
        let timeout = TimeSpec::from_duration(timeout);
        let ready = ppoll(&mut polled, Some(timeout), None).map_err(system("poll"))?;
        if ready == 0 {
            return Ok(Ready::Timeout);
        }
        // Children first: what a victim did precedes a survivor's report of it.
        if self.signals.read_signal().map_err(system("read a signal"))?.is_some() {
            return Ok(Ready::Child);
        }
        Ok(Ready::Channel)
    }

    /// Waits for the channel alone; false on a timeout.
    pub(crate) fn wait_for_channel(
        &self,
        channel: BorrowedFd<'_>,
        timeout: Duration,
    ) -> Result<bool> {
        let start = Instant::now();
        while let Some(left) = timeout.checked_sub(start.elapsed()) {
            match self.wait(Some(channel), left)? {
                Ready::Channel => return Ok(true),
                // The child's state is queried later.
                Ready::Child => {}
                Ready::Timeout => return Ok(false),
            }
        }
        Ok(false)
    }
}
