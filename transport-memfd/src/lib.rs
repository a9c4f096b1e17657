//! The Linux transport of Bellwire: sealed memfds, descriptor passing, futex and eventfd doorbells.
//!
//! It moves bytes, descriptors and memory, and parses no message. What messages and the words in the memory mean is
//! [`bellwire_core`]'s business; policy is the facade's. What does not depend on the system is in
//! [`bellwire_transport`].
//!
//! ```text
//! clock · object               the time; descriptors by the names that every transport has
//! mapping · sealed · shortage  a mapped range, a sealed file, what to do when there is none
//! memory                       how much of it this process may have
//! region · snapshot · lease    memory that one process writes, or nobody any more; whether a peer still has it
//! doorbell · life · poll       waking, noticing death, waiting for descriptors
//! pass · reaper · peer         descriptors and who sent them
//! endpoint · notify            the name on disk; that it is gone
//! fork                         what a child has of its parent's
//! link · watch                 all of it as one end of a session: the core's `Port`; who waits for a board
//! ready                        waiting for a descriptor in a tokio runtime (feature `tokio`)
//! observe                      sessions of other processes (feature `observe`)
//! doctor                       whether the machine has what all of this needs (feature `doctor`)
//! trial                        what a trial does to processes, and what they hold (feature `doctor`)
//! ```
//!
//! Linux 5.14 or newer; what a newer kernel adds is used where it is there, and each item says so. There is nothing in
//! this crate on any other system.
#![cfg(target_os = "linux")]

#[cfg(target_endian = "big")]
compile_error!(
    "a futex stands on the low half of a 64-bit word, which comes first on little-endian only"
);

pub mod admission;
pub mod clock;
#[cfg(feature = "doctor")]
pub mod doctor;
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
#[cfg(feature = "observe")]
pub mod observe;
pub mod pass;
pub mod peer;
pub mod poll;
#[cfg(feature = "tokio")]
pub mod ready;
pub mod reaper;
pub mod region;
mod sealed;
pub mod shortage;
pub mod snapshot;
mod spare;
#[cfg(feature = "doctor")]
pub mod trial;
pub mod watch;
