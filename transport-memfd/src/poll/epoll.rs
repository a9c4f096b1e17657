//! Waiting with epoll.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bellwire_core::Instant;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::{Events, Interest, PollEvent, Trigger};
use crate::clock;

pub(super) use rustix::event::epoll::Event as RawEvent;

/// The alarm's token, which no other descriptor may use.
const ALARM: u64 = u64::MAX;

/// An [`epoll(7)`](https://man7.org/linux/man-pages/man7/epoll.7.html) instance, `CLOEXEC`.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
    alarm: Option<Alarm>,
}

/// A timer in the epoll set, shared by many waits: a wait with a timeout would set and cancel a timer each time, even if it
/// does not expire, and would round up to a millisecond, so that a caller with such a period would find that work beside each
/// of its calls. It stays set when a wait ends early, and is set again only for an earlier time or once it has expired. So a
/// wait may end without an event.
#[derive(Debug)]
struct Alarm {
    timer: OwnedFd,
    rings_at: Option<Instant>,
}

impl Epoll {
    /// Creates an empty instance. It takes two descriptors, or one where no timer is available.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` at the limit of open files.
    pub fn create() -> Result<Self, Errno> {
        let mut epoll = Self::without_alarm()?;
        epoll.alarm = Alarm::watched_by(&epoll.epoll).ok();
        Ok(epoll)
    }

    /// Creates an empty instance that others poll; it takes one descriptor.
    pub(crate) fn without_alarm() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, alarm: None })
    }

    /// Watches `fd`. The kernel forgets it when the last copy of its description is closed, so delete descriptors that a peer
    /// shares.
    ///
    /// # Errors
    /// `EEXIST` when it is watched already, `ENOSPC` past `/proc/sys/fs/epoll/max_user_watches`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags(interest))
    }

    /// Changes what an already watched `fd` is watched for.
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

    /// Waits until something is ready or `timeout` is over (`None`: forever), and returns the number of events. A signal ends
    /// the wait with none.
    ///
    /// # Errors
    /// None in a correct program.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        events.clear();
        events.raw.reserve(events.most);
        let timeout = timeout.map(clock::span);
        let found = rustix::buffer::spare_capacity(&mut events.raw);
        match epoll::wait(&self.epoll, found, timeout.as_ref()) {
            Err(Errno::INTR) => Ok(0),
            result => result.map(|count| count - usize::from(self.drain_timer(events))),
        }
    }

    /// Waits until something is ready or `until` has passed; `now` is the current time. It may end earlier without an event.
    ///
    /// # Errors
    /// None in a correct program.
    pub fn sleep(
        &mut self,
        events: &mut Events,
        now: Instant,
        until: Option<Instant>,
    ) -> Result<usize, Errno> {
        let rings = match (until, &mut self.alarm) {
            (Some(until), Some(alarm)) if until > now => alarm.set(now, until).is_ok(),
            _ => false,
        };
        let timeout = if rings { None } else { until.map(|until| until.since(now)) };
        self.wait(events, timeout)
    }

    /// Removes the alarm from the events and returns whether it was among them.
    #[inline]
    fn drain_timer(&mut self, events: &mut Events) -> bool {
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
        // Edge-triggered: it is never read.
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(epoll, &timer, EventData::new_u64(ALARM), edge)?;
        Ok(Self { timer, rings_at: None })
    }

    /// Sets the alarm so that a wait ends at `at` or before; `now` is the current time.
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

pub(super) fn event(raw: &RawEvent) -> PollEvent {
    let (flags, data) = (raw.flags, raw.data);
    PollEvent {
        token: data.u64(),
        readable: flags.contains(EventFlags::IN),
        writable: flags.contains(EventFlags::OUT),
        hung_up: flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR),
    }
}
