use std::time::Duration;

use bellwire_core::Instant;
use bellwire_core::end::SHRINK_AFTER;
use bellwire_core::wire::Status;

use crate::{Serving, SimEnd, Taken};

/// What the peer does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It continues immediately.
    Again,
    /// It is busy until then and ignores rings.
    Busy(Instant),
    /// It is armed and parked until it is rung, or until then.
    Parked(Option<Instant>),
    /// Its process ends: the driven end's waits return [`Woken::PeerGone`](bellwire_core::Woken::PeerGone) from now on.
    Gone,
}

/// The other end of a simulated session: a closure, or a [`SimServer`].
pub trait Peer {
    /// Runs for one step. Called while the driven end spins or is parked.
    fn step(&mut self, end: &SimEnd) -> Step;
}

impl<F: FnMut(&SimEnd) -> Step> Peer for F {
    fn step(&mut self, end: &SimEnd) -> Step {
        self(end)
    }
}

/// A peer that serves requests with a handler, one after the other, and parks when there are none.
#[derive(Debug)]
pub struct SimServer<H> {
    handler: H,
    takes: Duration,
    attach_from: usize,
    stream_from: usize,
    shrink_after: Duration,
    serving: Option<Serving>,
    /// The answer that the handler is computing.
    answer: Option<(u64, Status, Vec<u8>)>,
}

impl<H: FnMut(&[u8]) -> (Status, Vec<u8>)> SimServer<H> {
    /// Creates a server whose handler takes no time.
    pub fn new(handler: H) -> Self {
        Self {
            handler,
            takes: Duration::ZERO,
            attach_from: usize::MAX,
            stream_from: usize::MAX,
            shrink_after: SHRINK_AFTER,
            serving: None,
            answer: None,
        }
    }

    /// Makes the handler take this much virtual time for each request.
    #[must_use]
    pub fn taking(mut self, time: Duration) -> Self {
        self.takes = time;
        self
    }

    /// Attaches answers of at least this many bytes.
    #[must_use]
    pub fn attaching(mut self, from: usize) -> Self {
        self.attach_from = from;
        self
    }

    /// Sends answers of at least this many bytes in parts.
    #[must_use]
    pub fn streaming(mut self, from: usize) -> Self {
        self.stream_from = from;
        self
    }

    /// Shrinks a lane that has been oversized for this long.
    #[must_use]
    pub fn shrinking_after(mut self, span: Duration) -> Self {
        self.shrink_after = span;
        self
    }
}

impl<H: FnMut(&[u8]) -> (Status, Vec<u8>)> Peer for SimServer<H> {
    fn step(&mut self, end: &SimEnd) -> Step {
        let serving = self.serving.get_or_insert_with(|| {
            Serving::new(end, u64::MAX)
                .attaching(self.attach_from)
                .streaming(self.stream_from)
                .shrinking_after(self.shrink_after)
        });
        serving.wake_up();
        if let Some((id, status, payload)) = self.answer.take() {
            serving.respond(id, status, &payload);
        }
        serving.flush();
        serving.commit();
        match serving.take() {
            Ok(Some(Taken::Request { id, payload, .. })) => {
                let (status, answer) = (self.handler)(&payload);
                self.answer = Some((id, status, answer));
                Step::Busy(end.now().after(self.takes))
            }
            Ok(Some(Taken::Cancel { .. })) => Step::Again,
            Ok(None) if serving.closed().is_some() => Step::Parked(None),
            Ok(None) => serving.park(),
            Err(step) => step,
        }
    }
}
