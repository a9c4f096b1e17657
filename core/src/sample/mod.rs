//! Samples for a tracer: which messages are stamped, where the stamps travel, and what is told of them.
//!
//! The sender of a sampled message writes an entry in the table in its page, before the store to Tail that publishes
//! the message; whoever takes the message looks there under the position at which its last record ends. Neither looks
//! unless a tracer is attached to the process. `docs/tracing.md` has the whole picture, `docs/wire.md` the table.

mod chooser;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bellwire_probes::{self as probes, Sample, Session, Wish};

pub use chooser::Chooser;

use crate::wire::{Role, Stamps, sample_slot};
use crate::{Instant, OwnMemory, PeerMemory, ServiceName};

/// Sampled messages of which something is yet to come, at most: older ones are forgotten.
const MOST_AWAITED: usize = 64;

/// The calling end's samples: requests that it sends, answers that it takes.
#[derive(Debug)]
pub struct Asking {
    session: Session,
    outgoing: Outgoing,
    chooser: Chooser,
    /// When the message began that waits for room.
    begun: Option<Instant>,
    /// The next message is one that has waited for room: it was chosen or not.
    is_retry: bool,
}

/// The serving end's samples: requests that it takes, answers that it sends to those.
#[derive(Debug)]
pub struct Answering {
    session: Session,
    outgoing: Outgoing,
    /// The answer that is being written, and when it began.
    begun: Option<(u64, Instant)>,
    /// Answers that were begun and wait for room.
    owed: VecDeque<(u64, Instant)>,
    /// Sampled requests that were not answered yet.
    taken: VecDeque<u64>,
}

/// What one end stamps.
#[derive(Debug)]
struct Outgoing {
    /// Both ends know the table.
    is_agreed: bool,
    /// Messages that were written and not published: where they end, and when they were begun.
    unpublished: Vec<(u64, u64)>,
}

/// Who a session is, for a tracer: what the server calls it, when it made its page, and which process is at the other
/// end.
#[must_use]
pub fn session(
    service: ServiceName,
    number: u64,
    created: u64,
    role: Role,
    peer: Option<u32>,
) -> Session {
    Session::new(service.as_str().as_bytes(), number, created, role as u32, peer)
}

impl Asking {
    /// Of a session whose ends have agreed on samples, or not; `seed` is any number.
    pub fn new(session: Session, is_agreed: bool, seed: u64) -> Self {
        Self {
            session,
            outgoing: Outgoing::new(is_agreed),
            chooser: Chooser::new(seed),
            begun: None,
            is_retry: false,
        }
    }

    /// Of no session: nothing is sampled.
    pub fn nothing() -> Self {
        Self::new(Session::all(Role::Client as u32), false, 0)
    }

    /// Who this is.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// A request begins, before it is written.
    #[inline]
    pub fn begin(&mut self, now: impl FnOnce() -> Instant) {
        let wish = probes::wish();
        if wish.is_sampling() && self.outgoing.is_agreed {
            self.begin_wished(wish, now);
        }
    }

    /// Not inlined: a request that nobody traces is to pay for the two tests above only.
    #[inline(never)]
    fn begin_wished(&mut self, wish: Wish, now: impl FnOnce() -> Instant) {
        if self.is_retry || !self.chooser.skips(wish) {
            self.begin_chosen(wish, now);
        } else if self.begun.is_some() {
            self.begun = None;
        }
    }

    #[cold]
    fn begin_chosen(&mut self, wish: Wish, now: impl FnOnce() -> Instant) {
        if core::mem::take(&mut self.is_retry) {
            return;
        }
        let now = now();
        self.begun = self.chooser.choose(wish, now).then_some(now);
    }

    /// The request was written and ends at `end`.
    #[inline]
    pub fn wrote(&mut self, end: u64) {
        if let Some(begun) = self.begun {
            self.begun = None;
            self.outgoing.wrote(end, begun);
        }
    }

    /// The request that was begun was not written, and begins again at once.
    #[cold]
    pub fn begins_again(&mut self) {
        self.is_retry = probes::wish().is_sampling() && self.outgoing.is_agreed;
    }

    /// The request that was begun goes on after a wait for room, or does not.
    pub fn waited_for_room(&mut self, goes_on: bool) {
        if probes::wish().is_sampling() {
            self.is_retry = goes_on;
            if !goes_on {
                self.begun = None;
            }
        }
    }

    /// This end has slept.
    pub fn slept(&mut self, now: Instant) {
        if probes::wish().is_sampling() && self.outgoing.is_agreed {
            self.chooser.paused(now);
        }
    }

    /// What was written is about to be published.
    #[inline]
    pub fn publish<O: OwnMemory>(&mut self, own: &O, now: impl FnOnce() -> Instant) {
        self.outgoing.publish(own, now);
    }

    /// The answer to `id` was taken, `length` bytes that end at position `end()` of the peer's lane.
    #[inline]
    pub fn took<P: PeerMemory>(
        &mut self,
        peer: &P,
        id: u64,
        length: usize,
        end: impl FnOnce() -> u64,
        now: impl FnOnce() -> Instant,
    ) {
        if self.outgoing.is_reading()
            && let Some(end) = stamped_end(peer, end())
            && let Some(sample) = taken(peer, id, length, end, now)
        {
            probes::reply(&self.session, &sample);
        }
    }
}

impl Answering {
    /// Of a session whose ends have agreed on samples, or not.
    pub fn new(session: Session, is_agreed: bool) -> Self {
        Self {
            session,
            outgoing: Outgoing::new(is_agreed),
            begun: None,
            owed: VecDeque::new(),
            taken: VecDeque::new(),
        }
    }

    /// Who this is.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The request `id` was taken, `length` bytes that end at position `end()` of the peer's lane.
    #[inline]
    pub fn took<P: PeerMemory>(
        &mut self,
        peer: &P,
        id: u64,
        length: usize,
        end: impl FnOnce() -> u64,
        now: impl FnOnce() -> Instant,
    ) {
        if self.outgoing.is_reading()
            && let Some(end) = stamped_end(peer, end())
            && let Some(sample) = taken(peer, id, length, end, now)
        {
            keep(&mut self.taken, id);
            probes::message(&self.session, &sample);
        }
    }

    /// The answer to `id` begins, before it is written.
    #[inline]
    pub fn begin(&mut self, id: u64, now: impl FnOnce() -> Instant) {
        if !self.taken.is_empty() {
            self.begin_taken(id, now);
        }
    }

    #[cold]
    fn begin_taken(&mut self, id: u64, now: impl FnOnce() -> Instant) {
        if let Some(at) = self.taken.iter().position(|taken| *taken == id) {
            self.taken.remove(at);
            self.begun = Some((id, now()));
        }
    }

    /// The answer that was begun was written and ends at `end`; `None` when it waits for room.
    #[inline]
    pub fn wrote(&mut self, end: Option<u64>) {
        if let Some(begun) = self.begun {
            self.begun = None;
            self.wrote_begun(begun, end);
        }
    }

    #[cold]
    fn wrote_begun(&mut self, (id, begun): (u64, Instant), end: Option<u64>) {
        match end {
            Some(end) => self.outgoing.wrote(end, begun),
            None => keep(&mut self.owed, (id, begun)),
        }
    }

    /// The answer to `id` has waited for room, was written and ends at `end`.
    pub fn wrote_owed(&mut self, id: u64, end: u64) {
        if let Some(at) = self.owed.iter().position(|(owed, _)| *owed == id)
            && let Some((_, begun)) = self.owed.remove(at)
        {
            self.outgoing.wrote(end, begun);
        }
    }

    /// What was written is about to be published.
    #[inline]
    pub fn publish<O: OwnMemory>(&mut self, own: &O, now: impl FnOnce() -> Instant) {
        self.outgoing.publish(own, now);
    }
}

impl Outgoing {
    fn new(is_agreed: bool) -> Self {
        Self { is_agreed, unpublished: Vec::new() }
    }

    /// Whether the peer's table is looked at.
    #[inline]
    fn is_reading(&self) -> bool {
        probes::wish().is_sampling() && self.is_agreed
    }

    #[cold]
    fn wrote(&mut self, end: u64, begun: Instant) {
        self.unpublished.push((end, begun.as_nanos()));
    }

    #[inline]
    fn publish<O: OwnMemory>(&mut self, own: &O, now: impl FnOnce() -> Instant) {
        if !self.unpublished.is_empty() {
            self.stamp(own, now);
        }
    }

    #[cold]
    fn stamp<O: OwnMemory>(&mut self, own: &O, now: impl FnOnce() -> Instant) {
        let published = now().as_nanos();
        for (end, sent) in self.unpublished.drain(..) {
            own.stamp(sample_slot(end), Stamps { sent, published }.entry(end));
        }
    }
}

/// `end`, if the peer's table seems to have something on the message that ends there: one load tells for nearly all that
/// it has not.
#[inline]
fn stamped_end<P: PeerMemory>(peer: &P, end: u64) -> Option<u64> {
    (peer.stamped_end(sample_slot(end)) == end).then_some(end)
}

/// The sample of the message `id` that ends at `end`, which was taken now.
#[cold]
fn taken<P: PeerMemory>(
    peer: &P,
    id: u64,
    length: usize,
    end: u64,
    now: impl FnOnce() -> Instant,
) -> Option<Sample> {
    let stamps = Stamps::parse(peer.stamped(sample_slot(end)), end)?;
    Some(Sample {
        sequence: id,
        sent: stamps.sent,
        published: stamps.published,
        received: now().as_nanos(),
        length: length as u64,
    })
}

/// Keeps one more, and forgets the oldest instead of growing.
fn keep<T>(kept: &mut VecDeque<T>, one: T) {
    if kept.len() == MOST_AWAITED {
        kept.pop_front();
    }
    kept.push_back(one);
}
