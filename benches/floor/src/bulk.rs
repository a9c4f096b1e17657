//! The bulk floor: large messages from a private buffer through a shared ring to a private buffer.
//!
//! A message is cut into chunks that flow through a ring, so that the other process copies out one chunk while this
//! one copies in the next. Both spin.
//!
//! The ring has 1 MiB: overwritten lines have then left the other processor's private cache, presumably. On a
//! processor with 1 MiB of cache for each core behind 32 MiB in common, 1 MiB there and back takes 284 µs through 128
//! KiB, 235 through 256 KiB, 133 through 512 KiB, 70 through 1 MiB and 68 through 2 MiB; 16 MiB take 4.7 ms, 4.6,
//! 3.1, 2.3 and 2.3.

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
pub const ROLE: &str = "floor-bulk";

/// The largest message.
pub const LIMIT: usize = 1 << 30;

/// Bytes that are published at a time, and those of the ring.
const CHUNK: usize = 32 << 10;
const RING: usize = 1 << 20;

/// Messages before the clock starts: bytes, as messages, but at least one.
const WARM: usize = 4 << 20;

/// The bulk floor.
pub struct Floor {
    child: Child,
    ring: Ring,
    outgoing: Private,
    seed: u64,
    tail: u64,
}

impl Floor {
    /// The two processes, on two CPUs, for messages of `size` bytes.
    pub fn start(cpus: Cpus, size: usize) -> Result<Floor> {
        cpus.two()?;
        if !(1..=LIMIT).contains(&size) {
            return Err(Error::Size { size, limit: LIMIT });
        }
        let chunk = size.min(CHUNK);
        let slots = (RING / chunk).next_power_of_two();
        let region = Region::create(2 * LINE + chunk.next_multiple_of(64) * slots)?;
        let args = [size, chunk, slots].map(|number| number.to_string());
        let mut child = spawn(ROLE, &[cpus.peer], &args, &[region.descriptor()])?;
        let ring = Ring::new(&region, chunk, slots)?;
        let head = ring.head.clone();
        child.watch(move || head.store(GONE, Ordering::Release))?;
        Ok(Floor { child, ring, outgoing: Private::new(size), seed: 0, tail: 0 })
    }

    /// How long it takes from the first of `n` messages until the other process has copied out the last.
    pub fn messages(&mut self, n: u64) -> Result<Duration> {
        let size = self.outgoing.bytes().len();
        let warm = (WARM / size) as u64 + 1;
        self.seed += 1;
        self.outgoing.fill(self.seed);
        order(&self.child, n.saturating_add(warm), self.seed)?;
        self.stream(warm)?;
        let start = Instant::now();
        self.stream(n)?;
        let took = start.elapsed();
        if finished(&self.child)? != expected(size, self.seed) {
            return Err(Error::Corrupt { role: ROLE });
        }
        Ok(took)
    }

    fn stream(&mut self, n: u64) -> Result<()> {
        let (ring, slots) = (&self.ring, self.ring.slots.count());
        let (mut tail, mut head) = (self.tail, self.tail);
        for _ in 0..n {
            for chunk in black_box(&self.outgoing).bytes().chunks(ring.chunk) {
                if tail - head == slots {
                    head = self.wait_head(tail - slots + 1)?;
                }
                ring.slots.put(tail, chunk);
                tail += 1;
                // Pairs with the acquire in `receive`: a reader that sees the position sees the chunks before it.
                ring.tail.store(tail, Ordering::Release);
            }
        }
        self.wait_head(tail)?;
        self.tail = tail;
        Ok(())
    }

    /// Spins until the other process has taken `position` chunks.
    #[inline]
    fn wait_head(&self, position: u64) -> Result<u64> {
        loop {
            // Pairs with the release in `receive`: a slot is written again only after it was read.
            match self.ring.head.load(Ordering::Acquire) {
                GONE => return Err(self.child.gone()),
                head if head >= position => return Ok(head),
                _ => spin_loop(),
            }
        }
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let (size, chunk, slots) = (peer.number(0)?, peer.number(1)?, peer.number(2)?);
    let region = Region::open(peer.descriptor()?)?;
    let ring = Ring::new(&region, chunk, slots)?;
    let mut incoming = Private::new(size);
    let mut head = 0;
    orders(peer, |n, _| {
        for _ in 0..n {
            head = receive(&ring, &mut incoming, head);
        }
        Ok(incoming.checksum())
    })?;
    Ok(())
}

/// Takes the message that begins at `head`; where the next one does.
fn receive(ring: &Ring, incoming: &mut Private, mut head: u64) -> u64 {
    for chunk in incoming.bytes_mut().chunks_mut(ring.chunk) {
        // Pairs with the release in `stream`.
        while ring.tail.load(Ordering::Acquire) == head {
            spin_loop();
        }
        ring.slots.take(head, chunk);
        head += 1;
        // Pairs with the acquire in `wait_head`.
        ring.head.store(head, Ordering::Release);
    }
    black_box(incoming);
    head
}

/// Positions count chunks and only grow.
struct Ring {
    tail: Word<AtomicU64>,
    head: Word<AtomicU64>,
    slots: Slots,
    chunk: usize,
}

impl Ring {
    fn new(region: &Region, chunk: usize, slots: usize) -> Result<Ring> {
        Ok(Ring {
            tail: region.word(0)?,
            head: region.word(LINE)?,
            slots: region.slots(2 * LINE, chunk, slots)?,
            chunk,
        })
    }
}
