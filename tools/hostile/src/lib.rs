//! Hostile clients against a server in a small memory cgroup, beside an honest client: what a peer can make a server
//! hold, and what that costs its other clients.
//!
//! The runner (`bellwire-hostile`) starts three other executables of this package: the server, the honest client and an
//! attack. `docs/hostile.md` describes how to run it, and its results. Linux only.

pub mod attacks;
pub mod honest;
#[path = "../../../tests/support/netipc_wire.rs"]
mod netipc_wire;
pub mod services;
pub mod stdio;
pub mod wire;
