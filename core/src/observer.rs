//! What an observer, such as a tracer, learns of one end of a session.

use crate::{Bell, Instant, OwnMemory, PeerMemory, Woken};

/// An observer of one end of a session. Every method does nothing by default, and `()` observes nothing.
///
/// The drivers call it at each step of a message. `now` is called only by an observer that needs the time.
pub trait Observer {
    /// Returns whether a request may be sampled now. One-way requests are observed only then: it costs as much as the rest
    /// of sending one.
    #[inline]
    fn is_sampling(&self) -> bool {
        false
    }

    /// A request is about to be written.
    #[inline]
    fn requesting(&mut self, _now: impl FnOnce() -> Instant) {}

    /// The request was written and ends at position `end` of the own lane.
    #[inline]
    fn requested(&mut self, _end: u64) {}

    /// The request waited for room, and continues or not.
    fn waited_for_room(&mut self, _continues: bool) {}

    /// The answer to `id` is about to be written.
    #[inline]
    fn answering(&mut self, _id: u64, _now: impl FnOnce() -> Instant) {}

    /// The answer was written and ends at `end`; `None` when it waits for room.
    #[inline]
    fn answered(&mut self, _end: Option<u64>) {}

    /// The answer to `id`, which waited for room, was written and ends at `end`.
    fn answered_late(&mut self, _id: u64, _end: u64) {}

    /// What was written is about to be published.
    #[inline]
    fn publishing<O: OwnMemory>(&mut self, _own: &O, _now: impl FnOnce() -> Instant) {}

    /// The message `id` was taken: `len` bytes that end at position `end()` of the peer's lane.
    #[inline]
    fn took<P: PeerMemory>(
        &mut self,
        _peer: &P,
        _id: u64,
        _len: usize,
        _end: impl FnOnce() -> u64,
        _now: impl FnOnce() -> Instant,
    ) {
    }

    /// The peer is about to be rung.
    fn rings(&mut self, _bell: Bell) {}

    /// This end writes another epoch of its lane, of `bytes`.
    fn own_resized(&self, _epoch: u32, _bytes: u64) {}

    /// This end reads another epoch of the peer's lane, of `bytes`.
    fn peer_resized(&self, _epoch: u32, _bytes: u64) {}

    /// The lane has no room for a record: `missing` bytes, 0 if unknown.
    fn lane_full(&self, _missing: u64) {}

    /// This end is about to sleep, for room too with `space`. Returns whether to call [`Observer::woke`], which takes
    /// two readings of the clock.
    fn sleeps(&self, _space: bool) -> bool {
        false
    }

    /// This end slept from `began` to `now`.
    fn woke(&self, _how: Woken, _began: Instant, _now: Instant) {}

    /// This end waited for the peer since `began`, for so long that it read the clock. Not called for shorter waits, which
    /// read none.
    #[inline]
    fn waited(&mut self, _began: Instant) {}

    /// This end was rung awake at `now`.
    fn rung(&mut self, _now: Instant) {}
}

impl Observer for () {}
