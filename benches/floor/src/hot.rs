//! The hot floor: two spinning processes hand a payload and a counter to each other.
//!
//! Each way: private memory is copied to shared memory, the counter is stored with release; the other end spins on it
//! with acquire, copies to its private memory, and answers likewise. Counters and payloads have cache lines of their
//! own. No copy between two processes can be much faster.
//!
//! The wait has a `pause` in it, which makes it faster here, not slower (64 B: 90 ns with, 120 without): a reader
//! that loads the line less often leaves it to the writer. The [`UnpausedFloor`] one has none; it is steadier and
//! distinguishes [placements](super::placement) better.

use std::hint::{black_box, spin_loop};

use super::pingpong::{Link, PingPong, answer};
use super::private::Private;
use super::process::{Child, Peer, RoleResult, spawn};
use super::shared::{LINE, Region, Slots, Word};
use super::sync::{AtomicU64, Ordering};
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-hot";
/// The peer's role for [`UnpausedFloor`].
pub const BARE: &str = "floor-bare";

/// The largest payload.
pub const LIMIT: usize = 64 << 20;

/// What a counter holds once its writer has died.
pub(super) const GONE: u64 = u64::MAX;

/// The hot floor; [`PingPong::round_trips`] measures it.
pub type Floor = PingPong<End<true>>;

/// The same without a pause in the wait.
pub type UnpausedFloor = PingPong<End<false>>;

impl<const PAUSE: bool> PingPong<End<PAUSE>> {
    /// `size` bytes each way; 0 leaves only the two counters, the two-word ping-pong.
    pub fn start(cpus: Cpus, size: usize) -> Result<Self> {
        Self::ring(cpus, size, 1)
    }

    /// Through rings of `slots`, a power of two: each message is in other cache lines than the one before.
    pub fn ring(cpus: Cpus, size: usize, slots: usize) -> Result<Self> {
        cpus.two()?;
        if size > LIMIT / slots {
            return Err(Error::Size { size, limit: LIMIT / slots });
        }
        let len = way(size, slots);
        let region = Region::create(2 * len)?;
        let args = [size.to_string(), slots.to_string()];
        let mut child = spawn(role::<PAUSE>(), &[cpus.peer], &args, &[region.descriptor()])?;
        let end = End::<PAUSE>::new(&region, size, slots, [0, len])?;
        end.watch(&mut child)?;
        Ok(PingPong::new(child, end))
    }
}

/// The other process.
pub fn peer<const PAUSE: bool>(peer: &mut Peer) -> RoleResult {
    let (size, slots) = (peer.number(0)?, peer.number(1)?);
    let region = Region::open(peer.descriptor()?)?;
    let end = End::<PAUSE>::new(&region, size, slots, [way(size, slots), 0])?;
    Ok(answer(peer, end)?)
}

/// One end.
pub struct End<const PAUSE: bool> {
    mine: Word<AtomicU64>,
    theirs: Word<AtomicU64>,
    to: Slots,
    from: Slots,
    pub(super) outgoing: Private,
    pub(super) incoming: Private,
    sent: u64,
    seen: u64,
}

impl<const PAUSE: bool> End<PAUSE> {
    pub(super) fn new(
        region: &Region,
        size: usize,
        slots: usize,
        [mine, theirs]: [usize; 2],
    ) -> Result<Self> {
        Ok(Self {
            mine: region.word(mine)?,
            theirs: region.word(theirs)?,
            to: region.slots(mine + LINE, size, slots)?,
            from: region.slots(theirs + LINE, size, slots)?,
            outgoing: Private::new(size),
            incoming: Private::new(size),
            sent: 0,
            seen: 0,
        })
    }

    /// Lets [`receive`](Link::receive) fail once `child` has died.
    pub(super) fn watch(&self, child: &mut Child) -> Result<()> {
        let theirs = self.theirs.clone();
        child.watch(move || theirs.store(GONE, Ordering::Release))
    }
}

impl<const PAUSE: bool> Link for End<PAUSE> {
    const WARM: u64 = 1_000;

    #[inline]
    fn send(&mut self) -> Result<()> {
        self.to.put(self.sent, self.outgoing.bytes());
        self.sent += 1;
        // Pairs with the acquire in the peer's `receive`: a reader that sees the counter sees the payload.
        self.mine.store(self.sent, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        self.seen += 1;
        let now = loop {
            // Pairs with the release in the peer's `send`.
            let now = self.theirs.load(Ordering::Acquire);
            if now >= self.seen {
                break now;
            }
            if PAUSE {
                spin_loop();
            }
        };
        if now == GONE {
            return Err(Error::PeerGone { role: role::<PAUSE>() });
        }
        self.from.take(self.seen - 1, self.incoming.bytes_mut());
        black_box(&mut self.incoming);
        Ok(())
    }

    fn buffers(&mut self) -> Option<(&mut Private, &Private)> {
        Some((&mut self.outgoing, &self.incoming))
    }
}

/// The bytes of one direction: a counter, then the slots.
pub(super) fn way(size: usize, slots: usize) -> usize {
    (LINE + size.next_multiple_of(64) * slots).next_multiple_of(LINE)
}

const fn role<const PAUSE: bool>() -> &'static str {
    if PAUSE { ROLE } else { BARE }
}
