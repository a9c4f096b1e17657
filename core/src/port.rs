//! What a transport provides to one end of a session.

use crate::lane::Epoch;
use crate::resize::{FollowError, Shortage};
use crate::sync::Ordering;
use crate::{Instant, OwnMemory, PeerMemory, Word};

/// The event that an end waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bell {
    /// The peer publishes: its `tail` moves.
    Data = 1,
    /// The peer takes: its `head` moves.
    Space = 2,
}

impl Bell {
    /// Returns its number in traces.
    pub const fn number(self) -> u64 {
        self as u64
    }
}

/// A wait that a state machine requests. The parking protocol is already armed; the waiter sleeps unless one of the
/// words has moved from the value given here (low 32 bits). It always waits for data, and for space too when its own
/// lane is full: otherwise two ends that both wait for room would wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Park {
    /// The peer's `tail` as last loaded.
    pub tail: u64,
    /// The peer's `head` as last loaded, if the wait includes space.
    pub head: Option<u64>,
    /// When to give up; `None` for never.
    pub until: Option<Instant>,
}

impl Park {
    /// Returns whether one of the words has moved. Acquire: what it announces is then visible.
    #[inline]
    pub fn has_moved(&self, peer: &impl PeerMemory) -> bool {
        // mutant: equivalent because whoever acts on it loads the word again, by Acquire, before it reads anything
        let moved = |word, seen| peer.load(word, Ordering::Acquire) != seen;
        moved(Word::Tail, self.tail) || self.head.is_some_and(|seen| moved(Word::Head, seen))
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Woken {
    /// The doorbell rang, a word had moved, or the wake-up was spurious: check again.
    Rung = 1,
    /// The deadline passed.
    Deadline = 2,
    /// Another thread of this process cancelled the wait.
    Cancelled = 3,
    /// The peer's process ended, or the peer closed the session.
    PeerGone = 4,
}

impl Woken {
    /// Returns its number in traces.
    pub const fn number(self) -> u64 {
        self as u64
    }
}

/// What a transport provides to one end of a session: memory, a clock and a doorbell.
///
/// [`CallDriver`](crate::drive::CallDriver) is the only caller of [`Port::park`], the only call here that blocks.
pub trait Port {
    /// This end's memory.
    type Own: OwnMemory;
    /// The peer's memory.
    type Peer: PeerMemory;

    /// Returns this end's memory.
    fn own(&self) -> &Self::Own;

    /// Returns the peer's memory.
    fn peer(&self) -> &Self::Peer;

    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Rings the peer, which waits for data (this end's `tail`) or space (this end's `head`), on the doorbell that
    /// its page names. Never blocks.
    fn ring(&self, bell: Bell);

    /// Sleeps as `park` describes.
    fn park(&mut self, park: Park) -> Woken;

    /// Creates the memory for `epoch` of the own lane and passes it to the peer; [`Port::own`] is unchanged. Never
    /// blocks on the peer.
    ///
    /// # Errors
    /// [`Shortage`]: nothing was passed.
    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage>;

    /// Makes [`Port::own`] write the lane of `epoch`, the last one offered, and unmaps the previous one immediately:
    /// the peer's mapping keeps the records that it has not read.
    fn adopt(&mut self, epoch: Epoch);

    /// Takes the memory that the peer passed for `epoch` of its lane, checks it, makes [`Port::peer`] read it, and
    /// unmaps the previous one. The peer passes it before it publishes the Switch record, so it has arrived.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage, the memory is kept for a retry.
    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError>;

    /// Yields the processor to another runnable thread; returns immediately if there is none.
    fn yield_now(&self) {}

    /// Hints to the processor that this thread spins.
    fn relax(&self) {
        core::hint::spin_loop();
    }
}
