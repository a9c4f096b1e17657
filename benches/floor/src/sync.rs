//! The atomics of the floors: the standard library's, for loom has no part in two real processes.
#![allow(
    clippy::disallowed_types,
    reason = "floors stay apart from the code that they are compared with"
)]

pub use core::sync::atomic::Ordering;

/// A counter that two processes share.
pub type AtomicU64 = core::sync::atomic::AtomicU64;
/// A word that the kernel can wait on.
pub type AtomicU32 = core::sync::atomic::AtomicU32;
