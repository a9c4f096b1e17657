//! The attachment floor: a message that travels as a region of its own, sealed against any change.
//!
//! One operation: a new memfd is filled, sealed, passed and closed; the peer, signalled by a word that it spins on,
//! takes the descriptor, checks seals and size, maps it, reads every byte once ([`Look::Sum`]), releases it, and
//! answers by a word. The clock runs until the answer. Nothing is reused, so every page is allocated, cleared, mapped
//! on both sides and freed each time: that, not the copying, is the cost.
//!
//! The peer answers with a sum over what it read, and each one is compared.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::fresh::{
    AddressSlot, Contents, FIXED, Fresh, Pages, Passed, seal, send, sockets, written,
};
use super::pingpong::{finished, order, orders};
use super::private::Private;
use super::process::{Child, Peer, RoleResult, spawn};
use super::shared::Region;
use super::turns::Turns;
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-attach";

/// Operations before the clock starts: bytes, as operations, but at least two.
const WARM: usize = 4 << 20;

/// What the peer does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Maps them and looks away.
    Away,
    /// Sums them up.
    Sum,
}

/// How the messages are made up.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a message.
    pub size: usize,
    /// The kind of their pages. `written` has small ones only.
    pub pages: Pages,
    /// What the peer does with them.
    pub look: Look,
}

/// The attachment floor.
pub struct Floor {
    child: Child,
    turns: Turns,
    socket: OwnedFd,
    seat: AddressSlot,
    shape: Shape,
    outgoing: Private,
    seed: u64,
}

impl Floor {
    /// Between two CPUs.
    pub fn start(cpus: Cpus, shape: Shape) -> Result<Floor> {
        cpus.two()?;
        let Shape { size, pages, look } = shape;
        let seat = AddressSlot::new(pages, size)?;
        let words = Region::create(Turns::LEN)?;
        let (socket, theirs) = sockets()?;
        let look = usize::from(look == Look::Sum);
        let args = [size.to_string(), pages.name().to_owned(), look.to_string()];
        let mut child = spawn(ROLE, &[cpus.peer], &args, &[words.descriptor(), theirs.as_fd()])?;
        let turns = Turns::new(&words)?;
        turns.watch(&mut child)?;
        let outgoing = Private::new(size);
        Ok(Floor { child, turns, socket, seat, shape, outgoing, seed: 0 })
    }

    /// How long `n` messages take that are copied from a private buffer into the mapped region.
    pub fn copied(&mut self, n: u64) -> Result<Duration> {
        let sum = self.refill();
        self.messages(n, sum, |this| {
            filled(&this.seat, |bytes| bytes.copy_from_slice(this.outgoing.bytes()))
        })
    }

    /// How long `n` messages take that are copied from a private buffer by write(2).
    ///
    /// It is the faster one of the two for small pages, because they need neither be cleared nor mapped here.
    pub fn written(&mut self, n: u64) -> Result<Duration> {
        let sum = self.refill();
        self.messages(n, sum, |this| written(this.outgoing.bytes()))
    }

    /// How long `n` messages take that `fill` makes in place; it must make the same bytes each time.
    ///
    /// What `fill` itself takes is part of it.
    pub fn filled(&mut self, n: u64, mut fill: impl FnMut(&mut [u8])) -> Result<Duration> {
        fill(self.outgoing.bytes_mut());
        let sum = sum(self.outgoing.bytes());
        self.messages(n, sum, |this| filled(&this.seat, &mut fill))
    }

    /// Other bytes than before, and their sum.
    fn refill(&mut self) -> u64 {
        self.seed += 1;
        self.outgoing.fill(self.seed);
        sum(self.outgoing.bytes())
    }

    fn messages(
        &mut self,
        n: u64,
        sum: u64,
        mut make: impl FnMut(&Floor) -> Result<OwnedFd>,
    ) -> Result<Duration> {
        let warm = (WARM / self.shape.size) as u64 + 2;
        order(&self.child, n.saturating_add(warm), 0)?;
        for _ in 0..warm {
            self.message(sum, &mut make)?;
        }
        let start = Instant::now();
        for _ in 0..n {
            self.message(sum, &mut make)?;
        }
        let took = start.elapsed();
        finished(&self.child)?;
        Ok(took)
    }

    #[inline]
    fn message(
        &mut self,
        sum: u64,
        make: &mut impl FnMut(&Floor) -> Result<OwnedFd>,
    ) -> Result<()> {
        let memfd = make(self)?;
        seal(&memfd, FIXED)?;
        send(&self.socket, &memfd)?;
        self.turns.announce();
        drop(memfd);
        let answer = self.turns.wait(ROLE)?;
        if self.shape.look == Look::Sum && answer != sum {
            return Err(Error::Corrupt { role: ROLE });
        }
        Ok(())
    }
}

/// A region filled in place, and unmapped, for the seal needs that.
#[inline]
fn filled(seat: &AddressSlot, fill: impl FnOnce(&mut [u8])) -> Result<OwnedFd> {
    let mut fresh = Fresh::create(seat)?;
    fresh.populate()?;
    fill(fresh.bytes_mut());
    let (memfd, map) = fresh.into_parts();
    drop(map);
    Ok(memfd)
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let (size, pages) = (peer.number(0)?, Pages::of_name(peer.arg(1)?)?);
    let look = peer.number(2)? == 1;
    let mut turns = Turns::new(&Region::open(peer.descriptor()?)?)?;
    let socket = peer.descriptor()?;
    let seat = AddressSlot::new(pages, size)?;
    orders(peer, |n, _| {
        for _ in 0..n {
            turns.next();
            let contents = Passed::receive(&socket, FIXED, &seat)?.map(&seat)?;
            let answer = if look { read(&contents)? } else { 0 };
            drop(contents);
            turns.reply(answer);
        }
        Ok(0)
    })?;
    Ok(())
}

#[inline]
fn read(contents: &Contents) -> Result<u64> {
    contents.read_once()?;
    Ok(sum(contents.bytes()))
}

/// A sum in eight lanes, as fast as memory can be read, that detects lanes in another order.
fn sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut lanes = [0_u64; 8];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let rest = rest.iter().fold(0, |sum: u64, &byte| sum.rotate_left(8) ^ u64::from(byte));
    lanes.iter().fold(rest, |sum, lane| sum.rotate_left(7).wrapping_add(*lane))
}
