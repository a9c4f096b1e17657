//! The one place that names the platform's transport.

#[cfg(target_os = "linux")]
pub(crate) use bellwire_memfd::*;
