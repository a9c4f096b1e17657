//! What several modules need.

pub(crate) mod blob_server;
pub(crate) mod blobs;
pub(crate) mod child;
pub(crate) mod gate;
pub(crate) mod guard;
pub(crate) mod parked;
pub(crate) mod pattern;
pub(crate) mod roles;
pub(crate) mod services;
pub(crate) mod spawn;
pub(crate) mod test_server;
#[path = "../../src/transport.rs"]
pub(crate) mod transport;
