//! The stream floor: one process copies messages into a shared ring, another copies them out.
//!
//! Both spin. The bytes come from one private buffer and go to one private buffer, so only the transfer through
//! shared memory is measured.

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
pub const ROLE: &str = "floor-copy";

/// The largest message.
pub const LIMIT: usize = 64 << 20;

/// Messages before the clock starts: bytes, as messages.
const WARM: usize = 1 << 20;
/// Pauses of a receiver that found nothing, before it polls again: about a microsecond. With 1 it keeps taking the
/// sender's line away, and streams of small messages waver between 10 and 100 ns each.
const PATIENCE: usize = 48;

/// The stream floor.
pub struct Floor {
    child: Child,
    ring: Ring,
    size: usize,
    seed: u64,
    outgoing: Private,
    tail: u64,
}

impl Floor {
    /// The two processes, on two CPUs, for messages of `size` bytes through a ring of `bytes` (rounded to a power of two of
    /// slots). A ring larger than the second-level cache can be faster or slower several times over: give the floor
    /// the capacity of the lane that it is compared with.
    pub fn start(cpus: Cpus, size: usize, bytes: usize) -> Result<Floor> {
        cpus.two()?;
        if !(1..=LIMIT).contains(&size) {
            return Err(Error::Size { size, limit: LIMIT });
        }
        let stride = size.next_multiple_of(64);
        let slots = (bytes / stride).next_power_of_two().max(2);
        let region = Region::create(2 * LINE + stride * slots)?;
        let args = [size.to_string(), slots.to_string()];
        let mut child = spawn(ROLE, &[cpus.peer], &args, &[region.descriptor()])?;
        let ring = Ring::new(&region, size, slots)?;
        let head = ring.head.clone();
        child.watch(move || head.store(GONE, Ordering::Release))?;
        let outgoing = Private::new(size);
        Ok(Floor { child, ring, size, seed: 0, outgoing, tail: 0 })
    }

    /// How long it takes from the first of `n` messages until the other process has copied out the last.
    pub fn messages(&mut self, n: u64) -> Result<Duration> {
        let warm = (WARM / self.size) as u64 + 4;
        self.seed += 1;
        self.outgoing.fill(self.seed);
        order(&self.child, n.saturating_add(warm), self.seed)?;
        self.stream(warm)?;
        let start = Instant::now();
        self.stream(n)?;
        let took = start.elapsed();
        if finished(&self.child)? != expected(self.size, self.seed) {
            return Err(Error::Corrupt { role: ROLE });
        }
        Ok(took)
    }

    fn stream(&mut self, n: u64) -> Result<()> {
        let slots = self.ring.slots.count();
        let (mut tail, mut head) = (self.tail, self.tail);
        for _ in 0..n {
            if tail - head == slots {
                head = self.wait_head(tail - slots + 1)?;
            }
            self.ring.slots.put(tail, black_box(&self.outgoing).bytes());
            tail += 1;
            // Pairs with the acquire in `receive`: a reader that sees the position sees the messages before it.
            self.ring.tail.store(tail, Ordering::Release);
        }
        self.tail = tail;
        self.wait_head(tail)?;
        Ok(())
    }

    /// Spins until the other process has taken `position` messages.
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
    let (size, slots) = (peer.number(0)?, peer.number(1)?);
    let region = Region::open(peer.descriptor()?)?;
    let ring = Ring::new(&region, size, slots)?;
    let mut incoming = Private::new(size);
    let mut head = 0;
    orders(peer, |n, _| {
        let end = head + n;
        receive(&ring, &mut incoming, head, end);
        head = end;
        Ok(incoming.checksum())
    })?;
    Ok(())
}

/// Takes the messages from `head` to `end`.
fn receive(ring: &Ring, incoming: &mut Private, mut head: u64, end: u64) {
    let give_back = (ring.slots.count() / 4).max(1);
    while head < end {
        let tail = ring.tail.load(Ordering::Acquire);
        if tail == head {
            (0..PATIENCE).for_each(|_| spin_loop());
            continue;
        }
        let stop = tail.min(head + give_back);
        while head < stop {
            ring.slots.take(head, incoming.bytes_mut());
            black_box(&mut *incoming);
            head += 1;
        }
        ring.head.store(head, Ordering::Release);
    }
}

/// Positions count messages and only grow.
struct Ring {
    tail: Word<AtomicU64>,
    head: Word<AtomicU64>,
    slots: Slots,
}

impl Ring {
    fn new(region: &Region, size: usize, slots: usize) -> Result<Ring> {
        Ok(Ring {
            tail: region.word(0)?,
            head: region.word(LINE)?,
            slots: region.slots(2 * LINE, size, slots)?,
        })
    }
}
