use alloc::sync::Arc;
use core::time::Duration;

use super::world::World;
use super::{DRIVEN, Event, PEER, SimOwn, SimPeer};
use crate::lane::{Lanes, Wake};
use crate::sync::Ordering;
use crate::{Geometry, Instant, OwnMemory, Word};

/// One end of a simulated session: its memory, the time and the peer's bell.
#[derive(Debug)]
pub struct SimEnd {
    me: usize,
    lanes: [Geometry; 2],
    own: SimOwn,
    peer: SimPeer,
    world: Arc<World>,
}

impl SimEnd {
    /// The driven end and its peer, with the size of the lane that each writes.
    pub(super) fn pair(lanes: [Geometry; 2], world: &Arc<World>) -> [Self; 2] {
        let [first, second] = lanes.map(SimOwn::new);
        Lanes::open(&first);
        Lanes::open(&second);
        let end = |me, lanes, own: &SimOwn, peer: &SimOwn| Self {
            me,
            lanes,
            own: own.clone(),
            peer: peer.shared(),
            world: Arc::clone(world),
        };
        let [a, b] = lanes;
        [end(DRIVEN, [a, b], &first, &second), end(PEER, [b, a], &second, &first)]
    }

    /// The lanes of this end, as they are when a session begins: ask once.
    pub fn lanes(&self) -> Lanes {
        let [own, peer] = self.lanes;
        Lanes::new(own, peer)
    }

    /// This end's memory.
    pub fn own(&self) -> &SimOwn {
        &self.own
    }

    /// The other end's memory.
    pub fn peer(&self) -> &SimPeer {
        &self.peer
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// Rings the other end, and stamps the page with the time.
    pub fn ring(&self) {
        self.own.store(Word::RungAt, self.now().as_nanos(), Ordering::Relaxed);
        self.world.ring(1 - self.me);
    }

    /// Rings the other end for each bell that it asked for.
    pub fn wake(&self, wake: Wake) {
        for _ in 0..u8::from(wake.data) + u8::from(wake.space) {
            self.ring();
        }
    }

    /// How often this end was rung.
    pub fn rung(&self) -> u64 {
        self.world.rung(self.me)
    }

    /// Lets this happen to the driven end in `span` from now.
    pub fn after(&self, span: Duration, event: Event) {
        self.world.at(self.now().after(span), event);
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }
}
