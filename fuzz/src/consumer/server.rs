use std::time::Duration;

use bellwire_core::lane::{LaneTerms, Lanes, PushError, Record};
use bellwire_core::resize::{self, FollowError, ResizeError};
use bellwire_core::serve::{Flushed, Incoming, Passed, RespondError, ServeMachine};
use bellwire_core::wire::{CloseReason, Status};
use bellwire_core::{Geometry, PeerFault};

use super::harness::{Harness, World};

/// Requests in flight at most.
const MOST: u64 = 4;

/// The serving end: what a reactor does with a session, in any order.
pub(super) fn run<'a>(world: &'a World<'a>, terms: LaneTerms) {
    let mut server = Server {
        world,
        harness: Harness(world),
        lanes: Lanes::with_terms(terms, terms),
        serve: ServeMachine::new(MOST),
        requests: Vec::new(),
        last_id: 0,
        // As after a message of this length: the fast path takes shorter ones.
        buffer: vec![0; 64],
        passed: 0,
    };
    while !world.script.is_over() && server.serve.closed().is_none() {
        world.begin();
        let lie = server.act().err();
        world.end(lie);
        let in_flight = server.serve.counts().in_flight();
        assert_eq!(in_flight, server.requests.len() as u64);
        assert!(in_flight <= MOST, "more requests than may be in flight");
        if lie.is_some() {
            break;
        }
        let Server { harness, lanes, .. } = &mut server;
        world.repeat(|| lanes.taken(harness).err());
    }
    let Server { harness, lanes, .. } = &mut server;
    let _ = lanes.close(harness, harness, CloseReason::Normal);
}

struct Server<'a> {
    world: &'a World<'a>,
    harness: Harness<'a>,
    lanes: Lanes,
    serve: ServeMachine,
    /// Those that wait for their answer.
    requests: Vec<u64>,
    last_id: u64,
    buffer: Vec<u8>,
    /// Answers that were passed in memory of their own.
    passed: u64,
}

impl Server<'_> {
    fn act(&mut self) -> Result<(), PeerFault> {
        let script = &self.world.script;
        match script.byte() % 17 {
            0..=5 => self.next(),
            6 => self.respond(usize::from(script.byte())),
            7 => self.respond(usize::from(script.u16())),
            8 => {
                if let Some(id) = self.requests.pop() {
                    let payload = vec![7; usize::from(script.u16())];
                    self.serve.respond_in_parts(id, Status::Ok, Box::new(payload));
                }
                Ok(())
            }
            9 => self.respond_attached(u64::from(script.u16()) * 4),
            10 => self.flush(),
            11 => {
                self.commit();
                Ok(())
            }
            12 => {
                let space = self.serve.is_blocked();
                let (armed, _) = self.lanes.arm(&self.harness, &self.harness, space)?;
                self.world.check(armed);
                self.lanes.disarm(&self.harness);
                Ok(())
            }
            13 => {
                let to = Geometry::new(1 << (12 + script.byte() % 4)).expect("a lane's size");
                resized(resize::grow(&mut self.harness, &mut self.lanes, to))
            }
            14 => resized(resize::shrink(&mut self.harness, &mut self.lanes)),
            15 => {
                self.serve.give_up_arriving();
                Ok(())
            }
            _ => self.lanes.look(&self.harness),
        }
    }

    fn next(&mut self) -> Result<(), PeerFault> {
        let Self { lanes, serve, harness, buffer, .. } = self;
        match serve.next(lanes, harness, harness, buffer)? {
            Some(Incoming::Request { id, len, .. }) => {
                self.begin(id);
                let reading = self.world.reading.borrow();
                assert_eq!(self.buffer[..len], *reading.message(), "another request than was read");
                Ok(())
            }
            Some(Incoming::Attached { id } | Incoming::GivenUp { id }) => {
                self.begin(id);
                Ok(())
            }
            Some(Incoming::Switch(switch)) => self.follow(&switch),
            Some(Incoming::Trim) => {
                resized(resize::shrink(&mut self.harness, &mut self.lanes))?;
                self.serve.trimmed(&mut self.lanes, &self.harness, &self.harness)
            }
            Some(Incoming::Cancel { id }) => {
                // That of a request that was broken off, too.
                let last = self.world.reading.borrow().last_id;
                assert!(id <= last, "what was never asked is cancelled");
                Ok(())
            }
            Some(Incoming::Part) | None => Ok(()),
        }
    }

    fn begin(&mut self, id: u64) {
        assert!(id > self.last_id, "ids grow");
        self.last_id = id;
        self.requests.push(id);
    }

    fn follow(&mut self, switch: &Record) -> Result<(), PeerFault> {
        match resize::follow(&mut self.harness, &mut self.lanes, switch) {
            Err(FollowError::Lied(lie)) => Err(lie),
            Ok(()) | Err(FollowError::Short(_)) => Ok(()),
        }
    }

    fn respond(&mut self, len: usize) -> Result<(), PeerFault> {
        let Some(id) = self.requests.pop() else { return Ok(()) };
        let Self { lanes, serve, harness, .. } = self;
        let payload = vec![7; len];
        match serve.respond(lanes, harness, harness, id, Status::Ok, &payload) {
            Ok(()) => {}
            Err(RespondError::Peer(lie)) => {
                self.requests.push(id);
                return Err(lie);
            }
            Err(RespondError::Grow(to)) => {
                let grown = resize::grow(harness, lanes, to);
                serve.respond_later(id, Status::Ok, &payload);
                return resized(grown);
            }
            Err(_) => serve.respond_later(id, Status::TooLarge, &[]),
        }
        Ok(())
    }

    fn respond_attached(&mut self, bytes: u64) -> Result<(), PeerFault> {
        let Some(id) = self.requests.pop() else { return Ok(()) };
        let Self { lanes, serve, harness, passed, .. } = self;
        let before = *passed;
        let pass = |_| {
            *passed += 1;
            Ok(())
        };
        match serve.respond_attached(lanes, harness, harness, id, bytes, pass) {
            Ok(how) => assert_eq!(self.passed - before, u64::from(how == Passed::Now)),
            Err(error) => {
                self.requests.push(id);
                if let RespondError::Peer(lie) = error {
                    return Err(lie);
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PeerFault> {
        let Self { lanes, serve, harness, .. } = self;
        match serve.flush(lanes, harness, harness, |_| Ok(()))? {
            Flushed::Grow(to) => match resize::grow(harness, lanes, to) {
                Err(ResizeError::Short(_)) => {
                    serve.cut_first();
                    Ok(())
                }
                grown => resized(grown),
            },
            Flushed::Done => {
                assert!(!serve.is_blocked());
                Ok(())
            }
            Flushed::Part | Flushed::Blocked => Ok(()),
        }
    }

    fn commit(&mut self) {
        let Self { lanes, harness, .. } = self;
        let _ = lanes.commit(harness, harness);
        if lanes.take_maintenance() && resize::maintain(harness, lanes, Duration::from_micros(50)) {
            let _ = lanes.commit(harness, harness);
        }
    }
}

fn resized(resized: Result<(), ResizeError>) -> Result<(), PeerFault> {
    match resized {
        Err(ResizeError::Push(PushError::Peer(lie))) => Err(lie),
        _ => Ok(()),
    }
}
