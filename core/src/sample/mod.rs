//! Samples for a tracer: which messages are timestamped, how the timestamps travel, and what is traced.
//!
//! Before the store to `tail` that publishes a sampled message, its sender writes an entry in the table in its page.
//! The receiver looks the entry up by the position at which the message's last record ends. Both do so only while a
//! tracer is attached to the process. `docs/tracing.md` explains the whole mechanism, `docs/wire.md` the table.

mod chooser;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bellwire_probes::{self as probes, Sample, SamplingMask, Session};

pub use chooser::Chooser;

use crate::wire::{Role, Stamps, sample_slot};
use crate::{Instant, OwnMemory, PeerMemory, ServiceName};

/// The most incomplete samples kept; older ones are dropped.
const MOST_AWAITED: usize = 64;

/// The calling end's samples: requests that it sends, answers that it takes.
#[derive(Debug)]
pub struct ClientTrace {
    session: Session,
    outgoing: Outgoing,
    chooser: Chooser,
    /// When the message that waits for room was started.
    begun: Option<Instant>,
    /// Whether the next message has waited for room, and so was already chosen or skipped.
    is_retry: bool,
}

/// The serving end's samples: requests that it takes, and its answers to those.
#[derive(Debug)]
pub struct ServerTrace {
    session: Session,
    outgoing: Outgoing,
    /// The answer that is being written, and when it was started.
    begun: Option<(u64, Instant)>,
    /// Answers that were started and wait for room.
    owed: VecDeque<(u64, Instant)>,
    /// Sampled requests that are not answered yet.
    taken: VecDeque<u64>,
}

/// The timestamps of one end.
#[derive(Debug)]
struct Outgoing {
    /// Whether both ends support the table.
    is_agreed: bool,
    /// Unpublished messages: their end positions, and when they were started.
    unpublished: Vec<(u64, u64)>,
}

/// The identity of a session for a tracer: the server's number of it, when the server created its page, and the
/// process at the other end.
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

impl ClientTrace {
    /// Creates the samples of a session; `is_agreed` is whether both ends support them, `seed` any number.
    pub fn new(session: Session, is_agreed: bool, seed: u64) -> Self {
        Self {
            session,
            outgoing: Outgoing::new(is_agreed),
            chooser: Chooser::new(seed),
            begun: None,
            is_retry: false,
        }
    }

    /// Creates the samples of no session: nothing is sampled.
    pub fn nothing() -> Self {
        Self::new(Session::all(Role::Client as u32), false, 0)
    }

    /// Returns the identity of the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Starts a request, before it is written.
    #[inline]
    pub fn begin(&mut self, now: impl FnOnce() -> Instant) {
        let mask = probes::sampling_mask();
        if mask.is_sampling() && self.outgoing.is_agreed {
            self.begin_masked(mask, now);
        }
    }

    /// Not inlined: an untraced request pays only for the two tests above.
    #[inline(never)]
    fn begin_masked(&mut self, mask: SamplingMask, now: impl FnOnce() -> Instant) {
        if self.is_retry || !self.chooser.skips(mask) {
            self.begin_chosen(mask, now);
        } else if self.begun.is_some() {
            self.begun = None;
        }
    }

    #[cold]
    fn begin_chosen(&mut self, mask: SamplingMask, now: impl FnOnce() -> Instant) {
        if core::mem::take(&mut self.is_retry) {
            return;
        }
        let now = now();
        self.begun = self.chooser.choose(mask, now).then_some(now);
    }

    /// Notes that the request was written and ends at `end`.
    #[inline]
    pub fn wrote(&mut self, end: u64) {
        if let Some(begun) = self.begun {
            self.begun = None;
            self.outgoing.wrote(end, begun);
        }
    }

    /// Notes that the request was not written and is retried immediately.
    #[cold]
    pub fn begins_again(&mut self) {
        self.is_retry = probes::sampling_mask().is_sampling() && self.outgoing.is_agreed;
    }

    /// Notes whether the request continues after a wait for room.
    pub fn waited_for_room(&mut self, goes_on: bool) {
        if probes::sampling_mask().is_sampling() {
            self.is_retry = goes_on;
            if !goes_on {
                self.begun = None;
            }
        }
    }

    /// Notes that this end has slept.
    pub fn slept(&mut self, now: Instant) {
        if probes::sampling_mask().is_sampling() && self.outgoing.is_agreed {
            self.chooser.paused(now);
        }
    }

    /// Timestamps the written messages before they are published.
    #[inline]
    pub fn publish<O: OwnMemory>(&mut self, own: &O, now: impl FnOnce() -> Instant) {
        self.outgoing.publish(own, now);
    }

    /// Traces that the answer to `id` was taken, with `length` bytes that end at position `end()` of the peer's lane.
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

impl ServerTrace {
    /// Creates the samples of a session; `is_agreed` is whether both ends support them.
    pub fn new(session: Session, is_agreed: bool) -> Self {
        Self {
            session,
            outgoing: Outgoing::new(is_agreed),
            begun: None,
            owed: VecDeque::new(),
            taken: VecDeque::new(),
        }
    }

    /// Returns the identity of the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Traces that the request `id` was taken, with `length` bytes that end at position `end()` of the peer's lane.
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

    /// Starts the answer to `id`, before it is written.
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

    /// Notes that the answer was written and ends at `end`; `None` when it waits for room.
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

    /// Notes that the answer to `id`, which waited for room, was written and ends at `end`.
    pub fn wrote_owed(&mut self, id: u64, end: u64) {
        if let Some(at) = self.owed.iter().position(|(owed, _)| *owed == id)
            && let Some((_, begun)) = self.owed.remove(at)
        {
            self.outgoing.wrote(end, begun);
        }
    }

    /// Timestamps the written messages before they are published.
    #[inline]
    pub fn publish<O: OwnMemory>(&mut self, own: &O, now: impl FnOnce() -> Instant) {
        self.outgoing.publish(own, now);
    }
}

impl Outgoing {
    fn new(is_agreed: bool) -> Self {
        Self { is_agreed, unpublished: Vec::new() }
    }

    /// Returns whether to read the peer's table.
    #[inline]
    fn is_reading(&self) -> bool {
        probes::sampling_mask().is_sampling() && self.is_agreed
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

/// Returns `end` if the peer's table seems to describe the message that ends there: a single load rules out nearly
/// all others.
#[inline]
fn stamped_end<P: PeerMemory>(peer: &P, end: u64) -> Option<u64> {
    (peer.stamped_end(sample_slot(end)) == end).then_some(end)
}

/// Traces the sample of the message `id` that ends at `end`, which was taken now.
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

/// Adds one, and drops the oldest instead of growing.
fn keep<T>(kept: &mut VecDeque<T>, one: T) {
    if kept.len() == MOST_AWAITED {
        kept.pop_front();
    }
    kept.push_back(one);
}
