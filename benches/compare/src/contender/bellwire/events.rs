//! A publisher of events and its subscribers.

use std::time::Duration;

use bellwire::{Delivery, Event, EventPublisher, RunDir, ServerBuilder, StartAt, Subscriber};

use crate::Outcome;
use crate::burst::Burst;
use crate::contender;
use crate::load::Case;

/// How long an event may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What is kept for a slow reader, in bytes: a burst of the longest events.
const DEPTH: u64 = 256 << 10;

/// Events of a fixed length.
pub(super) struct Message<const N: usize>;

impl<const N: usize> Event for Message<N> {
    const NAME: &'static str = if N == 64 { "bench-events-64" } else { "bench-events-1024" };
    type Message = [u8; N];
}

/// One for each length.
pub(super) struct Publishers {
    short: EventPublisher<Message<64>>,
    long: EventPublisher<Message<1024>>,
}

impl Publishers {
    pub(super) fn new(builder: &mut ServerBuilder) -> Outcome<Self> {
        Ok(Self { short: builder.events(DEPTH)?, long: builder.events(DEPTH)? })
    }

    pub(super) fn send(&self, mut burst: Burst) -> Outcome<()> {
        while let Some(event) = burst.next() {
            match event.len() {
                64 => self.short.send(event.try_into()?)?,
                _ => self.long.send(event.try_into()?)?,
            };
        }
        Ok(())
    }
}

/// A subscriber that follows its publisher.
pub(super) fn subscriber<const N: usize>(case: &Case) -> Subscriber<Message<N>> {
    let mut subscriber = Subscriber::new(&RunDir::new(case.dir()), StartAt::Now);
    while !subscriber.is_following() && subscriber.try_next().is_ok() {
        std::thread::yield_now();
    }
    subscriber
}

impl<const N: usize> contender::Client for Subscriber<Message<N>> {
    #[inline]
    fn event(&mut self, into: &mut [u8]) -> Outcome<usize> {
        match self.next(Some(TIMEOUT))? {
            Some(Delivery::Event { event, .. }) => contender::put(&event, into),
            _ => Err("an event was lost: do not use these figures".into()),
        }
    }
}
