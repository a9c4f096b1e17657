//! The atomics of the whole project: the standard library's, or loom's under `--cfg loom`.
//!
//! Orderings and fences are written where they are used, each fence next to the name of its partner. These are
//! aliases, so that a lint can find code that bypasses them.
#![allow(clippy::disallowed_types, reason = "the one place that names the atomics")]

#[cfg(not(loom))]
use core::sync::atomic;
#[cfg(loom)]
use loom::sync::atomic;

pub use atomic::{Ordering, fence};

/// See [`core::sync::atomic::AtomicBool`].
pub type AtomicBool = atomic::AtomicBool;
/// See [`core::sync::atomic::AtomicU32`].
pub type AtomicU32 = atomic::AtomicU32;
/// See [`core::sync::atomic::AtomicU64`].
pub type AtomicU64 = atomic::AtomicU64;
/// See [`core::sync::atomic::AtomicUsize`].
pub type AtomicUsize = atomic::AtomicUsize;
