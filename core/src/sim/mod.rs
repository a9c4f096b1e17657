//! The in-memory simulator: both ends of a session in one thread, with virtual time.
//!
//! One end is driven from outside, by a [`Drive`](crate::drive::Drive) or by hand, over a [`SimPort`]. The other is
//! a [`Peer`]: a step that runs whenever the first one waits. Nothing here reads a clock, sleeps or starts a
//! thread, so that a run is the same every time.
//!
//! ```
//! use bellwire_core::sim::{Sim, SimServer};
//! use bellwire_core::wire::Status;
//! use bellwire_core::drive::Drive;
//! use bellwire_core::{Deadline, SpinPolicy};
//!
//! let echo = SimServer::new(|request: &[u8]| (Status::Ok, request.to_vec()));
//! let (port, lanes) = Sim::default().start(echo);
//! let mut drive = Drive::new(port, lanes, SpinPolicy::NEVER);
//! let ticket = drive.submit(b"hello").unwrap();
//! let mut buffer = Vec::new();
//! let mut until = Deadline::NEVER;
//! let reply = drive.wait_for_reply(&mut until, &mut buffer).unwrap();
//! assert_eq!((reply.ticket, &buffer[..reply.len]), (ticket, &b"hello"[..]));
//! ```
//!
//! Lanes keep their sizes unless [`Sim::limits`] says otherwise. What an end passes to the other goes through a queue
//! that stands for the control socket, as the bytes of its message and a [`SimMemory`] for the descriptor. An end can
//! be made to lack memory or descriptors for its n-th act of a kind, by [`SimEnd::runs_short`].
//!
//! # What it finds
//! A parked end runs again only when it is rung, when a word had moved before it slept (futex only), when
//! its time comes or when a scripted [`Event`] happens. When nothing of that is left, [`SimPort::park`](crate::Port::park)
//! panics with "deadlock": in a simulator that is a lost wake, found. A peer that never stops is found too.
//!
//! # Limits
//! The ends take turns, a step at a time, so no two accesses ever race: that is what the loom tests are for.
//!
//! # Panics
//! Everything here panics on what it finds, and on accesses outside a lane or page.
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
mod world;

pub use end::{Act, SimEnd};
pub use memory::{SimMemory, SimOwn, SimPeer};
pub use peer::{Peer, SimServer, Step};
pub use port::SimPort;
pub use serving::{Serving, Taken};
pub use world::Event;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::lane::{LaneTerms, Lanes};
use crate::wire::Doorbell;
use crate::{Geometry, Limits};

/// Which of a world's two ends is the driven one, and which the peer.
const DRIVEN: usize = 0;
const PEER: usize = 1;

/// What a simulated session is like.
#[derive(Clone, Copy, Debug)]
pub struct Sim {
    /// The lane that the driven end writes, when the session opens. Default: [`Geometry::DEFAULT`].
    pub lane: Geometry,
    /// The lane that the peer writes, when the session opens. Default: [`Geometry::DEFAULT`].
    pub peer_lane: Geometry,
    /// What the driven end and its peer put up with. Default: `None`, for lanes that keep their sizes.
    pub limits: Option<[Limits; 2]>,
    /// The size below which no lane goes. Default: [`Geometry::DEFAULT`], and no more than it opens with.
    pub least: Geometry,
    /// How the driven end is rung. Default: [`Doorbell::Futex`]; the others are rung by edge, whatever the
    /// words hold.
    pub doorbell: Doorbell,
    /// How long after a ring the driven end runs again. Default: 25 µs.
    pub wake: Duration,
    /// How long others run whom the driven end gives way to while it spins. Default: there are none.
    pub crowd: Duration,
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
            crowd: Duration::ZERO,
        }
    }
}

impl Sim {
    /// Both ends at virtual time zero, to be driven by hand. They are rung into the void: nobody parks.
    pub fn ends(self) -> [SimEnd; 2] {
        SimEnd::pair(&self, &Arc::new(world::World::default()))
    }

    /// The terms of the lane that each end writes.
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

    /// Opens a session at virtual time zero: the driven end's port, and its lanes for a
    /// [`Drive`](crate::drive::Drive).
    pub fn start(self, peer: impl Peer + Send + 'static) -> (SimPort, Lanes) {
        let [driven, other] = self.ends();
        let lanes = driven.lanes();
        (SimPort::new(self, driven, other, Box::new(peer)), lanes)
    }
}
