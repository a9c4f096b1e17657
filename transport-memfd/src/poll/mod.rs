//! Waiting for descriptors.

mod epoll;
#[cfg(feature = "io-uring")]
mod uring;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bellwire_core::{Backend, BackendStatus, Instant};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub use epoll::Epoll;
#[cfg(feature = "io-uring")]
pub use uring::Uring;

use crate::clock;

/// The maximum number of descriptors for one [`wait_readable`].
pub const MAX_FDS: usize = 64;

/// Waits for many descriptors, with epoll or io_uring; every transport has a type of this name.
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

/// When a descriptor that stays ready is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// At each wait while it stays ready.
    Level,
    /// Once for each event; the descriptor need not be read.
    Edge,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The token passed to `add`.
    pub token: u64,
    /// It can be read; also set for a pidfd whose process ended.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// The other end hung up, or the descriptor failed.
    pub hung_up: bool,
}

/// What to report about a descriptor, besides a hang-up, which is always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interest {
    /// Report when it can be read.
    pub readable: bool,
    /// Report when it can be written.
    pub writable: bool,
    /// How often.
    pub trigger: Trigger,
}

/// Room for the events of one wait, reused from one to the next.
#[derive(Default)]
pub struct Events {
    /// From epoll, in its format.
    raw: Vec<epoll::RawEvent>,
    /// From io_uring, converted.
    #[cfg(feature = "io-uring")]
    found: Vec<Event>,
    most: usize,
}

/// Which of the descriptors of one wait were ready, by position. Empty after the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready(u64);

impl Interest {
    /// Reports readable, with this trigger.
    pub const fn readable(trigger: Trigger) -> Self {
        Self { readable: true, writable: false, trigger }
    }

    /// Reports whichever of the two is wanted, as long as it lasts; every transport has a function of this name.
    pub const fn exchange(readable: bool, writable: bool) -> Self {
        Self { readable, writable, trigger: Trigger::Level }
    }
}

impl Events {
    /// Creates room for `most` events per wait.
    pub fn with_capacity(most: usize) -> Self {
        Self { most: most.max(1), ..Self::default() }
    }

    /// Returns the events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
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

impl Poller {
    /// Whether a peer's hang-up is reported even if nothing else about its channel is of interest.
    pub const REPORTS_HANGUP: bool = true;

    /// Creates an empty poller with the `wanted` backend where available, and returns which backend it uses.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` at the limit of open files.
    pub fn choose(wanted: Backend) -> Result<(Self, BackendStatus), Errno> {
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

    /// Watches `fd` from the next wait on. Delete it before it is closed. No token may be `u64::MAX`.
    ///
    /// # Errors
    /// `EEXIST` when epoll watches it already, `ENOSPC` past `/proc/sys/fs/epoll/max_user_watches`.
    pub fn add(&mut self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        match self {
            Self::Epoll(epoll) => epoll.add(fd, token, interest),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.add(fd, token, interest),
        }
    }

    /// Changes what an already watched `fd` is watched for.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn modify(&mut self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        match self {
            Self::Epoll(epoll) => epoll.modify(fd, token, interest),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.modify(fd, token, interest),
        }
    }

    /// Stops watching `fd` and releases it: its last owner may close it.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn delete(&mut self, fd: impl AsFd) -> Result<(), Errno> {
        match self {
            Self::Epoll(epoll) => epoll.delete(fd),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.delete(fd),
        }
    }

    /// Waits until something is ready or `timeout` is over (`None`: forever), and returns the number of events. A signal ends
    /// the wait with none.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        match self {
            Self::Epoll(epoll) => epoll.wait(events, timeout),
            #[cfg(feature = "io-uring")]
            Self::Uring(uring) => uring.wait(events, timeout),
        }
    }

    /// Waits until something is ready or `until` has passed (`None`: forever), and returns the number of events; `now` is the
    /// current time. It may end earlier without an event. For callers that wait often with a deadline that rarely expires.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    pub fn sleep(
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

/// Same as [`wait_readable`], but returns only whether any is ready; every transport has a function of this name.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait_any(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<bool, Errno> {
    wait_readable(fds, deadline).map(Ready::any)
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
