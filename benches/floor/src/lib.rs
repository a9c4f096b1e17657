//! The machine's own costs: two-process baselines for Bellwire's benches.
//!
//! A program that measures starts its `main` with
//!
//! ```no_run
//! # fn echo_server(_: &mut bellwire_floor::process::Peer) -> bellwire_floor::process::RoleResult { Ok(()) }
//! fn main() -> std::process::ExitCode {
//!     if let Some(code) = bellwire_floor::peer_main(&[("echo-server", echo_server)]) {
//!         return code; // this process was the other end
//!     }
//!     // ... the bench itself
//!     # std::process::ExitCode::SUCCESS
//! }
//! ```
//!
//! because every other end here is a real process: the same binary, executed again in a [role].
//!
//! | floor | what it does | the other end waits by |
//! | --- | --- | --- |
//! | [`hot`] | payload and counter each way, copied in and out | spinning |
//! | [`copy`] | one-way stream of messages through a ring | spinning |
//! | [`copy::Bulk`] | the same for large messages, cut into chunks | spinning |
//! | [`handover`] | a fresh region in place of the one before | spinning |
//! | [`futex`] | two words | `FUTEX_WAIT` |
//! | [`eventfd`] | two eventfds | a blocking `read` |
//! | [`eventfd::Epoll`] | two eventfds | `epoll_wait` |
//!
//! [`reads`] has what needs no other end: loads of private memory.
//!
//! Each is "do `n` operations, return the [`Duration`]".
//! Between two calls the other end is asleep, so floors and measured code can take turns on the same two CPUs.
//! [`placement`] tells where those CPUs are.
//!
//! [role]: process

use std::process::ExitCode;
use std::time::Duration;

pub mod copy;
pub mod cpus;
mod error;
pub mod eventfd;
pub mod futex;
pub mod handover;
pub mod hot;
pub mod pingpong;
pub mod placement;
pub mod private;
pub mod process;
pub mod reads;
pub mod shared;
pub mod spread;
pub mod sync;

pub use cpus::Cpus;
pub use error::{Error, Result};
pub use placement::Prober;
pub use spread::Spread;

/// Runs this process as a peer if that is what it was started for; the first thing that `main` does.
///
/// `None` means that this is the bench itself. `roles` are the caller's own, beside those of the floors.
pub fn peer_main(roles: &[process::Role]) -> Option<ExitCode> {
    let own: [process::Role; 8] = [
        (hot::ROLE, hot::peer::<true>),
        (hot::BARE, hot::peer::<false>),
        (copy::ROLE, copy::peer::<false>),
        (copy::BULK, copy::peer::<true>),
        (futex::ROLE, futex::peer),
        (eventfd::ROLE, eventfd::peer::<false>),
        (eventfd::EPOLL, eventfd::peer::<true>),
        (handover::ROLE, handover::peer),
    ];
    process::roles(&[&own, roles])
}

/// The nanoseconds that one of `operations` took.
pub fn ns_each(took: Duration, operations: u64) -> f64 {
    took.as_secs_f64() * 1e9 / operations.max(1) as f64
}
