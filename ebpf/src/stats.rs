//! What the programs in the kernel count into: a map of theirs that is mapped here, and read without system calls.
#![allow(unsafe_code, reason = "maps memory that the kernel writes, and reads it")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::call;
use crate::histogram::{BUCKETS, Histogram};
use crate::stage::STAGES;
use crate::tracer::{Counted, Key};

/// `SESSIONS` of `bpf/trace.h`.
pub(crate) const SLOTS: usize = 256;
/// `NAME` of `bpf/trace.h`.
const NAME: usize = 64;

/// `struct session_stats` of `bpf/trace.h`.
#[repr(C)]
struct SessionStats {
    number: u64,
    created: u64,
    service: [u8; NAME],
    server: u32,
    client: u32,
    totals: [Total; STAGES],
    buckets: [[u64; BUCKETS]; STAGES],
}

/// `struct total` of `bpf/trace.h`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Total {
    sum: u64,
    max: u64,
}

/// The map, in memory: an array whose entries stand side by side.
pub(crate) struct Stats {
    slots: NonNull<SessionStats>,
}

impl Stats {
    const LEN: usize = SLOTS * size_of::<SessionStats>();

    /// Maps it. The map has [`SLOTS`] entries.
    pub(crate) fn map(map: impl AsFd) -> io::Result<Self> {
        // SAFETY: at an address that the kernel chooses; nothing that is in use is replaced.
        let start =
            unsafe { mmap(ptr::null_mut(), Self::LEN, ProtFlags::READ, MapFlags::SHARED, map, 0) }?;
        let slots = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { slots })
    }

    /// What was counted in an entry; `None` when nothing was.
    pub(crate) fn read(&self, at: usize) -> Option<(Key, Counted)> {
        assert!(at < SLOTS);
        // SAFETY: the map has as many entries, and is mapped as long as this is.
        let slot = unsafe { self.slots.add(at) }.as_ptr();
        // SAFETY: a field of an entry that is mapped; any bytes make one. Volatile, since the kernel writes meanwhile.
        let totals = unsafe { (&raw const (*slot).totals).read_volatile() };
        if totals.iter().all(|total| total.sum == 0) {
            return None;
        }
        // SAFETY: as above.
        let service = unsafe { (&raw const (*slot).service).read_volatile() };
        // SAFETY: as above.
        let [number, created] = unsafe { slot.cast::<[u64; 2]>().read_volatile() };
        // SAFETY: as above.
        let server = unsafe { (&raw const (*slot).server).read_volatile() };
        // SAFETY: as above.
        let client = unsafe { (&raw const (*slot).client).read_volatile() };
        let stages = totals.iter().enumerate().map(|(stage, total)| {
            // SAFETY: as above; there are as many stages as totals.
            let buckets =
                unsafe { (&raw const (*slot).buckets).cast::<[u64; BUCKETS]>().add(stage) };
            // SAFETY: as above.
            Histogram::new(total.sum, total.max, &unsafe { buckets.read_volatile() })
        });
        let key = Key {
            service: if at == 0 { "(others)".to_owned() } else { call::text(&service) },
            session: (created > 0).then_some((number, created)),
        };
        Some((key, Counted { server, client, stages: stages.collect() }))
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        // SAFETY: it is mapped, so long, and nobody reads it any more.
        let _ = unsafe { munmap(self.slots.as_ptr().cast(), Self::LEN) };
    }
}
