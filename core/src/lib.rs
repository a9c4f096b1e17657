//! The pure core of Bellwire.
//!
//! Nothing here does I/O, reads a clock, starts a thread or makes a system call. Machines take events
//! and the time as arguments and return what to do next; memory is reached through two traits
//! ([`OwnMemory`], [`PeerMemory`]) that a transport implements. The same code runs over sealed memfds,
//! over Windows sections, in the simulator (feature `sim`) and under loom.
//!
//! ```text
//! wire, geometry → memory → lane → call, serve, handshake → port, resize, control, drive
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | every byte that crosses between processes |
//! | [`batch`] | many items in one message |
//! | [`lane`] | records, back-pressure, the parking protocol |
//! | [`resize`] | how a lane changes its size |
//! | [`control`], [`mailbox`] | what is on the control socket meanwhile, and what becomes of it |
//! | [`call`], [`serve`] | which requests are in flight, on either end |
//! | [`counters`] | what became of them, counted and in part timed |
//! | [`handshake`] | how a session begins |
//! | [`sample`] | which messages are stamped for a tracer |
//! | [`port`] | what a transport has to offer |
//! | [`drive`] | the only loops that block, over any port |
//! | [`doctor`] | what a look at a machine finds |
#![cfg_attr(not(any(loom, test, feature = "sim")), no_std)]

extern crate alloc;

mod backend;
pub mod batch;
pub mod call;
pub mod control;
pub mod counters;
pub mod doctor;
pub mod drive;
mod error;
mod geometry;
pub mod handshake;
pub mod lane;
mod limits;
pub mod mailbox;
mod memory;
mod name;
pub mod port;
pub mod resize;
pub mod sample;
pub mod serve;
#[cfg(feature = "sim")]
pub mod sim;
mod spin;
pub mod sync;
mod time;
mod unread;
pub mod wire;

pub use backend::{Backend, InUse};
pub use bellwire_probes as probes;
pub use error::{ErrorKind, Executed, Fault, PeerFault};
pub use geometry::{Geometry, GeometryError};
pub use limits::{Limit, Limits, Whose};
pub use memory::{OwnMemory, PeerMemory, Word};
pub use name::{NameError, ServiceName};
pub use port::{Bell, Park, Port, Woken};
pub use spin::{Looks, Spin, SpinPolicy};
pub use time::{Deadline, Instant, sliced};
pub use unread::{Left, Unread};
