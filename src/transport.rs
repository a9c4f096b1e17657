//! The one place that names the platform's transport.

#[cfg(not(windows))]
pub(crate) use bellwire_memfd::*;
#[cfg(windows)]
pub(crate) use bellwire_win::*;
