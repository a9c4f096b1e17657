use std::ops::RangeInclusive;

use bellwire_core::drive::{RespondOutcome, ServeDriver};
use bellwire_core::lane::Armed;
use bellwire_core::serve::Incoming;
use bellwire_core::wire::{CloseReason, Status};
use bellwire_core::{Park, Port};

use crate::{EndPort, SHORT, payload};

/// The serving end, and what the reactor does with it. Each byte of a payload is the low byte of its request's number.
pub struct Server {
    driver: ServeDriver<EndPort>,
    buffer: Vec<u8>,
}

impl Server {
    pub(crate) fn new(driver: ServeDriver<EndPort>) -> Self {
        Self { driver, buffer: vec![0; SHORT] }
    }

    /// Takes a request if there is one: its number, and the length of what came through the lane.
    pub fn take(&mut self) -> Option<(u64, usize)> {
        loop {
            let incoming = self.driver.next(&mut self.buffer).expect("an honest peer")?;
            if let Incoming::Switch(switch) = incoming {
                self.driver.end_mut().follow(&switch).expect("an honest peer");
                self.commit();
                continue;
            }
            let (id, len) = incoming.request().expect("a request");
            assert_eq!(self.buffer[..len], payload(id, len));
            return Some((id, len));
        }
    }

    /// Takes what is there at so many polls.
    pub fn polls(&mut self, polls: usize) -> Vec<(u64, usize)> {
        (0..polls).filter_map(|_| self.take()).collect()
    }

    /// Takes requests with these numbers, which were published before, and checks after each for a client that waits.
    pub fn takes(&mut self, ids: RangeInclusive<u64>) {
        for id in ids {
            assert_eq!(self.take().expect("published before").0, id);
            self.commit();
        }
    }

    /// Takes requests with these numbers, and sleeps until there is one.
    pub fn receives(&mut self, ids: RangeInclusive<u64>) {
        for id in ids {
            let request = loop {
                self.flush();
                if let Some(request) = self.take() {
                    break request;
                }
                self.sleep();
            };
            assert_eq!(request.0, id);
            self.commit();
        }
    }

    /// Answers with `len` bytes, when there is room.
    pub fn respond(&mut self, id: u64, len: usize) {
        let bytes = payload(id, len);
        let responded = self.driver.respond(id, Status::Ok, &bytes);
        assert_eq!(responded, Ok(RespondOutcome::Done));
    }

    /// Publishes answers, and gives back room.
    pub fn commit(&mut self) {
        self.driver.commit();
        // As the reactor does between two polls: it may not write what the peer still reads.
        self.driver.end_mut().prefetch();
    }

    /// Publishes the answers that waited for room, as far as there is some. True when none waits. It comes before
    /// [`Server::take`], which takes nothing while one does.
    pub fn flush(&mut self) -> bool {
        self.driver.flush().expect("an honest peer");
        self.commit();
        !self.driver.is_blocked()
    }

    /// Answers so many requests with `len` bytes each, and sleeps when there is nothing to do.
    pub fn serve(&mut self, requests: u64, len: usize) {
        loop {
            self.flush();
            while let Some((id, _)) = self.take() {
                self.respond(id, len);
                self.commit();
            }
            if self.driver.counts().answered == requests && !self.driver.is_blocked() {
                return;
            }
            self.sleep();
        }
    }

    /// Arms, and sleeps unless something moved meanwhile.
    fn sleep(&mut self) {
        let armed = self.driver.arm().expect("an honest peer");
        if let Armed::Sleep { tail, head } = armed {
            let end = self.driver.end_mut();
            end.port_mut().park(Park { tail, head, until: None });
            end.disarm();
        }
    }

    /// Closes the session.
    pub fn close(&mut self) {
        self.driver.end_mut().close(CloseReason::Normal);
    }
}
