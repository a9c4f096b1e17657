//! Waiting for descriptors.

mod epoll;
#[cfg(feature = "io-uring")]
mod uring;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bellwire_core::{Backend, InUse, Instant};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub use epoll::Epoll;
#[cfg(feature = "io-uring")]
pub use uring::Uring;

use crate::clock;

/// The most descriptors that one [`wait_readable`] takes.
pub const MAX_FDS: usize = 64;

/// What waits for many things, by the name that every transport has for it: epoll or io_uring behind one seam.
///
/// It belongs to the thread that made it.
#[derive(Debug)]
pub enum Poller {
    /// By [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html).
    Epoll(Epoll),
    /// By [`io_uring(7)`](https://man7.org/linux/man-pages/man7/io_uring.7.html).
    #[cfg(feature = "io-uring")]
    Uring(Box<Uring>),
}

/// When a descriptor that stays ready is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// At each wait.
    Level,
    /// Once for each thing that happens; the descriptor need not be read.
    Edge,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What it was added with.
    pub token: u64,
    /// It can be read; a pidfd whose process ended counts.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// The other end hung up, or it failed.
    pub hung_up: bool,
}

/// What to hear about a descriptor besides that its other end hung up, which is always reported.
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
    /// As epoll gives them.
    raw: Vec<epoll::RawEvent>,
    /// As they are, from io_uring.
    #[cfg(feature = "io-uring")]
    found: Vec<Event>,
    most: usize,
}

/// Which of the descriptors of one wait were ready, by their place in it. Empty after the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready(u64);

impl Interest {
    /// Readable, with this trigger.
    pub const fn readable(trigger: Trigger) -> Self {
        Self { readable: true, writable: false, trigger }
    }
}

impl Events {
    /// Room for `most` events per wait.
    pub fn with_capacity(most: usize) -> Self {
        Self { most: most.max(1), ..Self::default() }
    }

    /// The events of the last wait.
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
    /// Whether it tells that a peer has hung up also while nothing else of its channel is asked for.
    pub const HEARS_END: bool = true;

    /// A new one, empty, that waits with what is `wanted` where that can be had, and what that is.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` at the limit of open files.
    pub fn choose(wanted: Backend) -> Result<(Self, InUse), Errno> {
        let why_not = match wanted {
            Backend::IoUring => match try_uring() {
                Ok(poller) => return Ok((poller, InUse { backend: wanted, why_not: None })),
                Err(why) => Some(why),
            },
            Backend::ThreadPool => Some("the thread pool waits on Windows only"),
            _ => None,
        };
        let in_use = InUse { backend: Backend::Epoll, why_not };
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

    /// Watches `fd`, which is watched already, for something else.
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

    /// Stops watching `fd`, and lets go of it: its last owner may close it.
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

    /// Waits until something is ready or `timeout` is over (`None`: for ever), and says how many events
    /// there are. A signal ends the wait with none.
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

    /// Waits until something is ready or, now that it is `now`, `until` is over (`None`: for ever), and says how many events
    /// there are. It may end earlier with none. For who waits often and has a deadline that is seldom met.
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

/// What waits with io_uring, or why that cannot be had.
#[cfg(feature = "io-uring")]
fn try_uring() -> Result<Poller, &'static str> {
    Uring::create().map(|uring| Poller::Uring(Box::new(uring))).map_err(uring::why_not)
}

#[cfg(not(feature = "io-uring"))]
fn try_uring() -> Result<Poller, &'static str> {
    Err("this program was built without the feature io-uring")
}

impl Ready {
    /// Whether the descriptor at `place` was ready.
    pub const fn is(self, place: usize) -> bool {
        place < MAX_FDS && self.0 & (1 << place) != 0
    }

    /// Whether any was.
    pub const fn any(self) -> bool {
        self.0 != 0
    }
}

/// Sleeps until one of `fds` can be read, was hung up, or `deadline`. Signals do not end it.
///
/// [`ppoll(2)`](https://man7.org/linux/man-pages/man2/ppoll.2.html).
///
/// # Errors
/// `EINVAL` for more than [`MAX_FDS`] descriptors; `ENOMEM`.
pub fn wait_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<Ready, Errno> {
    let mut polls: Vec<_> = fds.iter().map(|fd| readable(*fd)).collect();
    wait(&mut polls, deadline)
}

/// The same for who only wants to know whether any is ready: by the name that every transport has.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait_any(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<bool, Errno> {
    wait_readable(fds, deadline).map(Ready::any)
}

/// A descriptor to wait for until it can be read.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::RDHUP)
}

/// A descriptor to wait for until its other end hangs up, whatever can be read.
pub(crate) fn hung_up(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)
}

/// Sleeps until one of `polls` has what it waits for, or `deadline`.
pub(crate) fn wait(polls: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<Ready, Errno> {
    if polls.len() > MAX_FDS {
        return Err(Errno::INVAL);
    }
    loop {
        let left = clock::left(deadline).map(clock::span);
        match poll(polls, left.as_ref()) {
            Ok(_) => break,
            // The deadline is a point in time: what is left of it is computed anew.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let ready = polls.iter().enumerate().filter(|(_, poll)| !poll.revents().is_empty());
    Ok(Ready(ready.fold(0, |bits, (place, _)| bits | 1 << place)))
}
