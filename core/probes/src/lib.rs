//! The static probes of Bellwire, to which a tracer attaches in a running process.
//!
//! Each probe is one `nop` in a function of its own, which is cold, never inlined and not generic, and an ELF note with its
//! address and the registers of its arguments. The functions of this module are inlined and call it only if the probe's
//! semaphore is not 0. `docs/tracing.md` is the reference of names, arguments and units; `docs/adr/0015-probes.md` explains
//! the design.
//!
//! Without the feature `usdt`, on other systems than Linux on x86-64 and aarch64, and under loom, there are no probes: every
//! function does nothing, and [`sampling_mask`] always returns [`SamplingMask::NOTHING`].
#![no_std]

mod table;

use core::mem::offset_of;

#[cfg(all(
    feature = "usdt",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(loom)
))]
#[path = "usdt/mod.rs"]
mod probes;

#[cfg(not(all(
    feature = "usdt",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(loom)
)))]
#[path = "none.rs"]
mod probes;

pub use probes::*;

/// The maximum length of a service's name in bytes.
pub const MAX_SERVICE: usize = 63;

/// The session and end that a probe reports. A tracer reads this struct in memory.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Session {
    /// Ends in at least one zero.
    service: [u8; MAX_SERVICE + 1],
    number: u64,
    role: u64,
    peer: u64,
    created: u64,
}

const _: () = assert!(offset_of!(Session, number) == 0x40 && size_of::<Session>() == 0x60);

/// Which samples the attached tracers want: the counts of the probes' sampling semaphores, in one word, so that a message
/// costs one load. Different values may mean the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplingMask(u64);

/// The durations from which attached tracers want to know of a call: the counts of four semaphores, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowMask(u64);

/// The durations in nanoseconds that a [`SlowMask`] distinguishes, in the order of its semaphores.
pub const SLOW: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

impl SlowMask {
    /// Returns whether any call is wanted.
    #[inline]
    pub fn is_wanted(self) -> bool {
        self.0 != 0
    }
}

/// Positions of the semaphores in a [`SamplingMask`].
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
enum Count {
    Sampling,
    RateAll,
    Rate50000,
    Rate5000,
}

impl SamplingMask {
    /// No tracer is attached.
    pub const NOTHING: Self = Self(0);
    /// A tracer samples at the default cap.
    pub const SAMPLES: Self = Self::of([1, 0, 0, 0]);
    /// Up to 50 000 samples a second.
    pub const SAMPLES_50000: Self = Self::of([1, 0, 1, 0]);
    /// Every message.
    pub const ALL: Self = Self::of([1, 1, 0, 0]);

    /// Creates a mask of counts, in the order of [`Count`].
    const fn of([sampling, all, high, middle]: [u16; 4]) -> Self {
        let ([a, b], [c, d]) = (sampling.to_ne_bytes(), all.to_ne_bytes());
        let ([e, f], [g, h]) = (high.to_ne_bytes(), middle.to_ne_bytes());
        Self(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Returns whether any message is to be sampled.
    #[inline]
    pub fn is_sampling(self) -> bool {
        self.holds(Count::Sampling)
    }

    /// Returns how many messages may be sampled.
    pub fn cap(self) -> Cap {
        if self.holds(Count::RateAll) {
            Cap::of_any_share(u64::MAX)
        } else if self.holds(Count::Rate50000) {
            Cap::of_any_share(50_000)
        } else if self.holds(Count::Rate5000) {
            Cap::of_any_share(5_000)
        } else {
            Cap::DEFAULT
        }
    }

    #[inline]
    fn holds(self, count: Count) -> bool {
        let bit = 16 * count as u32;
        let at = if cfg!(target_endian = "little") { bit } else { 48 - bit };
        (self.0 >> at) & 0xffff != 0
    }
}

/// How many messages may be sampled a second, per session and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// The maximum.
    pub most: u64,
    /// Sampled whatever their share of all messages; beyond this number, samples may only be a small share.
    pub few: u64,
}

impl Cap {
    /// Keeps the cost of tracing a small part of any load, and of the median of any rate from 100 a second on:
    /// `docs/adr/0044-notes-and-weights.md`.
    const DEFAULT: Self = Self { most: 2_000, few: 25 };

    /// Allows `most` samples, however few messages there are.
    pub const fn of_any_share(most: u64) -> Self {
        Self { most, few: most }
    }
}

/// A message with timestamps of its stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The request's id.
    pub sequence: u64,
    /// When the sender began, in nanoseconds of its monotonic clock. Reported by the peer, so not trustworthy.
    pub sent: u64,
    /// When the sender published, in nanoseconds of its monotonic clock. Reported by the peer, so not trustworthy.
    pub published: u64,
    /// When the receiver took it, in nanoseconds of its monotonic clock.
    pub received: u64,
    /// The payload's length in bytes.
    pub length: u64,
}

/// A snapshot or an event that a reader took. All times are in nanoseconds of its monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// When the publisher created its board, in nanoseconds since 1970. Reported by the peer, so not trustworthy.
    pub publisher: u64,
    /// The snapshot's generation, or the event's number.
    pub sequence: u64,
    /// When the reader saw that it was there.
    pub noticed: u64,
    /// When the reader had copied or mapped it.
    pub taken: u64,
    /// When the reader had validated or decoded it, without what its program did between the two.
    pub validated: u64,
}

impl Session {
    /// Describes one end of a session. `number` is the server's number for it, `created` the creation time of the server's
    /// page, `role` this end's role on the wire, and `peer` the process at the other end, or 0 if unknown. A service name is
    /// cut after [`MAX_SERVICE`] bytes.
    pub fn new(service: &[u8], number: u64, created: u64, role: u32, peer: Option<u32>) -> Self {
        let name = service.get(..MAX_SERVICE).unwrap_or(service);
        let service = core::array::from_fn(|at| name.get(at).copied().unwrap_or(0));
        let peer = peer.unwrap_or(0).into();
        Self { service, number, peer, created, ..Self::all(role) }
    }

    /// Describes all sessions of one end, for events that concern all of them.
    pub fn all(role: u32) -> Self {
        let service = [0; MAX_SERVICE + 1];
        Self { service, number: 0, role: role.into(), peer: 0, created: 0 }
    }
}
