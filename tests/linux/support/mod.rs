//! What several modules need: what all systems share, and what only Linux has.

pub(crate) mod fuse;
pub(crate) mod kernel;
pub(crate) mod limiter;
pub(crate) mod memory;
#[cfg(feature = "netipc")]
#[allow(dead_code, reason = "the tests of the command use the rest")]
#[path = "../../support/netipc_peer.rs"]
pub(crate) mod netipc_peer;
pub(crate) mod pair;
pub(crate) mod rogue;
pub(crate) mod roles;
#[allow(dead_code, reason = "the tests of all systems use the rest")]
#[path = "../../support/mod.rs"]
mod shared;

pub(crate) use shared::{
    blob_server, blobs, child, gate, guard, parked, pattern, services, test_server,
};
