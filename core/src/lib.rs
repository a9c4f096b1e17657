//! The pure core of Bellwire.
//!
//! Nothing here does I/O, reads a clock, starts a thread or makes a system call. State machines take events and the
//! time as arguments and return what to do next. They reach memory through two traits ([`OwnMemory`], [`PeerMemory`])
//! that a transport implements. The same code runs over sealed memfds, over Windows sections, in the simulator
//! of the tests and under loom.
//!
//! ```text
//! wire, geometry → memory → lane → call, serve, handshake → port, resize, control → end → drive
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | every byte that crosses between processes |
//! | [`batch`] | many items in one message |
//! | [`lane`] | records, backpressure, the parking protocol |
//! | [`broadcast`] | records of one writer for any number of readers |
//! | [`resize`] | how a lane changes its size |
//! | [`control`], [`mailbox`] | messages on the control socket, and the memory that records refer to |
//! | [`call`], [`serve`] | requests in flight, at either end |
//! | [`counters`] | counts and latencies of requests |
//! | [`handshake`] | how a session opens |
//! | [`port`] | what a transport provides |
//! | [`end`] | one end of a session over any port: its lanes, its state, how it grows and closes |
//! | [`drive`] | an end with the calling or the serving machine; the only loops that block |
#![cfg_attr(not(any(loom, test)), no_std)]

extern crate alloc;

mod backend;
pub mod batch;
pub mod broadcast;
pub mod call;
pub mod control;
pub mod counters;
pub mod drive;
pub mod end;
mod error;
mod geometry;
pub mod handshake;
pub mod lane;
mod limits;
pub mod mailbox;
mod memory;
mod name;
mod observer;
pub mod port;
mod random;
pub mod resize;
pub mod serve;
mod spin;
mod stall;
pub mod sync;
mod time;
pub mod wire;

pub use backend::{Backend, BackendStatus};
pub use error::{ErrorKind, Executed, Fault, PeerFault};
pub use geometry::{Geometry, GeometryError};
pub use limits::{Limit, LimitOwner, Limits};
pub use memory::{OwnMemory, PeerMemory, Word};
pub use name::{NameError, ServiceName};
pub use observer::Observer;
pub use port::{Bell, Park, Port, Woken};
pub use random::Random;
pub use spin::{Spin, SpinCounter, SpinPolicy};
pub use stall::{StallDetector, StallStatus};
pub use time::{Deadline, Instant, nanos, sliced};
