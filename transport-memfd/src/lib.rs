//! The Linux transport of Bellwire: sealed memfds, descriptor passing, futex and eventfd doorbells.
//!
//! It moves bytes, descriptors and memory, and parses no message. [`bellwire_core`] defines what messages and words mean; the
//! facade decides policy. Code that does not depend on the system is in [`bellwire_shm`].
//!
//! ```text
//! clock · object               the time; the names that all transports use for descriptors
//! mapping · sealed             a mapped range, a sealed file
//! memory                       how much memory this process may have
//! region · snapshot · lease    memory with one writer, or with none any more; whether a peer still has it
//! doorbell · life · poll       waking, noticing death, waiting for descriptors
//! pass · reaper · peer         passing and closing descriptors, and who sent them
//! endpoint · notify · arrivals the name on disk; noticing that it is gone, or there
//! fork                         what a child inherits
//! link · watch                 how one end of a session rings and waits; waking readers of a board
//! platform                     Linux as the facade sees it: the traits of [`bellwire_shm::platform`]; what to do when a resource
//!                              is lacking
//! ready                        waiting for a descriptor in a tokio runtime (feature `tokio`)
//! ```
//!
//! Requires Linux 5.10. Items that use features of a newer kernel, where available, say so. On any other system this crate is
//! empty.
#![cfg(target_os = "linux")]

#[cfg(target_endian = "big")]
compile_error!(
    "a futex stands on the low half of a 64-bit word, which comes first on little-endian only"
);

pub mod admission;
pub mod arrivals;
pub mod clock;
pub mod doorbell;
pub mod endpoint;
pub mod fork;
mod lease;
pub mod life;
pub mod link;
mod mapping;
pub mod memory;
pub mod notify;
pub mod object;
pub mod pass;
pub mod peer;
mod platform;
pub mod poll;
#[cfg(feature = "tokio")]
pub mod ready;
pub mod reaper;
pub mod region;
mod sealed;
pub mod snapshot;
mod spare;
pub mod watch;

pub use bellwire_shm::LifeState;
pub use platform::Linux;

/// The functions of this transport's types, which are those of traits.
pub mod prelude {
    pub use crate::object::AsObject;
    pub use bellwire_shm::platform::prelude::*;
}
