//! The pipeline floor: a counted number of messages in flight through two rings, each one answered by its bytes.
//!
//! Both ends spin. A message is copied from private memory into a slot, and out of one into private memory, four
//! copies for a round trip; every message is published alone.

use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

use super::hot::GONE;
use super::pingpong::{finished, order, orders};
use super::private::{Private, expected};
use super::process::{Child, Peer, RoleResult, spawn};
use super::shared::{LINE, Region, Slots, Word};
use super::sync::{AtomicU64, Ordering};
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-pipeline";

/// Messages before the clock starts.
const WARM: u64 = 2_000;
/// Slots of each ring, at least as many as are ever in flight.
const SLOTS: usize = 64;
/// The largest message.
const LIMIT: usize = 1 << 20;

/// The pipeline floor.
pub struct Floor {
    child: Child,
    end: End,
    depth: u64,
    seed: u64,
}

/// One end of the two rings.
struct End {
    mine: Word<AtomicU64>,
    theirs: Word<AtomicU64>,
    to: Slots,
    from: Slots,
    outgoing: Private,
    incoming: Private,
    sent: u64,
    seen: u64,
}

impl Floor {
    /// The two processes, on two CPUs, with `depth` messages of `size` bytes in flight.
    pub fn start(cpus: Cpus, size: usize, depth: usize) -> Result<Floor> {
        cpus.two()?;
        if !(1..=LIMIT).contains(&size) {
            return Err(Error::Size { size, limit: LIMIT });
        }
        let region = Region::create(2 * way(size))?;
        let args = [size.to_string()];
        let mut child = spawn(ROLE, &[cpus.peer], &args, &[region.descriptor()])?;
        let end = End::new(&region, size, [0, way(size)])?;
        let theirs = end.theirs.clone();
        child.watch(move || theirs.store(GONE, Ordering::Release))?;
        Ok(Floor { child, end, depth: depth.clamp(1, SLOTS) as u64, seed: 0 })
    }

    /// How long `n` messages take until each was answered.
    pub fn messages(&mut self, n: u64) -> Result<Duration> {
        self.seed += 1;
        self.end.outgoing.fill(self.seed);
        order(&self.child, n.saturating_add(WARM), self.seed)?;
        self.exchange(WARM)?;
        let start = Instant::now();
        self.exchange(n)?;
        let took = start.elapsed();
        let sum = expected(self.end.incoming.bytes().len(), self.seed);
        if self.end.incoming.checksum() != sum || finished(&self.child)? != sum {
            return Err(Error::Corrupt { role: ROLE });
        }
        Ok(took)
    }

    fn exchange(&mut self, n: u64) -> Result<()> {
        let end = self.end.seen + n;
        while self.end.seen < end {
            while self.end.sent < end && self.end.sent - self.end.seen < self.depth {
                self.end.send();
            }
            let Some(arrived) = self.end.arrived() else { return Err(self.child.gone()) };
            (self.end.seen..arrived).for_each(|_| self.end.receive());
        }
        Ok(())
    }
}

impl End {
    fn new(region: &Region, size: usize, [mine, theirs]: [usize; 2]) -> Result<Self> {
        Ok(Self {
            mine: region.word(mine)?,
            theirs: region.word(theirs)?,
            to: region.slots(mine + LINE, size, SLOTS)?,
            from: region.slots(theirs + LINE, size, SLOTS)?,
            outgoing: Private::new(size),
            incoming: Private::new(size),
            sent: 0,
            seen: 0,
        })
    }

    #[inline]
    fn send(&mut self) {
        self.to.put(self.sent, black_box(&self.outgoing).bytes());
        self.sent += 1;
        // Pairs with the acquire in `arrived`: a reader that sees the counter sees the message.
        self.mine.store(self.sent, Ordering::Release);
    }

    /// How many messages have come, at least one that was not received; `None` when the other end died.
    #[inline]
    fn arrived(&self) -> Option<u64> {
        loop {
            // Pairs with the release in `send`. An answer also says that its message was copied out.
            match self.theirs.load(Ordering::Acquire) {
                GONE => return None,
                now if now > self.seen => return Some(now),
                _ => spin_loop(),
            }
        }
    }

    #[inline]
    fn receive(&mut self) {
        self.from.take(self.seen, self.incoming.bytes_mut());
        black_box(&mut self.incoming);
        self.seen += 1;
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let size = peer.number(0)?;
    let region = Region::open(peer.descriptor()?)?;
    let mut end = End::new(&region, size, [way(size), 0])?;
    orders(peer, |n, _| {
        let last = end.seen + n;
        while end.seen < last {
            let Some(arrived) = end.arrived() else { return Err(Error::PeerGone { role: ROLE }) };
            while end.seen < arrived {
                end.receive();
                end.to.put(end.sent, end.incoming.bytes());
                end.sent += 1;
                // Pairs with the acquire in `arrived`.
                end.mine.store(end.sent, Ordering::Release);
            }
        }
        Ok(end.incoming.checksum())
    })?;
    Ok(())
}

/// The bytes of one direction: a counter, then the slots.
fn way(size: usize) -> usize {
    LINE + size.next_multiple_of(64) * SLOTS
}
