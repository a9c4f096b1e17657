use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bellwire_core::call::{Reply, SubmitError};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::PushError;
use bellwire_core::wire::Status;
use bellwire_core::{Deadline, PeerMemory, Port};

use crate::{EndPort, SHORT, payload};

/// The calling end. It numbers its requests from 1, and each byte of a payload is the low byte of its request's number.
pub struct Client {
    driver: CallDriver<EndPort>,
    buffer: Vec<u8>,
    sent: u64,
    /// Answers that were taken before a model asked for them: their requests' numbers and their lengths.
    answers: VecDeque<(u64, usize)>,
    never: Deadline,
}

impl Client {
    pub(crate) fn new(driver: CallDriver<EndPort>) -> Self {
        Self {
            driver,
            buffer: vec![0; SHORT],
            sent: 0,
            answers: VecDeque::new(),
            never: Deadline::NEVER,
        }
    }

    /// Returns the driver.
    pub fn driver(&mut self) -> &mut CallDriver<EndPort> {
        &mut self.driver
    }

    /// Writes a request of `len` bytes that the peer does not see yet, and returns its number.
    pub fn push(&mut self, len: usize) -> Result<u64, CallFailed> {
        let bytes = payload(self.sent + 1, len);
        let ticket = self.driver.push(&bytes)?;
        self.sent += 1;
        assert_eq!(ticket.id(), self.sent);
        Ok(self.sent)
    }

    /// Publishes requests, and gives back room.
    pub fn commit(&mut self) {
        self.driver.commit();
        // As a waiting end does: it may not write what the peer still reads.
        self.driver.end_mut().prefetch();
    }

    /// Writes so many requests of `len` bytes, which find room, and publishes them with one commit. Returns the number of
    /// the last.
    pub fn publish(&mut self, requests: u64, len: usize) -> u64 {
        for _ in 0..requests {
            self.push(len).expect("there is room");
        }
        self.commit();
        self.sent
    }

    /// Publishes requests of `len` bytes, as many as there is room for, and returns the number of the last.
    pub fn fill(&mut self, len: usize) -> u64 {
        let full = loop {
            if let Err(error) = self.push(len) {
                break is_full(&error);
            }
        };
        assert!(full);
        self.commit();
        self.sent
    }

    /// Publishes a request of `len` bytes once there is room for it.
    pub fn send(&mut self, len: usize) {
        self.until_sent(|client| client.push(len)).expect("there will be room");
        self.commit();
    }

    /// Sends as soon as there is room, and takes answers meanwhile, as a blocking caller does.
    pub fn until_sent<T>(
        &mut self,
        mut send: impl FnMut(&mut Self) -> Result<T, CallFailed>,
    ) -> Result<T, CallFailed> {
        loop {
            match send(self) {
                Err(error) if is_full(&error) => {}
                sent => return sent,
            }
            let answer = self.poll();
            if answer.is_none() && self.driver.ended().is_none() {
                self.driver.wait_for_room(&mut self.never)?;
            }
            self.answers.extend(answer);
        }
    }

    /// Takes an answer if there is one: the number of its request, and its length.
    pub fn poll(&mut self) -> Option<(u64, usize)> {
        let reply = self.driver.try_reply(&mut self.buffer).expect("an honest peer")?;
        Some(self.checked(&reply))
    }

    /// Waits for the next answer.
    pub fn wait(&mut self) -> Result<(u64, usize), CallFailed> {
        if let Some(answer) = self.answers.pop_front() {
            return Ok(answer);
        }
        let reply = match self.driver.wait_fast(&mut self.never, &mut self.buffer)? {
            Some((ticket, len)) => Reply::plain(ticket, len),
            None => self.driver.wait_for_reply(&mut self.never, &mut self.buffer)?,
        };
        Ok(self.checked(&reply))
    }

    /// Waits for answers of `len` bytes to these requests, in this order.
    pub fn waits(&mut self, ids: RangeInclusive<u64>, len: usize) {
        ids.for_each(|id| assert_eq!(self.wait(), Ok((id, len))));
    }

    fn checked(&self, reply: &Reply) -> (u64, usize) {
        let (id, len) = (reply.ticket.id(), reply.len);
        assert_eq!((reply.status, &self.buffer[..len]), (Status::Ok, &payload(id, len)[..]));
        (id, len)
    }

    /// Whether the peer's page has the closed state, loaded as a transport does.
    pub fn sees_closed(&self) -> bool {
        self.driver.port().peer().says_closed()
    }

    /// The epoch of the own lane.
    pub fn epoch(&self) -> u32 {
        self.driver.end().lanes().epoch().number
    }
}

fn is_full(error: &CallFailed) -> bool {
    matches!(error, CallFailed::Submit(SubmitError::Push(PushError::Full { .. })))
}
