//! The Windows transport of Bellwire: section objects, handle duplication, event doorbells, named pipes.
//!
//! It moves bytes, handles and memory, and parses no message. What messages and the words in the memory mean is
//! `bellwire_core`'s business; policy is the facade's. What does not depend on the system is in `bellwire_transport`.
//!
//! ```text
//! clock · object                           the time; handles by the names that every transport has
//! os_error · handle · security             an error code, a duplicate, a descriptor of rights
//! mapping · section                        a mapped view, a section object
//! shortage · memory                        what to do when the system lacks something; how much memory there is
//! region · snapshot                        memory that one process writes; memory that nobody writes any more
//! doorbell · life · poll                   waking, noticing death, waiting for handles
//! peer · reaper · pipe · pass              who the peer is; messages, and the handles that come with them
//! endpoint · fork · notify                 the name; nothing: there is no fork, and no file to lose
//! link · watch                             all of it as one end of a session: the core's `Port`; who waits for a board
//! ready                                says that no tokio runtime waits for a handle (feature `tokio`)
//! observe                                  sessions of other processes: none (feature `observe`)
//! doctor                                   whether the machine has what all of this needs (feature `doctor`)
//! trial                                    what a trial does to processes, and what they hold (feature `doctor`)
//! ```
//!
//! Windows 8.1 or newer: before it the rights of an unnamed section were not checked. There is nothing in
//! this crate on any other system.
#![cfg(windows)]

#[cfg(target_endian = "big")]
compile_error!("the words of a page are little-endian");

pub mod admission;
pub mod clock;
#[cfg(feature = "doctor")]
pub mod doctor;
pub mod doorbell;
pub mod endpoint;
pub mod fork;
mod handle;
pub mod life;
pub mod link;
mod mapping;
pub mod memory;
pub mod notify;
pub mod object;
#[cfg(feature = "observe")]
pub mod observe;
mod os_error;
pub mod pass;
pub mod peer;
mod pipe;
pub mod poll;
#[cfg(feature = "tokio")]
pub mod ready;
pub mod reaper;
pub mod region;
mod section;
mod security;
pub mod shortage;
pub mod snapshot;
#[cfg(feature = "doctor")]
pub mod trial;
pub mod watch;

pub use os_error::OsError;
