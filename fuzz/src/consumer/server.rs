use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bellwire_core::drive::{Attachable, RespondOutcome, ServeDriver};
use bellwire_core::lane::{LaneTerms, Lanes, PushError};
use bellwire_core::resize::{FollowError, ResizeError, Shortage};
use bellwire_core::serve::Incoming;
use bellwire_core::wire::{CloseReason, ONE_WAY, Status};
use bellwire_core::{Geometry, PeerFault};

use super::harness::{Fixture, Harness};

/// Requests in flight at most.
const MOST: u64 = 4;

/// The serving end: what a reactor does with a session, in any order.
pub(super) fn run<'a>(fixture: &'a Fixture<'a>, terms: LaneTerms) {
    let lanes = Lanes::with_terms(terms, terms);
    let mut driver = ServeDriver::new(Harness(fixture), lanes, MOST, ());
    driver.end_mut().set_shrink_after(Duration::from_micros(50));
    let mut server = Server {
        fixture,
        driver,
        requests: Vec::new(),
        last_id: 0,
        // As after a message of this length: the fast path takes shorter ones.
        buffer: vec![0; 64],
        attached: 0,
        passed: Rc::default(),
    };
    while !fixture.script.is_over() && server.driver.end().closed().is_none() {
        fixture.begin();
        let violation = server.act().err();
        assert_eq!(server.driver.end().fault(), violation, "what is reported ends the session");
        fixture.end(violation);
        let in_flight = server.driver.counts().in_flight();
        assert_eq!(in_flight, server.requests.len() as u64);
        assert!(in_flight <= MOST, "more requests than may be in flight");
        assert!(server.passed.get() <= server.attached, "an answer was passed twice");
        if violation.is_some() {
            break;
        }
        fixture.repeat(|| server.driver.end_mut().taken().err());
    }
    server.driver.end_mut().close(CloseReason::Normal);
}

struct Server<'a> {
    fixture: &'a Fixture<'a>,
    driver: ServeDriver<Harness<'a>, Attached>,
    /// Those that wait for their answer.
    requests: Vec<u64>,
    last_id: u64,
    buffer: Vec<u8>,
    /// Answers in memory of their own, and how many were passed.
    attached: u64,
    passed: Rc<Cell<u64>>,
}

/// An answer of this many bytes in memory of its own; counts that it is passed.
struct Attached(u64, Rc<Cell<u64>>);

impl Attachable<Harness<'_>> for Attached {
    fn len(&self) -> u64 {
        self.0
    }

    fn pass(&self, _: &Harness<'_>, _: u64) -> Result<(), Shortage> {
        self.1.set(self.1.get() + 1);
        Ok(())
    }
}

impl Server<'_> {
    fn act(&mut self) -> Result<(), PeerFault> {
        let script = &self.fixture.script;
        match script.byte() % 17 {
            0..=5 => self.next(),
            6 => self.respond(usize::from(script.byte())),
            7 => self.respond(usize::from(script.u16())),
            8 => {
                let Some(id) = self.requests.pop() else { return Ok(()) };
                let payload = vec![7; usize::from(script.u16())];
                let written = self.driver.respond_in_parts(id, Status::Ok, Box::new(payload));
                self.or_again(id, written.map(|_| RespondOutcome::Done))
            }
            9 => self.attach(u64::from(script.u16()) * 4),
            10 => self.driver.flush().map(drop),
            11 => {
                self.driver.commit();
                self.driver.end().fault().map_or(Ok(()), Err)
            }
            12 => {
                let armed = self.driver.arm()?;
                self.fixture.check(armed);
                self.driver.end().disarm();
                Ok(())
            }
            13 => {
                let to = Geometry::new(1 << (12 + script.byte() % 4)).expect("a lane's size");
                resized(self.driver.end_mut().grow(to))
            }
            14 => resized(self.driver.end_mut().shrink()),
            15 => {
                self.driver.give_up_arriving();
                Ok(())
            }
            _ => self.driver.end_mut().load_tail(),
        }
    }

    fn next(&mut self) -> Result<(), PeerFault> {
        match self.driver.next(&mut self.buffer)? {
            Some(Incoming::Request { id, len, .. }) => {
                self.begin(id);
                let reading = self.fixture.reading.borrow();
                assert_eq!(self.buffer[..len], *reading.message(), "another request than was read");
                Ok(())
            }
            Some(Incoming::Attached { id } | Incoming::GivenUp { id }) => {
                self.begin(id);
                Ok(())
            }
            Some(Incoming::Switch(switch)) => match self.driver.end_mut().follow(&switch) {
                Err(FollowError::Peer(violation)) => Err(violation),
                Ok(()) | Err(FollowError::Short(_)) => Ok(()),
            },
            Some(Incoming::Trim) => self.driver.trim(),
            Some(Incoming::Cancel { id }) => {
                // That of a request that was broken off, too.
                let last = self.fixture.reading.borrow().last_id;
                assert!(id <= last, "what was never asked is cancelled");
                assert_ne!(id, ONE_WAY, "one of many is cancelled");
                Ok(())
            }
            Some(Incoming::Part | Incoming::Closed(_)) | None => Ok(()),
        }
    }

    fn begin(&mut self, id: u64) {
        if id != ONE_WAY {
            assert!(id > self.last_id, "ids grow");
            self.last_id = id;
        }
        self.requests.push(id);
    }

    fn respond(&mut self, len: usize) -> Result<(), PeerFault> {
        let Some(id) = self.requests.pop() else { return Ok(()) };
        let payload = vec![7; len];
        let responded = self.driver.respond(id, Status::Ok, &payload);
        self.or_again(id, responded)
    }

    fn attach(&mut self, bytes: u64) -> Result<(), PeerFault> {
        let Some(id) = self.requests.pop() else { return Ok(()) };
        self.attached += 1;
        let responded = self.driver.attach(id, Attached(bytes, Rc::clone(&self.passed)));
        self.or_again(id, responded)
    }

    /// A request that was not answered can be answered again.
    fn or_again(
        &mut self,
        id: u64,
        responded: Result<RespondOutcome, PeerFault>,
    ) -> Result<(), PeerFault> {
        let is_counted = match responded {
            Ok(responded) => responded == RespondOutcome::Done,
            Err(_) => self.driver.counts().in_flight() == self.requests.len() as u64,
        };
        if !is_counted {
            self.requests.push(id);
        }
        responded.map(drop)
    }
}

fn resized(resized: Result<(), ResizeError>) -> Result<(), PeerFault> {
    match resized {
        Err(ResizeError::Push(PushError::Peer(violation))) => Err(violation),
        _ => Ok(()),
    }
}
