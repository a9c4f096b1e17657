//! Bellwire's drivers, lanes and parking under [loom](https://docs.rs/loom): shared memory whose every access
//! loom sees, and models of the two doorbells. The tests stand in `tests/`; all of it exists under `--cfg loom`
//! only:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p bellwire-loom-tests --release
//! ```
//!
//! # What is modelled
//! * Both ends are the drivers that ship: a `Client` is a `CallDriver` that never spins, a `Server` is a
//!   `ServeDriver` with a loop that sleeps where the reactor does.
//! * A page is loom atomics, a lane is one `UnsafeCell` for each block of 16 bytes: bytes read or written
//!   without a happens-before edge are a failure. Each epoch of a lane is memory of its own, passed through a
//!   queue under a lock, as a socket is one.
//! * A broadcast ring's bytes are atomics as well, Relaxed: readers copy what the writer overwrites, and find out
//!   afterwards.
//! * The futex compares the word's low half under a lock and sleeps. The compare is a relaxed load: the lock
//!   alone orders it with a ringer that takes the same lock, as the kernel's hash bucket does. The kernel's
//!   full barrier before the compare is *not* modelled (loom's mutex has none), so that nothing here
//!   depends on it.
//! * The eventfd is a counter under a lock, waited for by edge and never read: it compares no word.
//! * A lost wake leaves a thread asleep for ever, which loom reports as a deadlock.
//!
//! # Limits
//! Loom does not reorder a thread's own accesses into the future (no load buffering), keeps the last seven
//! stores of an atomic, and every test has the bound that it states.
#![cfg(loom)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a model fails by panicking"
)]

mod broadcast;
mod client;
mod doorbell;
mod memory;
mod port;
mod server;

pub use broadcast::Broadcast;
pub use client::Client;
pub use doorbell::{Doorbells, Sleep};
pub use memory::{Lane, Side, View};
pub use port::{EndPort, Session};
pub use server::Server;

/// Runs `model` through every interleaving with at most `preemptions` switches away from a thread that could
/// have gone on; `None` for all there are. Loom's environment variables do not change the bound.
pub fn check(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 5_000;
    builder.max_permutations = None;
    builder.max_duration = None;
    builder.check(model);
}

/// Like [`check`], with ends that sleep in each of the two ways, one after the other.
pub fn check_both(
    preemptions: Option<usize>,
    model: impl Fn(Sleep) + Copy + Sync + Send + 'static,
) {
    for sleep in [Sleep::Futex, Sleep::Eventfd] {
        check(preemptions, move || model(sleep));
    }
}

/// A buffer of so many bytes, which grows: the fast paths take the messages that fit, the slow ones the others.
const SHORT: usize = 16;

/// The payload of the request `id` and of its answer: each byte is the low byte of `id`.
fn payload(id: u64, len: usize) -> Vec<u8> {
    vec![id.to_le_bytes()[0]; len]
}
