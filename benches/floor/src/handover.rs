//! The hand-over floor: a fresh region for the other process, replacing the previous one.
//!
//! One operation: memfd, pages, mapping, seals, one descriptor passed, and the previous region released. The peer,
//! signalled by a word that it spins on, takes the descriptor, checks seals and size, maps the region read-only,
//! releases the previous one, and answers by a word. The bytes are not accessed.
//!
//! The last process to release a region frees its pages, at half the cost of allocating them. That is usually the
//! peer: not timed by [`sent`](Floor::sent), timed by [`acknowledged`](Floor::acknowledged), in parallel with the
//! next operation in [`mapped`](Floor::mapped).

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::fstat;

use super::fresh::{AddressSlot, Fresh, Pages, Passed, WRITTEN, seal, send, sockets};
use super::pingpong::{finished, order, orders};
use super::process::{Child, Peer, RoleResult, spawn};
use super::shared::{Map, Region};
use super::turns::Turns;
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-handover";

/// Operations before the clock starts: bytes, as operations, but at least two.
const WARM: usize = 4 << 20;

/// When the peer answers: the second word of an order.
const GIVEN_UP: u64 = 0;
const MAPPED: u64 = 1;

/// The hand-over floor.
pub struct Floor {
    child: Child,
    turns: Turns,
    sender: Sender,
}

impl Floor {
    /// Regions of `size` bytes, between two CPUs.
    pub fn start(cpus: Cpus, size: usize, pages: Pages) -> Result<Floor> {
        cpus.two()?;
        let (next, other) = (AddressSlot::new(pages, size)?, AddressSlot::new(pages, size)?);
        let words = Region::create(Turns::LEN)?;
        let (socket, theirs) = sockets()?;
        let args = [size.to_string(), pages.name().to_owned()];
        let mut child = spawn(ROLE, &[cpus.peer], &args, &[words.descriptor(), theirs.as_fd()])?;
        let turns = Turns::new(&words)?;
        turns.watch(&mut child)?;
        Ok(Floor { child, turns, sender: Sender { socket, next, other, previous: None } })
    }

    /// How long the sender's part takes, `n` times; the peer does its own part outside the clock.
    pub fn sent(&mut self, n: u64) -> Result<Duration> {
        self.warm_up(n, GIVEN_UP)?;
        let mut took = Duration::ZERO;
        for _ in 0..n {
            let start = Instant::now();
            let sent = self.sender.send()?;
            self.sender.keep(sent);
            took += start.elapsed();
            self.turns.announce();
            self.turns.wait(ROLE)?;
        }
        finished(&self.child)?;
        Ok(took)
    }

    /// How long it takes, `n` times, until the peer has mapped the new region and released the previous one.
    pub fn acknowledged(&mut self, n: u64) -> Result<Duration> {
        self.answered(n, GIVEN_UP)
    }

    /// How long it takes, `n` times, until the peer has mapped the new region; it releases the previous one while the
    /// next is being made. This is the highest rate of regions.
    pub fn mapped(&mut self, n: u64) -> Result<Duration> {
        self.answered(n, MAPPED)
    }

    fn answered(&mut self, n: u64, when: u64) -> Result<Duration> {
        self.warm_up(n, when)?;
        let start = Instant::now();
        for _ in 0..n {
            let sent = self.sender.send()?;
            self.turns.announce();
            // The peer need not wait for the rest here.
            self.sender.keep(sent);
            self.turns.wait(ROLE)?;
        }
        let took = start.elapsed();
        finished(&self.child)?;
        Ok(took)
    }

    /// Wakes the peer for `n` operations, after some that check that the right region arrives.
    fn warm_up(&mut self, n: u64, when: u64) -> Result<()> {
        let warm = (WARM / self.sender.size()) as u64 + 2;
        order(&self.child, n.saturating_add(warm), when)?;
        for _ in 0..warm {
            let sent = self.sender.send()?;
            let inode = fstat(&sent.0).map_err(Error::system("look at a memfd"))?.st_ino;
            self.turns.announce();
            if self.turns.wait(ROLE)? != inode {
                return Err(Error::Corrupt { role: ROLE });
            }
            self.sender.keep(sent);
        }
        Ok(())
    }
}

/// The sender's part.
struct Sender {
    socket: OwnedFd,
    next: AddressSlot,
    other: AddressSlot,
    previous: Option<Map>,
}

impl Sender {
    fn size(&self) -> usize {
        self.next.size()
    }

    /// A fresh region, sealed and passed on.
    #[inline]
    fn send(&mut self) -> Result<(OwnedFd, Map)> {
        // While one is in use, the next is mapped at the other.
        std::mem::swap(&mut self.next, &mut self.other);
        let (memfd, map) = Fresh::create(&self.next)?.into_parts();
        seal(&memfd, WRITTEN)?;
        send(&self.socket, &memfd)?;
        Ok((memfd, map))
    }

    /// Closes the descriptor and gives up the region before.
    #[inline]
    fn keep(&mut self, (memfd, map): (OwnedFd, Map)) {
        drop(memfd);
        self.previous = Some(map);
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let (size, pages) = (peer.number(0)?, Pages::of_name(peer.arg(1)?)?);
    let mut turns = Turns::new(&Region::open(peer.descriptor()?)?)?;
    let socket = peer.descriptor()?;
    let (mut next, mut other) = (AddressSlot::new(pages, size)?, AddressSlot::new(pages, size)?);
    let mut previous = None;
    orders(peer, |n, when| {
        for _ in 0..n {
            turns.next();
            std::mem::swap(&mut next, &mut other);
            let passed = Passed::receive(&socket, WRITTEN, &next)?;
            let inode = passed.inode;
            let before = previous.replace(passed.map(&next)?);
            if when == MAPPED {
                turns.reply(inode);
                drop(before);
            } else {
                drop(before);
                turns.reply(inode);
            }
        }
        Ok(0)
    })?;
    Ok(())
}
