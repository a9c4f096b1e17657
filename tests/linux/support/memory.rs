#![allow(unsafe_code, reason = "a writable map, to see that the kernel refuses it")]
//! Memfds as a hostile peer makes them: any size, any seals, any bytes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use bellwire_core::wire::{BOARD_SIZE, BoardHeader, PAGE_SIZE, PageHeader, Role};
use bellwire_core::{Geometry, ServiceName};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;

/// A builder of memfds. Unmodified, it makes what an honest peer sends.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) size: usize,
    pub(crate) seals: SealFlags,
    pub(crate) sparse: bool,
    /// The bytes at its start.
    pub(crate) bytes: Vec<u8>,
    /// By a descriptor that can only be written.
    pub(crate) write_only: bool,
    /// Makes something else in its place.
    pub(crate) other: Option<fn() -> OwnedFd>,
}

/// The seals of a page or a lane.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

impl Draft {
    pub(crate) fn lane() -> Self {
        let size = usize::try_from(Geometry::DEFAULT.size()).unwrap();
        Self {
            size,
            seals: SEALS,
            sparse: false,
            bytes: Vec::new(),
            write_only: false,
            other: None,
        }
    }

    pub(crate) fn page(role: Role, session: u64, service: ServiceName) -> Self {
        let lane = u32::try_from(Geometry::DEFAULT.size()).unwrap();
        let header = PageHeader::new(role, session, std::process::id(), lane, 1, service);
        Self { size: PAGE_SIZE, bytes: header.as_bytes().to_vec(), ..Self::lane() }
    }

    pub(crate) fn board(service: ServiceName) -> Self {
        let header = BoardHeader::new(std::process::id(), 1, service);
        Self { size: BOARD_SIZE, bytes: header.as_bytes().to_vec(), ..Self::lane() }
    }

    pub(crate) fn make(&self) -> OwnedFd {
        if let Some(other) = self.other {
            return other();
        }
        let fd =
            rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        ftruncate(&fd, self.size as u64).unwrap();
        if !self.sparse {
            fallocate(&fd, FallocateFlags::empty(), 0, self.size as u64).unwrap();
        }
        if !self.bytes.is_empty() {
            assert_eq!(rustix::io::pwrite(&fd, &self.bytes, 0).unwrap(), self.bytes.len());
        }
        fcntl_add_seals(&fd, self.seals).unwrap();
        if self.write_only { reopened(&fd, OFlags::WRONLY) } else { fd }
    }
}

/// Another descriptor of the same file.
pub(crate) fn reopened(fd: &OwnedFd, flags: OFlags) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Whether a holder of the descriptor can map it for writing.
pub(crate) fn maps_writable(fd: impl AsFd, flags: MapFlags) -> bool {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, unmapped below and never used.
    let Ok(at) = (unsafe { mmap(ptr::null_mut(), PAGE_SIZE, prot, flags, fd, 0) }) else {
        return false;
    };
    // SAFETY: mapped just above, and nothing refers to it.
    unsafe { munmap(at, PAGE_SIZE) }.unwrap();
    true
}
