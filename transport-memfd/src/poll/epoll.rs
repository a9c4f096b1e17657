//! Waiting with epoll.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::{Event, Events, Interest, Trigger};
use crate::clock;

pub(super) use rustix::event::epoll::Event as RawEvent;

/// An [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html) instance, `CLOEXEC`.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

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
        epoll::add(&self.0, fd, EventData::new_u64(token), flags(interest))
    }

    /// Watches `fd`, which is watched already, for something else.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::modify(&self.0, fd, EventData::new_u64(token), flags(interest))
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
        events.clear();
        events.raw.reserve(events.most);
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

fn flags(interest: Interest) -> EventFlags {
    let mut flags = EventFlags::RDHUP;
    flags.set(EventFlags::IN, interest.readable);
    flags.set(EventFlags::OUT, interest.writable);
    flags.set(EventFlags::ET, interest.trigger == Trigger::Edge);
    flags
}

pub(super) fn event(raw: &RawEvent) -> Event {
    let (flags, data) = (raw.flags, raw.data);
    Event {
        token: data.u64(),
        readable: flags.contains(EventFlags::IN),
        writable: flags.contains(EventFlags::OUT),
        hung_up: flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR),
    }
}
