//! The stream floors: one process copies messages into a shared ring, another copies them out.
//!
//! Both spin. The bytes come from one private buffer and go to one private buffer, so only the transfer through
//! shared memory is measured. [`Floor`] copies whole messages. [`Bulk`] cuts large ones into chunks, so that the other
//! process copies out one chunk while this one copies in the next.
//!
//! The ring of [`Bulk`] has 1 MiB: overwritten lines have then left the other processor's private cache, presumably. On a
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
pub const ROLE: &str = "floor-copy";
/// The peer's role for [`Bulk`].
pub const BULK: &str = "floor-bulk";

/// The largest message.
pub const LIMIT: usize = 1 << 30;

/// Bytes that [`Bulk`] publishes at a time, and those of its ring.
const CHUNK: usize = 32 << 10;
const RING: usize = 1 << 20;
/// Pauses of a receiver that found nothing, before it polls again: about a microsecond. With 1 it keeps taking the
/// sender's line away, and streams of small messages waver between 10 and 100 ns each.
const PAUSES_PER_POLL: usize = 48;

/// A stream of messages, whole or in chunks.
pub struct Stream<const CHUNKED: bool> {
    child: Child,
    ring: Ring<CHUNKED>,
    outgoing: Private,
    seed: u64,
    tail: u64,
}

/// The floor of short messages.
pub type Floor = Stream<false>;

/// That of large ones.
pub type Bulk = Stream<true>;

impl Floor {
    /// The two processes, on two CPUs, for messages of `size` bytes through a ring of `bytes` (rounded to a power of two of
    /// slots). A ring larger than the second-level cache can be faster or slower several times over: give the floor
    /// the capacity of the lane that it is compared with.
    pub fn start(cpus: Cpus, size: usize, bytes: usize) -> Result<Self> {
        let slots = bytes / size.next_multiple_of(64).max(1);
        Self::through(cpus, size, size, slots.next_power_of_two().max(2))
    }
}

impl Bulk {
    /// The two processes, on two CPUs, for messages of `size` bytes.
    pub fn start(cpus: Cpus, size: usize) -> Result<Self> {
        let chunk = size.clamp(1, CHUNK);
        Self::through(cpus, size, chunk, (RING / chunk).next_power_of_two())
    }
}

impl<const CHUNKED: bool> Stream<CHUNKED> {
    /// Messages before the clock starts: bytes, as messages, and a few more.
    const WARM: (usize, u64) = if CHUNKED { (4 << 20, 1) } else { (1 << 20, 4) };

    fn through(cpus: Cpus, size: usize, chunk: usize, slots: usize) -> Result<Self> {
        cpus.two()?;
        if !(1..=LIMIT).contains(&size) {
            return Err(Error::Size { size, limit: LIMIT });
        }
        let region = Region::create(2 * LINE + chunk.next_multiple_of(64) * slots)?;
        let args = [size, chunk, slots].map(|number| number.to_string());
        let role = role::<CHUNKED>();
        let mut child = spawn(role, &[cpus.peer], &args, &[region.descriptor()])?;
        let ring = Ring::new(&region, chunk, slots)?;
        let head = ring.head.clone();
        child.watch(move || head.store(GONE, Ordering::Release))?;
        Ok(Self { child, ring, outgoing: Private::new(size), seed: 0, tail: 0 })
    }

    /// How long it takes from the first of `n` messages until the other process has copied out the last.
    pub fn messages(&mut self, n: u64) -> Result<Duration> {
        let size = self.outgoing.bytes().len();
        let (bytes, more) = Self::WARM;
        let warm = (bytes / size) as u64 + more;
        self.seed += 1;
        self.outgoing.fill(self.seed);
        order(&self.child, n.saturating_add(warm), self.seed)?;
        self.stream(warm)?;
        let start = Instant::now();
        self.stream(n)?;
        let took = start.elapsed();
        if finished(&self.child)? != expected(size, self.seed) {
            return Err(Error::Corrupt { role: role::<CHUNKED>() });
        }
        Ok(took)
    }

    fn stream(&mut self, n: u64) -> Result<()> {
        let (ring, slots) = (&self.ring, self.ring.slots.count());
        let (mut tail, mut head) = (self.tail, self.tail);
        for _ in 0..n {
            for chunk in black_box(&self.outgoing).bytes().chunks(ring.chunk()) {
                if tail - head == slots {
                    head = self.wait_head(tail - slots + 1)?;
                }
                ring.slots.put(tail, chunk);
                tail += 1;
                // Pairs with the acquire in `receive`: a reader that sees the position sees the chunks before it.
                ring.tail.store(tail, Ordering::Release);
            }
        }
        self.tail = tail;
        self.wait_head(tail)?;
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
pub fn peer<const CHUNKED: bool>(peer: &mut Peer) -> RoleResult {
    let (size, chunk, slots) = (peer.number(0)?, peer.number(1)?, peer.number(2)?);
    let region = Region::open(peer.descriptor()?)?;
    let ring = Ring::<CHUNKED>::new(&region, chunk, slots)?;
    let mut incoming = Private::new(size);
    let mut head = 0;
    orders(peer, |n, _| {
        head = receive(&ring, &mut incoming, head, n);
        Ok(incoming.checksum())
    })?;
    Ok(())
}

/// Takes the `n` messages that begin at `head`; where the next one does.
fn receive<const CHUNKED: bool>(
    ring: &Ring<CHUNKED>,
    incoming: &mut Private,
    mut head: u64,
    n: u64,
) -> u64 {
    let give_back = if CHUNKED { 1 } else { (ring.slots.count() / 4).max(1) };
    let mut stop = head;
    for _ in 0..n {
        for chunk in incoming.bytes_mut().chunks_mut(ring.chunk()) {
            if head == stop {
                stop = ring.wait_tail(head).min(head + give_back);
            }
            ring.slots.take(head, chunk);
            head += 1;
            if head == stop {
                // Pairs with the acquire in `wait_head`.
                ring.head.store(head, Ordering::Release);
            }
        }
        black_box(&mut *incoming);
    }
    debug_assert_eq!(head, stop, "nothing is sent beyond what was ordered");
    head
}

/// Positions count chunks and only grow.
struct Ring<const CHUNKED: bool> {
    tail: Word<AtomicU64>,
    head: Word<AtomicU64>,
    slots: Slots,
    chunk: usize,
}

impl<const CHUNKED: bool> Ring<CHUNKED> {
    fn new(region: &Region, chunk: usize, slots: usize) -> Result<Self> {
        Ok(Self {
            tail: region.word(0)?,
            head: region.word(LINE)?,
            slots: region.slots(2 * LINE, chunk, slots)?,
            chunk,
        })
    }

    /// The most bytes of one slot. A whole message is one chunk, which the compiler knows: its loops are no slower.
    #[inline]
    fn chunk(&self) -> usize {
        if CHUNKED { self.chunk } else { usize::MAX }
    }

    /// Spins until there is something behind `head`.
    #[inline]
    fn wait_tail(&self, head: u64) -> u64 {
        loop {
            // Pairs with the release in `stream`.
            let tail = self.tail.load(Ordering::Acquire);
            if tail != head {
                return tail;
            }
            (0..if CHUNKED { 1 } else { PAUSES_PER_POLL }).for_each(|_| spin_loop());
        }
    }
}

const fn role<const CHUNKED: bool>() -> &'static str {
    if CHUNKED { BULK } else { ROLE }
}
