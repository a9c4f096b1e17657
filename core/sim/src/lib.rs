//! The in-memory simulator: both ends of a session in one thread, with virtual time.
//!
//! One end is driven from outside, by a [`CallDriver`](bellwire_core::drive::CallDriver) or by hand, over a [`SimPort`]. The other is a
//! [`Peer`]: a step that runs whenever the first one waits. Nothing here reads a clock, sleeps or starts a thread, so
//! every run is identical.
//!
//! ```
//! use bellwire_sim::{Sim, SimServer};
//! use bellwire_core::wire::Status;
//! use bellwire_core::drive::CallDriver;
//! use bellwire_core::{Deadline, SpinPolicy};
//!
//! let echo = SimServer::new(|request: &[u8]| (Status::Ok, request.to_vec()));
//! let (port, lanes) = Sim::default().start(echo);
//! let mut driver = CallDriver::new(port, lanes, SpinPolicy::NEVER);
//! let ticket = driver.submit(b"hello").unwrap();
//! let mut buffer = Vec::new();
//! let mut until = Deadline::NEVER;
//! let reply = driver.wait_for_reply(&mut until, &mut buffer).unwrap();
//! assert_eq!((reply.ticket, &buffer[..reply.len]), (ticket, &b"hello"[..]));
//! ```
//!
//! Lanes keep their sizes unless [`Sim::limits`] says otherwise. A queue stands for the control socket: it carries
//! the bytes of a message, with a [`SimMemory`] for the descriptor. [`SimEnd::runs_short`] makes the n-th operation
//! of a kind fail for lack of memory or descriptors.
//!
//! # What it finds
//! A parked end runs again only when it is rung, when a word had moved before it slept (futex only), at its deadline,
//! or at a scripted [`Event`]. When none of these can happen any more, [`SimPort::park`](bellwire_core::Port::park) panics
//! with "deadlock": the simulator has found a lost wake-up. It also detects a peer that never stops.
//!
//! # Limits
//! The ends take turns, one step at a time, so no two accesses ever race; the loom tests cover races.
//!
//! # Panics
//! Everything here panics on an error that it finds, and on accesses outside a lane or page.
#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a simulator reports what it finds by panicking"
)]

mod end;
mod memory;
mod peer;
mod port;
mod serving;
mod shared;

pub use end::{Act, SimEnd};
pub use memory::{SimMemory, SimOwn, SimPeer};
pub use peer::{Peer, SimServer, Step};
pub use port::SimPort;
pub use serving::{Serving, Taken};
pub use shared::Event;

use std::sync::Arc;
use std::time::Duration;

use bellwire_core::lane::{LaneTerms, Lanes};
use bellwire_core::wire::Doorbell;
use bellwire_core::{Geometry, Limits};

/// Indexes of the two ends of a world: the driven one and its peer.
const DRIVEN: usize = 0;
const PEER: usize = 1;

/// The parameters of a simulated session.
#[derive(Clone, Copy, Debug)]
pub struct Sim {
    /// The initial size of the driven end's lane. Default: [`Geometry::DEFAULT`].
    pub lane: Geometry,
    /// The initial size of the peer's lane. Default: [`Geometry::DEFAULT`].
    pub peer_lane: Geometry,
    /// The limits of the driven end and its peer. Default: `None`, for lanes that keep their sizes.
    pub limits: Option<[Limits; 2]>,
    /// The minimum size of the lanes, at most their initial size. Default: [`Geometry::DEFAULT`].
    pub least: Geometry,
    /// The driven end's doorbell. Default: [`Doorbell::Futex`]; the others are edge-triggered, whatever the words
    /// hold.
    pub doorbell: Doorbell,
    /// The time from a ring until the driven end runs. Default: 25 µs.
    pub wake: Duration,
    /// How long other threads run when the spinning driven end yields. Default: zero, there are none.
    pub yield_time: Duration,
}

impl Default for Sim {
    fn default() -> Self {
        Self {
            lane: Geometry::DEFAULT,
            peer_lane: Geometry::DEFAULT,
            limits: None,
            least: Geometry::DEFAULT,
            doorbell: Doorbell::Futex,
            wake: Duration::from_micros(25),
            yield_time: Duration::ZERO,
        }
    }
}

impl Sim {
    /// Creates both ends at virtual time zero, to be driven by hand. Rings have no effect, because neither end parks.
    pub fn ends(self) -> [SimEnd; 2] {
        SimEnd::pair(&self, &Arc::new(shared::SharedState::default()))
    }

    /// Returns the terms of the lane that each end writes.
    fn terms(&self) -> [LaneTerms; 2] {
        let sizes = [self.lane, self.peer_lane];
        match self.limits {
            None => sizes.map(LaneTerms::fixed),
            Some([driven, peer]) => {
                let [own, other] = sizes;
                [
                    LaneTerms::agreed(own, self.least, &driven, &peer),
                    LaneTerms::agreed(other, self.least, &peer, &driven),
                ]
            }
        }
    }

    /// Opens a session at virtual time zero. Returns the driven end's port, and its lanes for a
    /// [`CallDriver`](bellwire_core::drive::CallDriver).
    pub fn start(self, peer: impl Peer + Send + 'static) -> (SimPort, Lanes) {
        let [driven, other] = self.ends();
        let lanes = driven.lanes();
        (SimPort::new(self, driven, other, Box::new(peer)), lanes)
    }
}
