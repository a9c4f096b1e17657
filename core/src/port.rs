//! What a transport has to offer to one end of a session.

use crate::lane::Epoch;
use crate::resize::{FollowError, Shortage};
use crate::sync::Ordering;
use crate::{Instant, OwnMemory, PeerMemory, Word};

/// The thing that an end of a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bell {
    /// The peer publishes: its `tail` moves.
    Data,
    /// The peer takes: its `head` moves.
    Space,
}

impl Bell {
    /// Its number for a tracer.
    pub const fn number(self) -> u64 {
        match self {
            Self::Data => 1,
            Self::Space => 2,
        }
    }
}

/// A wait that a machine asks for. The parking protocol has been armed; the waiter sleeps unless one of
/// the words has moved on from the value given here (low 32 bits). It always waits for data, and for space
/// too when its own lane is full: a peer that cannot answer because nobody reads would wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Park {
    /// The peer's `tail` when the machine looked last.
    pub tail: u64,
    /// The peer's `head` when the machine looked last, when it waits for space too.
    pub head: Option<u64>,
    /// When to give up; `None` for never.
    pub until: Option<Instant>,
}

impl Park {
    /// Whether a word that it waits for has moved on. Acquire: what it announces is then visible.
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
    /// The doorbell rang, or the word had moved, or for no reason: look again.
    Rung,
    /// The time is over.
    Deadline,
    /// Another thread of this process cancelled.
    Cancelled,
    /// The peer's process ended or it closed the session.
    PeerGone,
}

impl Woken {
    /// Its number for a tracer.
    pub const fn number(self) -> u64 {
        match self {
            Self::Rung => 1,
            Self::Deadline => 2,
            Self::Cancelled => 3,
            Self::PeerGone => 4,
        }
    }
}

/// What a transport gives to one end of a session: memory, a clock and a doorbell.
///
/// [`Drive`](crate::drive::Drive) is the only caller of [`Port::park`], the only call here that blocks.
pub trait Port {
    /// This end's memory.
    type Own: OwnMemory;
    /// The peer's memory.
    type Peer: PeerMemory;

    /// This end's memory.
    fn own(&self) -> &Self::Own;

    /// The peer's memory.
    fn peer(&self) -> &Self::Peer;

    /// The time now.
    fn now(&self) -> Instant;

    /// Rings the peer, which waits for data (this end's `tail`) or space (this end's `head`), by the
    /// doorbell that its page asks for. Never blocks.
    fn ring(&self, bell: Bell);

    /// Sleeps as `park` says.
    fn park(&mut self, park: Park) -> Woken;

    /// Makes the memory of `epoch` of the own lane and passes it to the peer; [`Port::own`] stays as it is. Never
    /// blocks on the peer.
    ///
    /// # Errors
    /// [`Shortage`]: nothing was passed.
    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage>;

    /// Lets [`Port::own`] write the lane of `epoch`, which was offered last, and unmaps the one before at once: the
    /// peer's map keeps what it has not read.
    fn adopt(&mut self, epoch: Epoch);

    /// Takes the memory that the peer passed for `epoch` of its lane, checks it, and lets [`Port::peer`] read there;
    /// unmaps the one before. The peer passes it before it publishes the switch record: it is there.
    ///
    /// # Errors
    /// [`FollowError`]; after a shortage the memory is kept for another try.
    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError>;

    /// Lets another thread run that wants this processor, and returns at once if there is none.
    fn give_way(&self) {}

    /// Tells the processor that this end spins.
    fn relax(&self) {
        core::hint::spin_loop();
    }
}
