//! The platform's transport under one name: the only place that distinguishes operating systems.
//!
//! It is not public, and changes with the transports. Tests below the level of sessions include this file.
//!
//! ```compile_fail
//! use bellwire::transport;
//! ```

#![allow(
    unreachable_pub,
    unused_imports,
    reason = "which of it is reached depends on the features"
)]

#[cfg(not(windows))]
pub use bellwire_memfd::{Linux as Os, *};
#[cfg(windows)]
pub use bellwire_win::{Windows as Os, *};
