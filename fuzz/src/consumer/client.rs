use std::collections::BTreeSet;
use std::time::Duration;

use bellwire_core::call::{Reply, SubmitError, Ticket};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::{LaneTerms, Lanes, PushError};
use bellwire_core::wire::CloseReason;
use bellwire_core::{Deadline, PeerFault, SpinPolicy};

use super::harness::{Fixture, Harness};

/// Longer than the maximum for a lane of fixed size, and than the limit of a lane that grows.
const LONG: usize = 48_000;
/// The contents of requests.
static BYTES: [u8; LONG] = [3; LONG];

/// The client end: runs the operations of a client on a session, in any order.
pub(super) fn run<'a>(fixture: &'a Fixture<'a>, terms: LaneTerms, spins: bool) {
    let span = |micros| if spins { Duration::from_micros(micros) } else { Duration::ZERO };
    let spin = SpinPolicy { max: span(20), pays_within: span(20) };
    let driver = CallDriver::new(Harness(fixture), Lanes::with_terms(terms, terms), spin);
    let mut client = Client {
        fixture,
        driver,
        tickets: Vec::new(),
        waiting: BTreeSet::new(),
        sending: None,
        // As after a message of this length: the fast path is used only for shorter ones.
        buffer: vec![0; 64],
    };
    while !fixture.script.is_over() && client.driver.ended().is_none() {
        client.operate();
    }
    client.end();
}

struct Client<'a> {
    fixture: &'a Fixture<'a>,
    driver: CallDriver<Harness<'a>>,
    tickets: Vec<Ticket>,
    /// The ids of the requests that are not answered yet.
    waiting: BTreeSet<u64>,
    /// The length of the request that is being sent in parts.
    sending: Option<usize>,
    buffer: Vec<u8>,
}

impl Client<'_> {
    fn operate(&mut self) {
        self.fixture.begin();
        let failed = self.act();
        let violation = match self.driver.ended() {
            Some(CallFailed::Peer(violation)) => Some(violation),
            _ => None,
        };
        if let Some(CallFailed::Peer(reported)) = failed {
            assert_eq!(Some(reported), violation, "a violation that is reported ends the session");
        }
        self.fixture.end(violation);
        if violation.is_none() {
            let driver = &mut self.driver;
            self.fixture.repeat(|| match driver.can_attach(0) {
                Err(CallFailed::Peer(violation)) => Some(violation),
                _ => None,
            });
        }
        assert_eq!(self.driver.in_flight(), self.waiting.len());
        *self.fixture.asked.borrow_mut() =
            self.tickets.iter().rev().take(8).map(|ticket| ticket.id()).collect();
    }

    fn act(&mut self) -> Option<CallFailed> {
        let script = &self.fixture.script;
        match script.byte() % 16 {
            0..=2 => self.submit(usize::from(script.byte())),
            3 => self.submit(usize::from(script.u16()) % LONG),
            4 => self.submit_in_parts(),
            5 => self.submit_attached(u64::from(script.u16()) * 4),
            6..=8 => match self.driver.try_reply(&mut self.buffer) {
                Ok(reply) => self.check(reply?),
                Err(failed) => Some(failed),
            },
            9 | 10 => {
                let mut until = Deadline::within(Duration::from_micros(script.u16().into()));
                match self.driver.wait_for_reply(&mut until, &mut self.buffer) {
                    Ok(reply) => self.check(reply),
                    Err(failed) => Some(failed),
                }
            }
            11 => {
                let mut until = Deadline::within(Duration::from_micros(script.u16().into()));
                self.driver.wait_for_room(&mut until).err()
            }
            12 => self.driver.arm(false).err(),
            13 if self.sending.is_none() => self.driver.trim().err(),
            14 => {
                let ticket = self.ticket()?;
                assert_eq!(self.driver.abandon(ticket), self.waiting.remove(&ticket.id()));
                None
            }
            15 => {
                let ticket = self.ticket()?;
                self.driver.executed(ticket);
                None
            }
            _ => {
                self.sending = None;
                self.driver.abort_parts();
                None
            }
        }
    }

    fn submit(&mut self, len: usize) -> Option<CallFailed> {
        if self.sending.is_some() {
            return None;
        }
        let sent = self.driver.submit(&BYTES[..len]);
        self.sent(sent)
    }

    fn submit_in_parts(&mut self) -> Option<CallFailed> {
        let len = match self.sending.take() {
            Some(len) => len,
            None => usize::from(self.fixture.script.u16()) % LONG,
        };
        let sent = self.driver.submit_in_parts(&BYTES[..len]);
        if let Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) = sent {
            self.sending = Some(len);
        } else if sent.is_err() {
            self.driver.abort_parts();
        }
        self.sent(sent)
    }

    fn submit_attached(&mut self, bytes: u64) -> Option<CallFailed> {
        if self.sending.is_some() || self.driver.can_attach(bytes).is_err() {
            return None;
        }
        let sent = self.driver.submit_attached(bytes, false, |_, _| Ok(()));
        self.sent(sent)
    }

    fn sent(&mut self, sent: Result<Ticket, CallFailed>) -> Option<CallFailed> {
        match sent {
            Ok(ticket) => {
                assert!(self.tickets.last().is_none_or(|last| *last < ticket), "ids grow");
                self.tickets.push(ticket);
                self.waiting.insert(ticket.id());
                None
            }
            Err(failed) => Some(failed),
        }
    }

    fn ticket(&self) -> Option<Ticket> {
        let which = usize::from(self.fixture.script.byte());
        self.tickets.iter().rev().nth(which % self.tickets.len().max(1)).copied()
    }

    /// Checks that the answer belongs to a request, and has the bytes that were read.
    fn check(&mut self, reply: Reply) -> Option<CallFailed> {
        assert!(self.tickets.contains(&reply.ticket), "an answer to a request that was not sent");
        assert_eq!(self.waiting.remove(&reply.ticket.id()), reply.is_wanted);
        assert!(reply.is_wanted || reply.attached);
        if !reply.attached {
            let reading = self.fixture.reading.borrow();
            let answer = &self.buffer[..reply.len];
            assert_eq!(answer, reading.message(), "other bytes than were read");
        }
        None
    }

    /// Closes the session. After a protocol violation, checks first that the peer's memory is not read any more.
    fn end(&mut self) {
        if let Some(CallFailed::Peer(violation)) = self.driver.ended() {
            self.fixture.is_over.set(true);
            let check = |failed: Option<CallFailed>| {
                assert_eq!(failed, Some(CallFailed::Peer(violation)));
            };
            check(self.driver.submit(&[]).err());
            check(self.driver.try_reply(&mut self.buffer).err());
            let mut until = Deadline::NEVER;
            check(self.driver.wait_for_reply(&mut until, &mut self.buffer).err());
            self.give_up(violation);
            self.fixture.is_over.set(false);
        }
        self.driver.close(CloseReason::Normal);
    }

    fn give_up(&mut self, violation: PeerFault) {
        for ticket in &self.tickets {
            let executed = self.driver.give_up(*ticket);
            assert_eq!(executed, bellwire_core::Executed::Maybe, "{violation}");
        }
        assert_eq!(self.driver.in_flight(), 0);
    }
}
