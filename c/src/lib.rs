#![allow(
    unsafe_code,
    non_camel_case_types,
    reason = "the functions and types of a C library: pointers come from C, and names are those of the header"
)]
//! `libbellwire`, the C library. `include/bellwire.h` is generated from this crate and documents it; `docs/c.md` is the
//! tutorial.

pub mod bytes;
pub mod cache;
pub mod cgroups;
pub mod client;
pub mod config;
pub mod error;
pub mod events;
mod extensible;
#[cfg(target_pointer_width = "64")]
mod layout;
pub mod lookups;
pub mod payload;
pub mod pipeline;
pub mod publisher;
pub mod server;

pub use bytes::{bw_bytes, bw_text};
pub use cache::{bw_cache, bw_snapshot};
pub use cgroups::{bw_cgroup, bw_cgroups};
pub use client::{bw_canceller, bw_client, bw_client_stats};
pub use config::{bw_client_config, bw_contract, bw_server_config};
pub use error::bw_error;
pub use events::{bw_delivery, bw_event_publisher, bw_subscriber};
pub use lookups::{bw_app, bw_apps, bw_cgroup_details, bw_cgroup_lookup};
pub use payload::bw_payload;
pub use pipeline::bw_reply;
pub use publisher::bw_publisher;
pub use server::{bw_answer, bw_caller, bw_server, bw_server_builder, bw_server_stats};

use std::ffi::{c_char, c_int};

/// The version of this header: major.
pub const BW_VERSION_MAJOR: c_int = 0;
/// Minor.
pub const BW_VERSION_MINOR: c_int = 1;
/// Patch.
pub const BW_VERSION_PATCH: c_int = 0;

/// Returns the version of the library, such as "0.1.0": never NULL, and never freed.
#[unsafe(no_mangle)]
pub extern "C" fn bw_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
