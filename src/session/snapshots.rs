//! Fetching snapshots, and asking for the next one before it is there.

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

/// A request for a snapshot that has no answer yet.
#[derive(Debug)]
pub(super) struct Asked {
    ticket: Ticket,
    /// It was for the next one, before that was there.
    is_ahead: bool,
    /// Since when its answer is waited for; `None` while nobody has come for it, and nobody was rung.
    since: Option<Instant>,
}

/// What became of a request for a snapshot.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// The provider has not answered yet: the request stays in flight.
    Awaited,
    /// There is none yet.
    Nothing,
    Attached(Attached),
}

impl<S: Service> Session<S> {
    /// Takes the answer to what was asked for, and asks for the newest snapshot if nothing was. Never waits.
    ///
    /// What was [asked for ahead](Session::ask_ahead) lies here already, as a rule: then nobody is asked or woken.
    pub(crate) fn try_fetch(&mut self, max: usize) -> Result<Fetched, CallError> {
        loop {
            let (ticket, is_ahead) = match self.ask() {
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
                // It could not be passed when it came.
                Err(CallError::Declined { status: Status::Busy }) if is_ahead => continue,
                answer => answer?,
            };
            return self.attached(answer, max).map(Fetched::Attached);
        }
    }

    /// The request that is in flight, or a new one for the newest snapshot; whether it was sent ahead.
    fn ask(&mut self) -> Result<(Ticket, bool), CallError> {
        let now = self.drive.port().now();
        if let Some(asked) = &mut self.asked {
            let (ticket, is_ahead) = (asked.ticket, asked.is_ahead);
            if asked.since.is_none() {
                asked.since = Some(now);
                self.sent(ticket);
                if !self.drive.has_news() {
                    // The provider may be asleep, and not know yet what was asked for.
                    self.drive.commit();
                }
            }
            return Ok((ticket, is_ahead));
        }
        let sent = self.submit_now(Outgoing::Bytes(&[])).map_err(CallError::from);
        let ticket = sent.map_err(|error| self.unsent(error))?;
        self.asked = Some(Asked { ticket, is_ahead: false, since: Some(now) });
        Ok((ticket, false))
    }

    /// Asks for the first snapshot after `generation` and wakes nobody for it, unless one is asked for already.
    pub(crate) fn ask_ahead(&mut self, generation: u64) {
        if self.asked.is_none() {
            let ticket = self.drive.submit_unhurried(&generation.to_le_bytes());
            self.asked = ticket.map(|ticket| Asked { ticket, is_ahead: true, since: None });
        }
    }

    /// Whether what was asked for ahead may lie here.
    pub(crate) fn has_ahead(&self) -> bool {
        self.asked.is_some() && self.drive.has_news()
    }

    /// Whether a request was sent ahead, which is not booked before somebody comes for it.
    pub(super) fn is_asked_ahead(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.since.is_none())
    }

    /// Since when a snapshot is waited for.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.asked.as_ref()?.since
    }

    /// Waits for the provider, at most until `until`.
    pub(crate) fn wait_answer(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let mut until = until.map_or(Deadline::NEVER, Deadline::at);
        self.wait_by(|drive| drive.wait_for_data(&mut until))
    }

    /// The memory of an answer, which is booked.
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
        self.book_answer(answer.reply.ticket, attached.as_ref().err());
        attached
    }
}
