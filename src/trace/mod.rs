//! Samples for a tracer: which messages are timestamped, how the timestamps travel, and what is traced.
//!
//! Before the store to `tail` that publishes a sampled message, its sender writes an entry in the table in its page.
//! The receiver looks the entry up by the position at which the message's last record ends. Both do so only while a
//! tracer is attached to the process. `docs/tracing.md` explains the whole mechanism, `docs/wire.md` the table.

mod chooser;
pub(crate) mod delivery;
pub(crate) mod handling;

use std::collections::VecDeque;

use bellwire_core::wire::{ONE_WAY, Role, SAMPLES, Stamps, sample_slot};
use bellwire_core::{Bell, Instant, Observer, OwnMemory, PeerMemory, ServiceName, Woken, nanos};
use bellwire_probes::{self as probes, Sample, SamplingMask, Session};

use chooser::Chooser;

use crate::transport::{Os, prelude::*};

/// The features that HELLO offers and WELCOME accepts.
pub(crate) const FEATURES: u64 = if probes::AVAILABLE { SAMPLES } else { 0 };

/// The most incomplete samples kept; older ones are dropped.
const MAX_AWAITED: usize = 64;

/// The calling end's samples: requests that it sends, answers that it takes.
#[derive(Debug)]
pub(crate) struct ClientTrace {
    session: Session,
    outgoing: Outgoing,
    chooser: Chooser,
    /// When the message that waits for room was started.
    begun: Option<Instant>,
    /// Whether the next message has waited for room, and so was already chosen or skipped.
    is_retry: bool,
    /// Since when this end has waited for the next answer, if a tracer wants to know of slow calls.
    waited: Option<Instant>,
}

/// The serving end's samples: requests that it takes, and its answers to those.
#[derive(Debug)]
pub(crate) struct ServerTrace {
    session: Session,
    outgoing: Outgoing,
    /// The answer that is being written, and when it was started.
    begun: Option<(u64, Instant)>,
    /// Answers that were started and wait for room.
    unanswered: VecDeque<(u64, Instant)>,
    /// Sampled requests that are not answered yet.
    taken: VecDeque<u64>,
    /// How many one-way requests were taken while a tracer was attached.
    posts: u64,
}

/// Tells the number of a one-way request, which is counted, from the id of one that is answered.
const POST: u64 = 1 << 63;

/// The timestamps of one end.
#[derive(Debug)]
struct Outgoing {
    /// Whether both ends support the table.
    is_agreed: bool,
    /// Unpublished messages: their end positions, and when they were started.
    unpublished: Vec<(u64, u64)>,
}

/// What both ends trace alike.
macro_rules! observe_end {
    () => {
        #[inline]
        fn publishing<O: OwnMemory>(&mut self, own: &O, now: impl FnOnce() -> Instant) {
            self.outgoing.publish(own, now);
        }

        fn own_resized(&self, epoch: u32, bytes: u64) {
            probes::lane_resized(&self.session, 1, epoch, bytes);
        }

        fn peer_resized(&self, epoch: u32, bytes: u64) {
            probes::lane_resized(&self.session, 2, epoch, bytes);
        }

        fn lane_full(&self, missing: u64) {
            probes::lane_full(&self.session, missing);
        }

        fn sleeps(&self, space: bool) -> bool {
            probes::park_begin(&self.session, space);
            probes::wants_park_end()
        }

        fn woke(&self, how: Woken, began: Instant, now: Instant) {
            probes::park_end(&self.session, how.number(), nanos(now.since(began)));
        }
    };
}

/// The identity of a session for a tracer: the server's number of it, when the server created its page, and the
/// process at the other end.
#[must_use]
pub(crate) fn session(
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
    pub(crate) fn new(session: Session, is_agreed: bool, seed: u64) -> Self {
        Self {
            session,
            outgoing: Outgoing::new(is_agreed),
            chooser: Chooser::new(seed),
            begun: None,
            is_retry: false,
            waited: None,
        }
    }

    /// Returns the identity of the session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    #[cold]
    fn report_wait(&mut self, id: u64, len: usize) {
        if let Some(began) = self.waited.take() {
            let ended = Os::now().as_nanos();
            probes::slow(&self.session, id, began.as_nanos(), ended, len as u64);
        }
    }

    /// Not inlined: an untraced request pays only for the two tests in `requesting`.
    #[inline(never)]
    fn begin_masked(&mut self, mask: SamplingMask, now: impl FnOnce() -> Instant) {
        if !self.is_retry {
            // Of a call that failed.
            self.waited = None;
        }
        if self.is_retry || !self.chooser.skips(mask) {
            self.begin_chosen(mask, now);
        } else if self.begun.is_some() {
            self.begun = None;
        }
    }

    #[cold]
    fn begin_chosen(&mut self, mask: SamplingMask, now: impl FnOnce() -> Instant) {
        if std::mem::take(&mut self.is_retry) {
            return;
        }
        let now = now();
        self.begun = self.chooser.choose(mask, now).then_some(now);
    }
}

impl Observer for ClientTrace {
    #[inline]
    fn is_sampling(&self) -> bool {
        probes::sampling_mask().is_sampling()
    }

    #[inline]
    fn requesting(&mut self, now: impl FnOnce() -> Instant) {
        let mask = probes::sampling_mask();
        if mask.is_sampling() && self.outgoing.is_agreed {
            self.begin_masked(mask, now);
        }
    }

    #[inline]
    fn requested(&mut self, end: u64) {
        if let Some(begun) = self.begun {
            self.begun = None;
            self.outgoing.wrote(end, begun);
        }
    }

    fn waited_for_room(&mut self, continues: bool) {
        if probes::sampling_mask().is_sampling() {
            self.is_retry = continues;
            if !continues {
                self.begun = None;
            }
        }
    }

    fn rung(&mut self, now: Instant) {
        if probes::sampling_mask().is_sampling() && self.outgoing.is_agreed {
            self.chooser.paused(now);
        }
    }

    #[inline]
    fn took<P: PeerMemory>(
        &mut self,
        peer: &P,
        id: u64,
        len: usize,
        end: impl FnOnce() -> u64,
        now: impl FnOnce() -> Instant,
    ) {
        if !self.outgoing.is_reading() {
            return;
        }
        if self.waited.is_some() {
            self.report_wait(id, len);
        }
        if let Some(end) = stamped_end(peer, end()) {
            if let Some(sample) = taken(peer, id, len, end, now) {
                probes::reply(&self.session, &sample);
            }
        }
    }

    fn rings(&mut self, bell: Bell) {
        probes::ring(&self.session, bell.number());
        // The peer may take this thread's processor at once: the wait is over then when it seems to begin.
        if probes::slow_mask().is_wanted() {
            self.waited.get_or_insert_with(Os::now);
        }
    }

    #[inline]
    fn waited(&mut self, began: Instant) {
        if probes::slow_mask().is_wanted() {
            self.waited.get_or_insert(began);
        }
    }

    observe_end!();
}

impl ServerTrace {
    /// Creates the samples of a session; `is_agreed` is whether both ends support them.
    pub(crate) fn new(session: Session, is_agreed: bool) -> Self {
        Self {
            session,
            outgoing: Outgoing::new(is_agreed),
            begun: None,
            unanswered: VecDeque::new(),
            taken: VecDeque::new(),
            posts: 0,
        }
    }

    /// Returns the identity of the session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Returns whether a sampled request is not answered yet.
    #[inline]
    pub(crate) fn is_handling(&self) -> bool {
        !self.taken.is_empty()
    }

    /// The request `id` goes to a worker. Returns what the worker traces, if the request is sampled.
    pub(crate) fn queue(&self, id: u64) -> Option<Box<handling::Queued>> {
        let last = *self.taken.back()?;
        let id = if id == ONE_WAY { last } else { id };
        handling::queue(&self.session, id)
    }

    #[cold]
    fn begin_taken(&mut self, id: u64, now: impl FnOnce() -> Instant) {
        if id == ONE_WAY {
            if let Some(at) = self.taken.iter().position(|taken| taken & POST != 0) {
                if let Some(post) = self.taken.remove(at) {
                    handling::end(&self.session, post);
                }
            }
        } else if let Some(at) = self.taken.iter().position(|taken| *taken == id) {
            self.taken.remove(at);
            handling::end(&self.session, id);
            self.begun = Some((id, now()));
        }
    }

    #[cold]
    fn wrote_begun(&mut self, (id, begun): (u64, Instant), end: Option<u64>) {
        match end {
            Some(end) => self.outgoing.wrote(end, begun),
            None => keep(&mut self.unanswered, (id, begun)),
        }
    }
}

impl Observer for ServerTrace {
    fn rings(&mut self, bell: Bell) {
        probes::ring(&self.session, bell.number());
    }

    #[inline]
    fn took<P: PeerMemory>(
        &mut self,
        peer: &P,
        id: u64,
        len: usize,
        end: impl FnOnce() -> u64,
        now: impl FnOnce() -> Instant,
    ) {
        // Written out as above: a function that both share takes a server 15 instructions more for each request.
        if self.outgoing.is_reading() {
            let id = if id == ONE_WAY {
                self.posts += 1;
                POST | self.posts
            } else {
                id
            };
            if let Some(end) = stamped_end(peer, end()) {
                if let Some(sample) = taken(peer, id, len, end, now) {
                    probes::message(&self.session, &sample);
                    keep(&mut self.taken, id);
                    handling::begin(id);
                }
            }
        }
    }

    #[inline]
    fn answering(&mut self, id: u64, now: impl FnOnce() -> Instant) {
        if !self.taken.is_empty() {
            self.begin_taken(id, now);
        }
    }

    #[inline]
    fn answered(&mut self, end: Option<u64>) {
        if let Some(begun) = self.begun {
            self.begun = None;
            self.wrote_begun(begun, end);
        }
    }

    fn answered_late(&mut self, id: u64, end: u64) {
        if let Some(at) = self.unanswered.iter().position(|(unanswered, _)| *unanswered == id) {
            if let Some((_, begun)) = self.unanswered.remove(at) {
                self.outgoing.wrote(end, begun);
            }
        }
    }

    observe_end!();
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
    if kept.len() == MAX_AWAITED {
        kept.pop_front();
    }
    kept.push_back(one);
}
