//! Hostile clients against a server in a small memory cgroup, beside an honest client: what a peer can make a server
//! hold, and what that costs others.
//!
//! The runner (`bellwire-hostile`) starts three other executables of this package: the server, the honest client and an
//! attack. `docs/hostile.md` says how to run it, and what came out. Linux only.

pub mod attacks;
pub mod honest;
pub mod life;
pub mod services;
pub mod wire;
