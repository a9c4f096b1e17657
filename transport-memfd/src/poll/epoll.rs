//! Waiting with epoll.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bellwire_core::Instant;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::{Event, Events, Interest, Trigger};
use crate::clock;

pub(super) use rustix::event::epoll::Event as RawEvent;

/// From here on a deadline is left to the [`Alarm`]: the kernel makes and cancels a timer for each wait that has a timeout,
/// whether it comes to it or not.
const FAR: Duration = Duration::from_millis(100);
/// The alarm's token: no other may be the same.
const ALARM: u64 = u64::MAX;

/// An [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html) instance, `CLOEXEC`.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
    alarm: Option<Alarm>,
}

/// A timer among what is waited for, which many waits have in common. It stays set when a wait ends before it, and is set
/// again only for an earlier time, or once it has rung: then a wait may end with nothing.
#[derive(Debug)]
struct Alarm {
    timer: OwnedFd,
    rings_at: Option<Instant>,
}

impl Epoll {
    /// A new one, empty. It takes two descriptors, or one where a timer cannot be had.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` at the limit of open files.
    pub fn create() -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let alarm = Alarm::watched_by(&epoll).ok();
        Ok(Self { epoll, alarm })
    }

    /// Watches `fd`. It is forgotten when the last copy of its description is closed: delete what a peer
    /// shares.
    ///
    /// # Errors
    /// `EEXIST` when it is watched already, `ENOSPC` past `/proc/sys/fs/epoll/max_user_watches`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags(interest))
    }

    /// Watches `fd`, which is watched already, for something else.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags(interest))
    }

    /// Stops watching `fd`.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn delete(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, fd)
    }

    /// Waits until something is ready or `timeout` is over (`None`: for ever), and says how many events
    /// there are. A signal ends the wait with none.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        events.clear();
        events.raw.reserve(events.most);
        let timeout = timeout.map(clock::span);
        let found = rustix::buffer::spare_capacity(&mut events.raw);
        match epoll::wait(&self.epoll, found, timeout.as_ref()) {
            Err(Errno::INTR) => Ok(0),
            result => result.map(|count| count - usize::from(self.hear_alarm(events))),
        }
    }

    /// Waits until something is ready or, now that it is `now`, `until` is over. It may end earlier with no event.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn sleep(
        &mut self,
        events: &mut Events,
        now: Instant,
        until: Option<Instant>,
    ) -> Result<usize, Errno> {
        let left = until.map(|until| until.since(now));
        let rings = match (until, &mut self.alarm) {
            (Some(until), Some(alarm)) if left >= Some(FAR) => alarm.set(now, until).is_ok(),
            _ => false,
        };
        let timeout = if rings { None } else { left };
        self.wait(events, timeout)
    }

    /// Whether the alarm was among the events, where it is no more.
    #[inline]
    fn hear_alarm(&mut self, events: &mut Events) -> bool {
        let Some(alarm) = &mut self.alarm else { return false };
        let is_alarm = |event: &RawEvent| event.data.u64() == ALARM;
        let Some(at) = events.raw.iter().position(is_alarm) else { return false };
        events.raw.swap_remove(at);
        alarm.rings_at = None;
        true
    }
}

impl Alarm {
    fn watched_by(epoll: &OwnedFd) -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // By its edge: it is never read.
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(epoll, &timer, EventData::new_u64(ALARM), edge)?;
        Ok(Self { timer, rings_at: None })
    }

    /// Has a wait, now that it is `now`, end at `at` or before.
    fn set(&mut self, now: Instant, at: Instant) -> Result<(), Errno> {
        if self.rings_at.is_some_and(|rings_at| now < rings_at && rings_at <= at) {
            return Ok(());
        }
        let (it_interval, it_value) = (clock::span(Duration::ZERO), clock::absolute(at));
        let time = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time)?;
        self.rings_at = Some(at);
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
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
