//! Waiting for descriptors.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bellwire_core::Instant;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;

use crate::clock;

/// The most descriptors that one [`wait_readable`] takes.
pub const MAX_FDS: usize = 64;

/// An [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html) instance, `CLOEXEC`.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// By the name that every transport has for what waits for many things.
pub type Poller = Epoll;

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
    raw: Vec<epoll::Event>,
}

/// Which of the descriptors of one wait were ready, by their place in it. Empty after the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready(u64);

impl Interest {
    /// Readable, with this trigger.
    pub const fn readable(trigger: Trigger) -> Self {
        Self { readable: true, writable: false, trigger }
    }

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::RDHUP;
        flags.set(EventFlags::IN, self.readable);
        flags.set(EventFlags::OUT, self.writable);
        flags.set(EventFlags::ET, self.trigger == Trigger::Edge);
        flags
    }
}

impl Events {
    /// Room for `most` events per wait.
    pub fn with_capacity(most: usize) -> Self {
        Self { raw: Vec::with_capacity(most.max(1)) }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.raw.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            Event {
                token: data.u64(),
                readable: flags.contains(EventFlags::IN),
                writable: flags.contains(EventFlags::OUT),
                hung_up: flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Epoll {
    /// A new one, empty.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` at the limit of open files.
    pub fn create() -> Result<Self, Errno> {
        epoll::create(CreateFlags::CLOEXEC).map(Self)
    }

    /// Watches `fd`. It is forgotten when the last copy of its description is closed: delete what a peer
    /// shares.
    ///
    /// # Errors
    /// `EEXIST` when it is watched already, `ENOSPC` past `/proc/sys/fs/epoll/max_user_watches`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.0, fd, EventData::new_u64(token), interest.flags())
    }

    /// Whether it tells that a peer has hung up also while nothing else of its channel is asked for.
    pub const HEARS_END: bool = true;

    /// Watches `fd`, which is watched already, for something else.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::modify(&self.0, fd, EventData::new_u64(token), interest.flags())
    }

    /// Stops watching `fd`.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn delete(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.0, fd)
    }

    /// Waits until something is ready or `timeout` is over (`None`: for ever), and says how many events
    /// there are. A signal ends the wait with none.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        events.raw.clear();
        let timeout = timeout.map(clock::span);
        match epoll::wait(
            &self.0,
            rustix::buffer::spare_capacity(&mut events.raw),
            timeout.as_ref(),
        ) {
            Err(Errno::INTR) => Ok(0),
            result => result,
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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
