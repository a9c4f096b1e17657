//! Two ends by hand whose lanes change their sizes.

use std::time::Duration;

use bellwire_core::lane::{Armed, Epoch, Lanes, PushError, Record, Wake};
use bellwire_core::resize::{self, FollowError, ResizeError};
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Geometry, Limits, PeerFault};
use bellwire_sim::{Sim, SimEnd};

/// Both ends of a session, numbered 0 and 1, in one thread.
pub(crate) struct Pair {
    pub(crate) ends: [SimEnd; 2],
    pub(crate) lanes: [Lanes; 2],
}

pub(crate) fn size(bytes: u64) -> Geometry {
    Geometry::new(bytes).unwrap()
}

/// A session whose lanes open with 4 KiB and grow within the default limits.
pub(crate) fn growing() -> Sim {
    limited(Limits::default(), Limits::default())
}

/// A session whose lanes open with 4 KiB, of an end with the first limits and a peer with the second.
pub(crate) fn limited(own: Limits, peer: Limits) -> Sim {
    let (lane, limits) = (size(4096), Some([own, peer]));
    Sim { lane, peer_lane: lane, least: lane, limits, ..Sim::default() }
}

/// A payload that differs from every other message's.
pub(crate) fn payload(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        bytes ^= bytes << 13;
        bytes ^= bytes >> 7;
        bytes ^= bytes << 17;
        bytes as u8
    };
    (0..len).map(step).collect()
}

impl Pair {
    pub(crate) fn new(sim: Sim) -> Self {
        let ends = sim.ends();
        let lanes = [ends[0].lanes(), ends[1].lanes()];
        Self { ends, lanes }
    }

    pub(crate) fn push(&mut self, from: usize, id: u64, len: usize) -> Result<(), PushError> {
        let header = Header::new(Kind::Request, Status::Ok, id, len as u32);
        let end = &self.ends[from];
        self.lanes[from].push(end.own(), end.peer(), header, &payload(id, len))
    }

    /// Pushes a record by its header, and publishes it.
    pub(crate) fn put(&mut self, from: usize, header: Header, payload: &[u8]) {
        let end = &self.ends[from];
        self.lanes[from].push(end.own(), end.peer(), header, payload).unwrap();
        let _ = self.commit(from);
    }

    /// Sends a message in memory of its own.
    pub(crate) fn attach(&mut self, from: usize, id: u64, len: usize) -> Result<(), PushError> {
        let (end, lanes, bytes) = (&self.ends[from], &mut self.lanes[from], len as u64);
        lanes.can_attach(end.peer(), bytes)?;
        end.pass(id, &payload(id, len)).unwrap();
        let header = Header::new(Kind::Attach, Status::Ok, id, 0);
        lanes.push_attached(end.own(), end.peer(), header, bytes)
    }

    /// Sends and publishes.
    pub(crate) fn publish(&mut self, from: usize, id: u64, len: usize) {
        self.send(from, id, len).unwrap();
        let _ = self.commit(from);
    }

    /// Pushes, growing the lane by need.
    pub(crate) fn send(&mut self, from: usize, id: u64, len: usize) -> Result<(), ResizeError> {
        while let Err(error) = self.push(from, id, len) {
            let PushError::Grow { to } = error else { return Err(error.into()) };
            self.grow(from, to)?;
        }
        Ok(())
    }

    pub(crate) fn grow(&mut self, from: usize, to: Geometry) -> Result<(), ResizeError> {
        resize::grow(&mut self.ends[from], &mut self.lanes[from], to)
    }

    pub(crate) fn shrink(&mut self, from: usize) -> Result<(), ResizeError> {
        resize::shrink(&mut self.ends[from], &mut self.lanes[from])
    }

    /// Runs maintenance.
    pub(crate) fn maintenance(&mut self, from: usize) -> bool {
        let span = Duration::from_secs(30);
        self.lanes[from].take_maintenance()
            && resize::maintain(&mut self.ends[from], &mut self.lanes[from], span)
    }

    pub(crate) fn commit(&mut self, from: usize) -> Wake {
        let end = &self.ends[from];
        let wake = self.lanes[from].commit(end.own(), end.peer());
        // As a waiting end does.
        (0..16).for_each(|_| self.lanes[from].prefetch(end.own()));
        wake
    }

    pub(crate) fn arm(&mut self, at: usize, space: bool) -> Armed {
        let end = &self.ends[at];
        self.lanes[at].arm(end.own(), end.peer(), space).unwrap().0
    }

    pub(crate) fn has_room(&mut self, at: usize) -> bool {
        self.lanes[at].has_room(self.ends[at].peer()).unwrap()
    }

    pub(crate) fn peek(&mut self, at: usize) -> Result<Option<Record>, PeerFault> {
        self.lanes[at].peek(self.ends[at].peer())
    }

    pub(crate) fn follow(&mut self, at: usize, switch: &Record) -> Result<(), FollowError> {
        resize::follow(&mut self.ends[at], &mut self.lanes[at], switch)
    }

    /// Takes the next record and checks it, following switches. Returns its id and length.
    pub(crate) fn take(&mut self, at: usize) -> Option<(u64, usize)> {
        loop {
            let record = self.peek(at).unwrap()?;
            if record.kind == Kind::Switch {
                self.follow(at, &record).unwrap();
                continue;
            }
            assert_eq!(self.peek(at).unwrap(), Some(record), "a peek takes nothing");
            let mut bytes = vec![0; record.len as usize];
            self.lanes[at].copy(self.ends[at].peer(), &record, &mut bytes);
            assert_eq!(bytes, payload(record.id, bytes.len()), "message {}", record.id);
            self.lanes[at].take(&record);
            return Some((record.id, bytes.len()));
        }
    }

    /// Takes everything that was published: the ids.
    pub(crate) fn take_all(&mut self, at: usize) -> Vec<u64> {
        std::iter::from_fn(|| self.take(at)).map(|(id, _)| id).collect()
    }

    pub(crate) fn epoch(&self, from: usize) -> Epoch {
        self.lanes[from].epoch()
    }
}
