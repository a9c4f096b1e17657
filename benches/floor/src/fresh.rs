#![allow(
    unsafe_code,
    reason = "maps memfds that are made, passed on and given up again for every operation"
)]
//! A region of shared memory that is new for every operation: made, sealed, passed on, checked.
//!
//! Each step is the fewest and cheapest system calls that do it. Nothing is kept between two operations but
//! addresses.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::slice;
use std::sync::OnceLock;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};
use rustix::io::{pwrite, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::shared::Map;
use super::sync::{AtomicU64, Ordering};
use super::{Error, Result};

/// The largest region.
pub const LIMIT: usize = 1 << 30;

/// The seals of a region that its creator keeps writing to.
pub const WRITTEN: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// The seals of a region that is immutable.
pub const FIXED: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// The pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of 4 KiB: what `fallocate` gives.
    Small,
    /// Pages of 2 MiB, by `MADV_COLLAPSE` (madvise(2), Linux 6.1): no privilege, no hugetlb pool, and it
    /// works where `shmem_enabled` says `never`. A region takes whole ones, so 1 MiB takes twice its memory.
    /// Where the kernel refuses, they stay small.
    Huge,
}

impl Pages {
    /// `small` or `huge`, the argument of a peer.
    pub fn of_name(name: &str) -> Result<Pages> {
        match name {
            "small" => Ok(Pages::Small),
            "huge" => Ok(Pages::Huge),
            _ => Err(Error::Arguments { what: format!("`{name}` for pages") }),
        }
    }

    /// The inverse of [`of_name`](Pages::of_name).
    pub fn name(self) -> &'static str {
        match self {
            Pages::Small => "small",
            Pages::Huge => "huge",
        }
    }
}

/// The bytes of a huge page.
const HUGE: usize = 2 << 20;
/// The bytes of a small page.
const SMALL: usize = 4096;
/// madvise(2); rustix does not have it.
const MADV_COLLAPSE: libc::c_int = 25;

/// A place in the address space to map regions of one size at, one at a time.
#[derive(Clone, Copy, Debug)]
pub struct AddressSlot {
    pages: Pages,
    len: usize,
    hint: usize,
}

impl AddressSlot {
    /// For regions of `len` bytes; for huge pages, aligned to them and of whole ones.
    pub fn new(pages: Pages, len: usize) -> Result<AddressSlot> {
        if !(1..=LIMIT).contains(&len) {
            return Err(Error::Size { size: len, limit: LIMIT });
        }
        match pages {
            Pages::Small => Ok(AddressSlot { pages, len, hint: 0 }),
            Pages::Huge => {
                Ok(AddressSlot { pages, len, hint: far_away(len.next_multiple_of(HUGE))? })
            }
        }
    }

    /// The bytes of a region.
    pub fn size(&self) -> usize {
        self.len
    }

    #[inline]
    fn map(&self, memfd: BorrowedFd<'_>, prot: ProtFlags) -> Result<Map> {
        let len = match self.pages {
            Pages::Small => self.len,
            Pages::Huge => self.len.next_multiple_of(HUGE),
        };
        Map::new(memfd, len, prot, MapFlags::SHARED, self.hint)
    }
}

/// A region that this process has made and not yet passed on.
pub struct Fresh {
    memfd: OwnedFd,
    map: Map,
    len: usize,
}

impl Fresh {
    /// memfd_create(2), fallocate(2), which sizes it too, mmap(2).
    ///
    /// Small pages are allocated and no more: the kernel clears and maps each when it is touched. Huge ones
    /// are cleared and mapped.
    #[inline]
    pub fn create(seat: &AddressSlot) -> Result<Fresh> {
        let (memfd, len) = (memfd()?, seat.len);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        if seat.pages == Pages::Small {
            reserve(&memfd, 0, len)?;
            let map = seat.map(memfd.as_fd(), prot)?;
            return Ok(Fresh { memfd, map, len });
        }
        ftruncate(&memfd, len as u64).map_err(Error::system("size a memfd"))?;
        let map = seat.map(memfd.as_fd(), prot)?;
        for start in (0..len).step_by(HUGE) {
            // A huge page is made around an existing page; one in its range is enough.
            reserve(&memfd, start, SMALL.min(len - start))?;
        }
        collapse(&map);
        // Where it was not, small ones; where it was, this does nothing.
        reserve(&memfd, 0, len)?;
        Ok(Fresh { memfd, map, len })
    }

    /// Clears and maps all small pages in one go, 7 % faster than by touching them one after the other, and frees
    /// them without a check which were used (`MADV_SEQUENTIAL`), 40 µs a MiB less.
    #[inline]
    pub fn populate(&self) -> Result<()> {
        advise(&self.map, Advice::LinuxPopulateWrite)?;
        advise(&self.map, Advice::Sequential)
    }

    /// The bytes.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes are mapped and allocated, and while `memfd` is in `self` nobody else has it.
        unsafe { slice::from_raw_parts_mut(self.map.start().as_ptr(), self.len) }
    }

    /// The memfd, which may be sealed and passed on now, and the mapping, which has no bytes any more.
    #[inline]
    pub(super) fn into_parts(self) -> (OwnedFd, Map) {
        (self.memfd, self.map)
    }
}

/// A region made of `bytes` by write(2), which neither clears the pages before nor maps them.
#[inline]
pub fn written(bytes: &[u8]) -> Result<OwnedFd> {
    let memfd = memfd()?;
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        done += retry_on_intr(|| pwrite(&memfd, rest, done as u64))
            .map_err(Error::system("write to a memfd"))?;
    }
    Ok(memfd)
}

/// Adds `seals`; [`FIXED`] needs the creator's mapping gone.
#[inline]
pub fn seal(memfd: &OwnedFd, seals: SealFlags) -> Result<()> {
    fcntl_add_seals(memfd, seals).map_err(Error::system("seal a memfd"))
}

/// A region that came from the other process, found to have the seals and the size that it should.
pub struct Passed {
    memfd: OwnedFd,
    seals: SealFlags,
    /// Its inode, which tells it from every other region that exists at the time.
    pub inode: u64,
}

impl Passed {
    /// One descriptor from `socket`, checked.
    #[inline]
    pub fn receive(socket: &OwnedFd, seals: SealFlags, seat: &AddressSlot) -> Result<Passed> {
        let memfd = receive(socket)?;
        let doing = "use a memfd from the other process";
        let sealed = fcntl_get_seals(&memfd).map_err(Error::system(doing))?;
        let stat = fstat(&memfd).map_err(Error::system(doing))?;
        let allocated = stat.st_blocks.cast_unsigned() * 512;
        let len = seat.len as u64;
        if !sealed.contains(seals) || stat.st_size.cast_unsigned() != len || allocated < len {
            return Err(Error::system(doing)(io::Error::other("not sealed, or not of that size")));
        }
        Ok(Passed { memfd, seals, inode: stat.st_ino })
    }

    /// Maps it read-only and closes the descriptor.
    #[inline]
    pub fn map(self, seat: &AddressSlot) -> Result<Contents> {
        let map = seat.map(self.memfd.as_fd(), ProtFlags::READ)?;
        Ok(Contents { map, len: seat.len, fixed: self.seals.contains(SealFlags::WRITE) })
    }
}

/// A read-only mapping of a region that came from the other process.
pub struct Contents {
    map: Map,
    len: usize,
    fixed: bool,
}

impl Contents {
    /// The bytes, if they are immutable.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let len = if self.fixed { self.len } else { 0 };
        // SAFETY: `receive` found the region to have `len` bytes and a seal against writing or none to show.
        unsafe { slice::from_raw_parts(self.map.start().as_ptr(), len) }
    }

    /// Frees the pages without a check which were used: 44 µs a MiB less, of small ones.
    ///
    /// To populate them (`MAP_POPULATE`, `MADV_POPULATE_READ`) is no gain: the kernel maps 16 pages at a fault.
    #[inline]
    pub fn read_once(&self) -> Result<()> {
        advise(&self.map, Advice::Sequential)
    }
}

/// Two connected `SOCK_SEQPACKET` sockets.
pub fn sockets() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(Error::system("create a socket pair"))
}

/// Passes one descriptor.
#[inline]
pub fn send(socket: &OwnedFd, descriptor: &OwnedFd) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    let pushed = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(pushed, "there is space for one descriptor");
    let byte = [IoSlice::new(&[0])];
    retry_on_intr(|| sendmsg(socket, &byte, &mut ancillary, SendFlags::NOSIGNAL))
        .map_err(Error::system("pass a descriptor"))?;
    Ok(())
}

/// One passed descriptor.
#[inline]
pub fn receive(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut byte = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(socket, &mut byte, &mut ancillary, RecvFlags::CMSG_CLOEXEC))
        .map_err(Error::system("receive a descriptor"))?;
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    passed.ok_or_else(|| Error::system("receive a descriptor")(io::Error::other("none came")))
}

/// Linux 6.3, for `MFD_NOEXEC_SEAL`.
#[inline]
fn memfd() -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    memfd_create("bellwire-floor", flags).map_err(Error::system("create a memfd to seal"))
}

#[inline]
fn reserve(memfd: &OwnedFd, start: usize, len: usize) -> Result<()> {
    fallocate(memfd, FallocateFlags::empty(), start as u64, len as u64)
        .map_err(Error::system("allocate shared memory"))
}

/// Makes the pages of `map` huge where the kernel has some.
#[inline]
fn collapse(map: &Map) {
    // SAFETY: the range is the mapping's own, and the advice changes no byte of it.
    let _ = unsafe { libc::madvise(map.start().as_ptr().cast(), map.len(), MADV_COLLAPSE) };
}

#[inline]
fn advise(map: &Map, advice: Advice) -> Result<()> {
    // SAFETY: the range is the mapping's own, and no advice given here changes a byte of it.
    unsafe { madvise(map.start().as_ptr().cast(), map.len(), advice) }
        .map_err(Error::system("advise about shared memory"))
}

/// An address for `len` bytes, both in huge pages, that nothing but the caller will be mapped at.
fn far_away(len: usize) -> Result<usize> {
    /// Much more than any caller maps, and little of the address space.
    const ROOM: usize = 1 << 40;
    static MIDDLE: OnceLock<usize> = OnceLock::new();
    static TAKEN: AtomicU64 = AtomicU64::new(0);

    let middle = match MIDDLE.get() {
        Some(&middle) => middle,
        None => {
            let doing = "look for free addresses";
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
            let at =
                unsafe { mmap_anonymous(std::ptr::null_mut(), ROOM, ProtFlags::empty(), flags) }
                    .map_err(Error::system(doing))?;
            // SAFETY: it is the mapping just made, which nobody has used.
            unsafe { munmap(at, ROOM) }.map_err(Error::system(doing))?;
            *MIDDLE.get_or_init(|| (at.addr() + ROOM / 2).next_multiple_of(HUGE))
        }
    };
    let taken = TAKEN.fetch_add(len as u64, Ordering::Relaxed);
    Ok(middle + usize::try_from(taken).unwrap_or(0))
}
