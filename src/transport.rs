//! The platform's transport, for programs that look below sessions: diagnosis and tests.
//!
//! This is the one place that names it. What stands here is no part of what this crate promises: it changes with the
//! transports, and only what both of them have works on either.

#[cfg(not(windows))]
pub use bellwire_memfd::*;
#[cfg(windows)]
pub use bellwire_win::*;
