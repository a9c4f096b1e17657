//! The Windows transport of Bellwire: section objects, handle duplication, event doorbells, named pipes.
//!
//! It moves bytes, handles and memory, and parses no message. `bellwire_core` defines what messages and words mean; the
//! facade decides policy. Code that does not depend on the system is in `bellwire_shm`.
//!
//! ```text
//! clock · object                           the time; the names that all transports use for handles
//! os_error · handle · security             error codes, duplicated handles, security descriptors
//! mapping · section                        a mapped view, a section object
//! memory                                   how much memory there is
//! region · snapshot                        memory with one writer, or with none any more
//! doorbell · poll                          waking, waiting for handles
//! peer · reaper · pipe · pass              who the peer is; messages and their handles
//! endpoint · arrivals                      the name; noticing that it is there
//! fork                                     empty, since there is no fork
//! link · watch                             how one end of a session rings and waits; waking readers of a board
//! platform                                 Windows as the facade sees it: the traits of `bellwire_shm::platform`; what to do when
//!                                          a resource is lacking
//! ready                                    reports that a tokio runtime cannot wait for a handle (feature `tokio`)
//! ```
//!
//! Requires Windows 8.1: earlier versions do not check the rights of an unnamed section. On any other system this crate is
//! empty.
#![cfg(windows)]

#[cfg(target_endian = "big")]
compile_error!("the words of a page are little-endian");

pub mod admission;
pub mod arrivals;
pub mod clock;
pub mod doorbell;
pub mod endpoint;
pub mod fork;
pub mod handle;
pub mod link;
pub mod mapping;
pub mod memory;
pub mod object;
mod os_error;
pub mod pass;
pub mod peer;
mod pipe;
mod platform;
pub mod poll;
#[cfg(feature = "tokio")]
pub mod ready;
pub mod reaper;
pub mod region;
mod section;
mod security;
pub mod snapshot;
pub mod watch;

pub use bellwire_shm::LifeState;
pub use os_error::OsError;
pub use platform::Windows;

/// The functions of this transport's types, which are those of traits.
pub mod prelude {
    pub use crate::object::AsObject;
    pub use bellwire_shm::platform::prelude::*;
}
