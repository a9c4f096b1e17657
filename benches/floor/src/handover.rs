//! The hand-over floor: a fresh region for the other process, replacing the previous one.
//!
//! One operation: memfd, pages, mapping, seals, one descriptor passed, and the previous region released. The peer,
//! signalled by a word that it spins on, takes the descriptor, checks seals and size, maps the region read-only,
//! releases the previous one, and answers by a word. The bytes are not accessed. Linux 6.3, for `MFD_NOEXEC_SEAL`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    memfd_create,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::hot::{End, way};
use super::pingpong::{Link, finished, order, orders};
use super::process::{Child, Peer, RoleResult, pass, passed, spawn};
use super::shared::Region;
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-handover";

/// Operations before the clock starts: bytes, as operations, but at least two.
const WARM: usize = 4 << 20;

/// The largest region.
const LIMIT: usize = 1 << 30;

/// The seals of a region that its creator keeps writing to.
const WRITTEN: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

const MAP: &str = "map shared memory";

/// What announces a region, and carries the answer: its inode.
type Doorbell = End<true>;

/// The bytes of one direction of it.
fn bell() -> usize {
    way(size_of::<u64>(), 1)
}

/// The hand-over floor.
pub struct Floor {
    child: Child,
    end: Doorbell,
    socket: OwnedFd,
    len: usize,
    previous: Option<MmapRaw>,
}

impl Floor {
    /// Regions of `len` bytes, between two CPUs.
    pub fn start(cpus: Cpus, len: usize) -> Result<Floor> {
        cpus.two()?;
        if !(1..=LIMIT).contains(&len) {
            return Err(Error::Size { size: len, limit: LIMIT });
        }
        let words = Region::create(2 * bell())?;
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(Error::system("create a socket pair"))?;
        let descriptors = [words.descriptor(), theirs.as_fd()];
        let mut child = spawn(ROLE, &[cpus.peer], &[len.to_string()], &descriptors)?;
        let end = Doorbell::new(&words, size_of::<u64>(), 1, [0, bell()])?;
        end.watch(&mut child)?;
        Ok(Floor { child, end, socket, len, previous: None })
    }

    /// How long it takes, `n` times, until the peer has mapped the new region and released the previous one.
    pub fn acknowledged(&mut self, n: u64) -> Result<Duration> {
        let warm = (WARM / self.len) as u64 + 2;
        order(&self.child, n.saturating_add(warm), 0)?;
        // Some that check that the right region arrives.
        for _ in 0..warm {
            let (memfd, map) = self.send()?;
            let inode = fstat(&memfd).map_err(Error::system("look at a memfd"))?.st_ino;
            self.end.send()?;
            if self.wait()? != inode {
                return Err(Error::Corrupt { role: ROLE });
            }
            self.previous = Some(map);
        }
        let start = Instant::now();
        for _ in 0..n {
            let (memfd, map) = self.send()?;
            self.end.send()?;
            // The peer need not wait for the rest here.
            drop(memfd);
            self.previous = Some(map);
            self.wait()?;
        }
        let took = start.elapsed();
        finished(&self.child)?;
        Ok(took)
    }

    /// Spins until the peer has answered; the answer.
    #[inline]
    fn wait(&mut self) -> Result<u64> {
        self.end.receive().map_err(|_| self.child.gone())?;
        Ok(self.end.incoming.bytes().first_chunk().map_or(0, |inode| u64::from_ne_bytes(*inode)))
    }

    /// A fresh region, sealed and passed on. `fallocate` sizes it, too; the kernel clears a page when it is touched.
    #[inline]
    fn send(&self) -> Result<(OwnedFd, MmapRaw)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let memfd = memfd_create("bellwire-floor", flags)
            .map_err(Error::system("create a memfd to seal"))?;
        fallocate(&memfd, FallocateFlags::empty(), 0, self.len as u64)
            .map_err(Error::system("allocate shared memory"))?;
        let map = MmapOptions::new().len(self.len).map_raw(&memfd).map_err(Error::system(MAP))?;
        fcntl_add_seals(&memfd, WRITTEN).map_err(Error::system("seal a memfd"))?;
        pass(self.socket.as_fd(), &[memfd.as_fd()]).map_err(Error::system("pass a descriptor"))?;
        Ok((memfd, map))
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let len = peer.number(0)?;
    let words = Region::open(peer.descriptor()?)?;
    let mut end = Doorbell::new(&words, size_of::<u64>(), 1, [bell(), 0])?;
    let socket = peer.descriptor()?;
    let mut previous = None;
    orders(peer, |n, _| {
        for _ in 0..n {
            end.receive()?;
            let (inode, map) = receive(&socket, len)?;
            drop(previous.replace(map));
            end.outgoing.bytes_mut().copy_from_slice(&inode.to_ne_bytes());
            end.send()?;
        }
        Ok(0)
    })?;
    Ok(())
}

/// The next region: its inode, which tells it from every other one that exists at the time, and a mapping to read.
#[inline]
fn receive(socket: &OwnedFd, len: usize) -> Result<(u64, MmapRaw)> {
    let doing = "use a memfd from the other process";
    let refused = |what| Error::system(doing)(io::Error::other(what));
    let memfd = passed(socket.as_fd())?.pop().ok_or_else(|| refused("none came"))?;
    let seals = fcntl_get_seals(&memfd).map_err(Error::system(doing))?;
    let stat = fstat(&memfd).map_err(Error::system(doing))?;
    let allocated = stat.st_blocks.cast_unsigned() * 512;
    let is_whole = stat.st_size.cast_unsigned() == len as u64 && allocated >= len as u64;
    if !seals.contains(WRITTEN) || !is_whole {
        return Err(refused("not sealed, or not of that size"));
    }
    let map = MmapOptions::new().len(len).map_raw_read_only(&memfd).map_err(Error::system(MAP))?;
    Ok((stat.st_ino, map))
}
