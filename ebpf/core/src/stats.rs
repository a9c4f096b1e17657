//! The counters of the kernel programs: a BPF map that is memory-mapped here and read without system calls.
#![allow(unsafe_code, reason = "maps memory that the kernel writes, and reads it")]

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::FromBytes;

use crate::call;
use crate::histogram::{BUCKETS, Histogram};
use crate::stage::STAGE_COUNT;
use crate::{Counts, Key, Pattern};

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
    pattern: u32,
    pad: u32,
    server: u32,
    client: u32,
    samples: u64,
    slowest: Exemplar,
    totals: [Total; STAGE_COUNT],
    buckets: [[u64; BUCKETS]; STAGE_COUNT],
}

/// `struct total` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes)]
#[repr(C)]
struct Total {
    sum: u64,
    max: u64,
}

/// `struct exemplar` of `bpf/trace.h`.
#[derive(Clone, Copy, Debug, Default, FromBytes)]
#[repr(C)]
pub struct Exemplar {
    /// How long the call took; 0 if there is none.
    pub nanos: u64,
    /// Its number in its session.
    pub sequence: u64,
    /// The session's number.
    pub session: u64,
    at: u64,
}

/// The mapped BPF map: an array of contiguous entries.
pub(crate) struct Stats {
    /// Page-aligned.
    start: NonNull<u8>,
}

impl Stats {
    const LEN: usize = SLOTS * size_of::<SessionStats>();

    /// Maps the BPF map, which has [`SLOTS`] entries.
    pub(crate) fn map(map: impl AsFd) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start =
            unsafe { mmap(ptr::null_mut(), Self::LEN, ProtFlags::READ, MapFlags::SHARED, map, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start })
    }

    /// Returns how many calls of an entry were sampled.
    pub(crate) fn samples(&self, slot: usize) -> u64 {
        self.field(slot, offset_of!(SessionStats, samples))
    }

    /// Returns the counts of an entry; `None` if it is empty.
    pub(crate) fn read(&self, slot: usize) -> Option<(Key, Counts)> {
        let totals: [Total; STAGE_COUNT] = self.field(slot, offset_of!(SessionStats, totals));
        if totals.iter().all(|total| total.sum == 0) {
            return None;
        }
        let service: [u8; NAME] = self.field(slot, offset_of!(SessionStats, service));
        let number = self.field(slot, offset_of!(SessionStats, number));
        let created = self.field(slot, offset_of!(SessionStats, created));
        let server = self.field(slot, offset_of!(SessionStats, server));
        let client = self.field(slot, offset_of!(SessionStats, client));
        let samples = self.field(slot, offset_of!(SessionStats, samples));
        let slowest: Exemplar = self.field(slot, offset_of!(SessionStats, slowest));
        let slowest = Exemplar { sequence: slowest.sequence & !call::POST, ..slowest };
        let pattern: u32 = self.field(slot, offset_of!(SessionStats, pattern));
        let buckets: [[u64; BUCKETS]; STAGE_COUNT] =
            self.field(slot, offset_of!(SessionStats, buckets));
        let stages = totals.iter().zip(&buckets);
        let stages = stages.map(|(total, of)| Histogram::new(total.sum, total.max, of));
        let key = Key {
            service: if slot == 0 { "(others)".to_owned() } else { call::text(&service) },
            pattern: Pattern::of(pattern),
            session: (created > 0).then_some((number, created)),
        };
        Some((key, Counts { server, client, samples, slowest, stages: stages.collect() }))
    }

    /// Reads the field at `offset` in an entry.
    fn field<T: FromBytes>(&self, slot: usize, offset: usize) -> T {
        let at = slot * size_of::<SessionStats>() + offset;
        assert!(at + size_of::<T>() <= Self::LEN && at.is_multiple_of(align_of::<T>()));
        let field = self.start.as_ptr().wrapping_add(at).cast::<T>();
        // SAFETY: aligned and inside the map, as was just checked, and any bytes are a valid `T`. Volatile, since the
        // kernel writes it concurrently.
        unsafe { field.read_volatile() }
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        // SAFETY: this is the address and the length of the mapping, which is not used any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), Self::LEN) };
    }
}
