#![allow(unsafe_code, reason = "maps a file that two processes of this bench share")]
//! The memory of both ends: a file that both have mapped.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::Outcome;

/// A mapped file, for as long as one clone of it lives.
#[derive(Clone)]
pub(super) struct Memory(Arc<Map>);

struct Map {
    at: *mut u8,
    len: usize,
}

// SAFETY: it is an address range, which is there for every thread; its users are responsible for accesses.
unsafe impl Send for Map {}
// SAFETY: as above, and it has no method that changes it.
unsafe impl Sync for Map {}

impl Memory {
    pub(super) fn create(path: &Path, len: usize) -> Outcome<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.set_len(len as u64)?;
        Self::map(&file, len)
    }

    pub(super) fn open(path: &Path) -> Outcome<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let len = usize::try_from(file.metadata()?.len())?;
        Self::map(&file, len)
    }

    fn map(file: &File, len: usize) -> Outcome<Self> {
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing of ours.
        let at = unsafe { mmap(ptr::null_mut(), len, prot, flags, file, 0) }?;
        Ok(Self(Arc::new(Map { at: at.cast(), len })))
    }

    /// The start of a range that lies in the memory.
    pub(super) fn range(&self, from: usize, len: usize) -> Outcome<*mut u8> {
        match from.checked_add(len) {
            Some(end) if end <= self.0.len => Ok(self.0.at.wrapping_add(from)),
            _ => Err("a range outside the shared memory".into()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is the range that `mmap` gave, and everything that points into it holds a clone of `Memory`.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}
