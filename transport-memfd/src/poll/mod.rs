//! Waiting for descriptors.

mod epoll;
#[cfg(feature = "io-uring")]
mod uring;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bellwire_core::{Backend, BackendStatus, Instant};
use bellwire_shm::platform;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub use epoll::Epoll;
#[cfg(feature = "io-uring")]
pub use uring::Uring;

pub use bellwire_shm::{Interest, PollEvent, Trigger};

use crate::Linux;
use crate::clock;

/// The maximum number of descriptors for one [`wait_readable`].
pub const MAX_FDS: usize = 64;

/// Waits for many descriptors, with epoll or io_uring.
///
/// It belongs to the thread that created it.
#[derive(Debug)]
pub enum Poller {
    /// [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html).
    Epoll(Epoll),
    /// [`io_uring(7)`](https://man7.org/linux/man-pages/man7/io_uring.7.html).
    #[cfg(feature = "io-uring")]
    Uring(Box<Uring>),
}

/// Room for the events of one wait, reused from one to the next.
#[derive(Default)]
pub struct Events {
    /// From epoll, in its format.
    raw: Vec<epoll::RawEvent>,
    /// From io_uring, converted.
    #[cfg(feature = "io-uring")]
    found: Vec<PollEvent>,
    most: usize,
}

/// Which of the descriptors of one wait were ready, by position. Empty after the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready(u64);

impl Events {
    /// Creates room for `most` events per wait.
    pub fn with_capacity(most: usize) -> Self {
        Self { most: most.max(1), ..Self::default() }
    }

    /// Returns the events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = PollEvent> + '_ {
        let events = self.raw.iter().map(epoll::event);
        #[cfg(feature = "io-uring")]
        let events = events.chain(self.found.iter().copied());
        events
    }

    fn clear(&mut self) {
        self.raw.clear();
        #[cfg(feature = "io-uring")]
        self.found.clear();
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl platform::Poller<Linux> for Poller {
    type Events = Events;

    const REPORTS_HANGUP: bool = true;

    fn choose(wanted: Backend) -> Result<(Self, BackendStatus), Errno> {
        let why_not = match wanted {
            Backend::IoUring => match try_uring() {
                Ok(poller) => {
                    return Ok((poller, BackendStatus { backend: wanted, why_not: None }));
                }
                Err(why) => Some(why),
            },
            Backend::ThreadPool => Some("the thread pool waits on Windows only"),
            _ => None,
        };
        let in_use = BackendStatus { backend: Backend::Epoll, why_not };
        Ok((Self::Epoll(Epoll::create()?), in_use))
    }

    /// # Errors
    /// `EEXIST` when epoll watches it already, `ENOSPC` past `/proc/sys/fs/epoll/max_user_watches`.
    fn add(&mut self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<(), Errno> {
        match self {
            Self::Epoll(epoll) => epoll.add(fd, token, interest),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.add(fd, token, interest),
        }
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<(), Errno> {
        match self {
            Self::Epoll(epoll) => epoll.modify(fd, token, interest),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.modify(fd, token, interest),
        }
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> bool {
        match self {
            Self::Epoll(epoll) => epoll.delete(fd).is_ok(),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.delete(fd).is_ok(),
        }
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        match self {
            Self::Epoll(epoll) => epoll.wait(events, timeout),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.wait(events, timeout),
        }
    }

    fn sleep(
        &mut self,
        events: &mut Events,
        now: Instant,
        until: Option<Instant>,
    ) -> Result<usize, Errno> {
        match self {
            Self::Epoll(epoll) => epoll.sleep(events, now, until),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.wait(events, until.map(|until| until.since(now))),
        }
    }
}

/// Returns an io_uring poller, or why it is not available.
#[cfg(feature = "io-uring")]
fn try_uring() -> Result<Poller, &'static str> {
    Uring::create().map(|uring| Poller::Uring(Box::new(uring))).map_err(uring::why_not)
}

#[cfg(not(feature = "io-uring"))]
fn try_uring() -> Result<Poller, &'static str> {
    Err("this program was built without the feature io-uring")
}

impl Ready {
    /// Returns whether the descriptor at `place` was ready.
    pub const fn is(self, place: usize) -> bool {
        place < MAX_FDS && self.0 & (1 << place) != 0
    }

    /// Returns whether any was ready.
    pub const fn any(self) -> bool {
        self.0 != 0
    }
}

/// Sleeps until one of `fds` can be read or was hung up, or until `deadline`. Signals do not end it.
///
/// [`ppoll(2)`](https://man7.org/linux/man-pages/man2/ppoll.2.html).
///
/// # Errors
/// `EINVAL` for more than [`MAX_FDS`] descriptors; `ENOMEM`.
pub fn wait_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<Ready, Errno> {
    let mut polls: Vec<_> = fds.iter().map(|fd| readable(*fd)).collect();
    wait(&mut polls, deadline)
}

/// Sleeps until the descriptor can be written or was hung up, or until `deadline`; returns whether it is.
///
/// # Errors
/// `ENOMEM`.
pub fn wait_writable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool, Errno> {
    wait(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], deadline).map(Ready::any)
}

/// Creates an entry that waits until the descriptor can be read.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::RDHUP)
}

/// Creates an entry that waits until the other end hangs up, whatever can be read.
pub(crate) fn hung_up(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)
}

/// Sleeps until one of `polls` has its event, or until `deadline`.
pub(crate) fn wait(polls: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<Ready, Errno> {
    if polls.len() > MAX_FDS {
        return Err(Errno::INVAL);
    }
    loop {
        let left = clock::left(deadline).map(clock::span);
        match poll(polls, left.as_ref()) {
            Ok(_) => break,
            // The deadline is absolute: the next round computes the remaining time.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let ready = polls.iter().enumerate().filter(|(_, poll)| !poll.revents().is_empty());
    Ok(Ready(ready.fold(0, |bits, (place, _)| bits | 1 << place)))
}
