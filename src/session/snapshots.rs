//! Fetches and prefetches snapshots.

use bellwire_core::call::Ticket;
use bellwire_core::wire::Status;
use bellwire_core::{Deadline, Instant, Port};

use super::{Answer, Body, Outgoing, Session};
use crate::transport::snapshot::SnapshotMap;
use crate::{CallError, Malformed, Service};

/// The memfd of an attached answer.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) generation: u64,
    pub(crate) map: SnapshotMap,
}

/// A request for a snapshot without an answer yet.
#[derive(Debug)]
pub(super) struct Asked {
    ticket: Ticket,
    /// Whether it was a prefetch of the next generation.
    is_prefetch: bool,
    /// Since when a caller waits for the answer; `None` while none does, and the provider was not rung.
    since: Option<Instant>,
}

/// The outcome of a request for a snapshot.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// The provider has not answered yet: the request stays in flight.
    Awaited,
    /// Nothing is published yet.
    Nothing,
    Attached(Attached),
}

impl<S: Service> Session<S> {
    /// Takes the answer to the request in flight; if there is none, requests the newest snapshot. Never waits.
    ///
    /// A [prefetched](Session::prefetch) snapshot has usually arrived already: then this sends no request and wakes
    /// nobody.
    pub(crate) fn try_fetch(&mut self, max: usize) -> Result<Fetched, CallError> {
        loop {
            let (ticket, is_prefetch) = match self.ask() {
                Err(CallError::WouldBlock) => return Ok(Fetched::Awaited),
                asked => asked?,
            };
            let answer = loop {
                match self.next_of(false)? {
                    Some(answer) if answer.reply.ticket == ticket => break answer,
                    Some(_) => {}
                    None => return Ok(self.nothing()?.unwrap_or(Fetched::Awaited)),
                }
            };
            self.asked = None;
            let answer = match self.checked(answer) {
                Err(CallError::Declined { status: Status::NotYet }) => return Ok(Fetched::Nothing),
                // The snapshot could not be passed when it was published.
                Err(CallError::Declined { status: Status::Busy }) if is_prefetch => continue,
                answer => answer?,
            };
            return self.attached(answer, max).map(Fetched::Attached);
        }
    }

    /// Returns the request in flight, or a new one for the newest snapshot, and whether it was a prefetch.
    fn ask(&mut self) -> Result<(Ticket, bool), CallError> {
        let now = self.drive.port().now();
        if let Some(asked) = &mut self.asked {
            let (ticket, is_prefetch) = (asked.ticket, asked.is_prefetch);
            if asked.since.is_none() {
                asked.since = Some(now);
                self.sent(ticket);
                if !self.drive.has_news() {
                    // The provider may be asleep and not have seen the prefetch request yet.
                    self.drive.commit();
                }
            }
            return Ok((ticket, is_prefetch));
        }
        let sent = self.submit_now(Outgoing::Bytes(&[])).map_err(CallError::from);
        let ticket = sent.map_err(|error| self.unsent(error))?;
        self.asked = Some(Asked { ticket, is_prefetch: false, since: Some(now) });
        Ok((ticket, false))
    }

    /// Requests the first snapshot after `generation` without waking the provider, unless a request is in flight.
    pub(crate) fn prefetch(&mut self, generation: u64) {
        if self.asked.is_none() {
            let ticket = self.drive.submit_no_wake(&generation.to_le_bytes());
            self.asked = ticket.map(|ticket| Asked { ticket, is_prefetch: true, since: None });
        }
    }

    /// Returns whether a prefetched snapshot may have arrived.
    pub(crate) fn has_prefetched(&self) -> bool {
        self.asked.is_some() && self.drive.has_news()
    }

    /// Returns whether a prefetch is in flight, which is not counted until a caller asks for it.
    pub(super) fn is_prefetching(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.since.is_none())
    }

    /// Returns since when a caller waits for a snapshot.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.asked.as_ref()?.since
    }

    /// Waits for the provider, until `until` at most.
    pub(crate) fn wait_answer(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let mut until = until.map_or(Deadline::NEVER, Deadline::at);
        self.wait_by(|drive| drive.wait_for_data(&mut until))
    }

    /// Returns the memory of an answer, which is already counted.
    fn attached(&mut self, answer: Answer, max: usize) -> Result<Attached, CallError> {
        let malformed = |why| CallError::Malformed(Malformed { at: 0, len: answer.reply.len, why });
        let attached = match answer.body {
            Body::Mapped(_, map) if map.len() > max => Err(malformed("longer than a snapshot is")),
            Body::Mapped(generation, map) => Ok(Attached { generation, map }),
            Body::Lost(shortage) => {
                Err(CallError::Short { shortage, executed: bellwire_core::Executed::Maybe })
            }
            Body::Inbox | Body::Own(_) => Err(malformed("not an attachment")),
        };
        self.count_answer(answer.reply.ticket, attached.as_ref().err());
        attached
    }
}
