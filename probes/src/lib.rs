//! The static probes of Bellwire: what a tracer attaches to in a running process.
//!
//! Each probe is one `nop` in a function of its own, which is cold, never inlined and not generic, and an ELF note
//! that tells where it is and in which registers its arguments lie. Nobody calls that function while the probe's
//! semaphore is 0: the functions here look at it first, and are inlined. `docs/tracing.md` is the reference of names,
//! arguments and units; `docs/adr/0015-probes.md` says why they are made as they are.
//!
//! Without the feature `usdt`, on other systems than Linux on x86-64 and aarch64, and under loom, there are none: every
//! function does nothing, and [`wish`] is constantly [`Wish::NOTHING`].
#![no_std]

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

/// How many bytes a service's name has at most.
pub const MAX_SERVICE: usize = 63;

/// The session that a probe tells of, and the end of it: a tracer reads it where it stands.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Session {
    /// Ends in a zero at least.
    service: [u8; MAX_SERVICE + 1],
    number: u64,
    role: u64,
    peer: u64,
    created: u64,
}

const _: () = assert!(offset_of!(Session, number) == 0x40 && size_of::<Session>() == 0x60);

/// What the tracers that are attached want sampled: the counts of the probes' semaphores that say it, in one word, so that a
/// message costs one load. Two that differ may want the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish(u64);

/// Which semaphore stands where in a [`Wish`].
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
enum Count {
    Sampling,
    RateAll,
    Rate50000,
    Rate5000,
}

impl Wish {
    /// Nobody is attached.
    pub const NOTHING: Self = Self(0);
    /// Samples at the default cap.
    pub const SAMPLES: Self = Self::of([1, 0, 0, 0]);
    /// As many as 5 000 a second.
    pub const SAMPLES_5000: Self = Self::of([1, 0, 0, 1]);
    /// As many as 50 000 a second.
    pub const SAMPLES_50000: Self = Self::of([1, 0, 1, 0]);
    /// Every message.
    pub const ALL: Self = Self::of([1, 1, 0, 0]);

    /// By [`Count`].
    const fn of([sampling, all, high, middle]: [u16; 4]) -> Self {
        let ([a, b], [c, d]) = (sampling.to_ne_bytes(), all.to_ne_bytes());
        let ([e, f], [g, h]) = (high.to_ne_bytes(), middle.to_ne_bytes());
        Self(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Whether any message is to be sampled.
    #[inline]
    pub fn is_sampling(self) -> bool {
        self.holds(Count::Sampling)
    }

    /// How many messages may be sampled.
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
    /// So many at most.
    pub most: u64,
    /// So many whatever their share of all messages is; what is more may be a small share only.
    pub few: u64,
}

impl Cap {
    /// What keeps the cost of tracing a small part of any load: `docs/adr/0024-cost-before-rate.md`.
    const DEFAULT: Self = Self { most: 2_000, few: 1_000 };

    /// So many, however few messages there are.
    pub const fn of_any_share(most: u64) -> Self {
        Self { most, few: most }
    }
}

/// A message whose way was stamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The request's id.
    pub sequence: u64,
    /// When the sender began, in nanoseconds of its monotonic clock. A peer's word.
    pub sent: u64,
    /// When the sender published, in nanoseconds of its monotonic clock. A peer's word.
    pub published: u64,
    /// When the receiver took it, in nanoseconds of its monotonic clock.
    pub received: u64,
    /// The payload's length in bytes.
    pub length: u64,
}

impl Session {
    /// The session that the server calls `number`, whose page it `created` then, on the end whose `role` on the wire this
    /// is; `peer` is the process at the other end, 0 if that is not known. More than [`MAX_SERVICE`] bytes of the
    /// service's name are cut off.
    pub fn new(service: &[u8], number: u64, created: u64, role: u32, peer: Option<u32>) -> Self {
        let mut session = Self::all(role);
        for (to, from) in session.service.iter_mut().zip(service.iter().take(MAX_SERVICE)) {
            *to = *from;
        }
        let peer = peer.unwrap_or(0).into();
        Self { number, peer, created, ..session }
    }

    /// All sessions of one end, for what concerns them together.
    pub fn all(role: u32) -> Self {
        let service = [0; MAX_SERVICE + 1];
        Self { service, number: 0, role: role.into(), peer: 0, created: 0 }
    }
}
