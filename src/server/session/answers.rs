//! Sends answers: through the lane, in parts, or attached.

use std::sync::Arc;

use bellwire_core::Port;
use bellwire_core::drive::{Attachable, RespondOutcome};
use bellwire_core::end::EndReason;
use bellwire_core::resize::Shortage;
use bellwire_core::serve::RespondError;
use bellwire_core::wire::{ONE_WAY, Status};

use super::ServerSession;
use crate::Payload;
use crate::broadcast::PassedRing;
use crate::server::handler::Answer;
use crate::server::incidents::IncidentCause;
use crate::transport::link::Link;
use crate::transport::prelude::*;
use crate::transport::snapshot::Snapshot;

/// An answer to attach.
pub(super) enum Attachment {
    Snapshot(u64, Arc<Snapshot>),
    Payload(Payload),
    Ring(PassedRing),
}

impl ServerSession {
    /// Sends a handler's answer in the lane or attached.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        id: u64,
        status: Status,
        answer: &mut Answer,
    ) -> Result<(), EndReason> {
        let is_short = |bytes: &&[u8]| {
            bytes.len() < self.attach_from && bytes.len() <= self.stream_from && id != ONE_WAY
        };
        match answer.plain().filter(is_short) {
            Some(bytes) => self.respond(id, status, bytes),
            None => self.deliver_slow(id, status, answer),
        }
    }

    /// Continues [`ServerSession::deliver`] with an answer that is not sure to be one record.
    #[inline(never)]
    fn deliver_slow(
        &mut self,
        id: u64,
        status: Status,
        answer: &mut Answer,
    ) -> Result<(), EndReason> {
        if id == ONE_WAY {
            return self.respond(id, status, &[]);
        }
        if let Some(payload) = answer.sealed() {
            if status == Status::Ok {
                return self.attach(id, Attachment::Payload(payload.clone()), Status::Short);
            }
        }
        let bytes = answer.bytes();
        // An attached answer always has the status Ok.
        if bytes.len() >= self.attach_from && status == Status::Ok {
            return self.attach_copy(id, bytes);
        }
        if bytes.len() <= self.stream_from {
            return self.respond(id, status, bytes);
        }
        if self.end().lanes().allows(bytes.len() as u64).is_err() {
            return self.respond(id, Status::TooLarge, &[]);
        }
        if let Err(over) = self.pending_charge.extend(bytes.len() as u64) {
            self.note_over_quota(&over);
            return self.respond(id, Status::Short, &[]);
        }
        self.driver.respond_in_parts(id, status, Box::new(answer.keep()))?;
        self.note_flushed();
        Ok(())
    }

    /// Writes an answer to the lane, which grows for it.
    #[inline]
    pub(super) fn respond(
        &mut self,
        id: u64,
        status: Status,
        bytes: &[u8],
    ) -> Result<(), EndReason> {
        match self.driver.respond_now(id, status, bytes) {
            Ok(()) => Ok(()),
            Err(unanswered) => self.respond_slow(id, status, bytes, *unanswered),
        }
    }

    /// Continues [`ServerSession::respond`] with an answer for which there is no record now.
    #[cold]
    fn respond_slow(
        &mut self,
        id: u64,
        status: Status,
        bytes: &[u8],
        unanswered: RespondError,
    ) -> Result<(), EndReason> {
        let missing = match unanswered {
            RespondError::Full { missing } => Some(missing),
            RespondError::Grow(_) => None,
            // Without a payload, it is kept without charge.
            RespondError::TooLarge => return self.respond(id, Status::TooLarge, &[]),
            RespondError::Attach => return self.attach_copy(id, bytes),
            RespondError::Short(shortage) => return self.respond_short(id, shortage),
            RespondError::Peer(fault) => return Err(fault.into()),
        };
        if let Err(over) = self.pending_charge.extend(bytes.len() as u64) {
            self.note_over_quota(&over);
            return self.respond(id, Status::Short, &[]);
        }
        match missing {
            Some(missing) => self.driver.respond_later(id, status, bytes, missing)?,
            None => self.driver.respond_in_parts(id, status, Box::new(bytes.to_vec()))?,
        }
        self.note_flushed();
        Ok(())
    }

    /// Attaches a copy of the answer.
    fn attach_copy(&mut self, id: u64, bytes: &[u8]) -> Result<(), EndReason> {
        match Payload::sealed_copy(bytes) {
            Ok(payload) => self.attach(id, Attachment::Payload(payload), Status::Short),
            Err(shortage) => self.respond_short(id, shortage),
        }
    }

    /// Handles a resource that this process lacks for the answer.
    #[cold]
    fn respond_short(&mut self, id: u64, shortage: Shortage) -> Result<(), EndReason> {
        self.incident.get_or_insert(IncidentCause::Short(shortage));
        self.respond(id, Status::Short, &[])
    }

    /// Attaches an answer, now or when there is room. If it cannot be passed, answers with the status `otherwise`.
    pub(super) fn attach(
        &mut self,
        id: u64,
        what: Attachment,
        otherwise: Status,
    ) -> Result<(), EndReason> {
        let bytes = what.len();
        self.trimmed = self.trimmed.wrapping_sub(bytes);
        let lent = what.memory().map(|memory| self.link().charge_attachment(memory));
        if let Some(Err(shortage)) = lent {
            // The next answers for this user would be built in vain too: pause its sessions.
            self.user_handle.pause(self.link().now());
            self.over_quota = Some(bytes);
            self.incident.get_or_insert(IncidentCause::Short(shortage));
            return self.respond(id, otherwise, &[]);
        }
        self.over_quota = None;
        match self.driver.attach(id, what)? {
            RespondOutcome::Done => return Ok(()),
            RespondOutcome::Short(shortage) => {
                self.incident.get_or_insert(IncidentCause::Short(shortage));
            }
            RespondOutcome::Attach => {}
        }
        self.respond(id, otherwise, &[])
    }

    /// Writes the answers that wait for room, as far as there is room.
    pub(super) fn flush(&mut self) -> Result<(), EndReason> {
        self.driver.flush()?;
        self.note_flushed();
        Ok(())
    }

    /// Notes what a flush lacked, and that nothing is charged for answers when none is left.
    fn note_flushed(&mut self) {
        if let Some(shortage) = self.driver.take_shortage() {
            self.incident.get_or_insert(IncidentCause::Short(shortage));
        }
        if !self.driver.is_blocked() {
            self.pending_charge.clear();
        }
    }
}

impl Attachment {
    /// Returns memory that goes on the user's quota. An unsealed payload is rejected earlier.
    fn memory(&self) -> Option<&Snapshot> {
        match self {
            Self::Snapshot(_, sealed) => Some(sealed),
            Self::Payload(payload) => payload.sealed(),
            Self::Ring(_) => None,
        }
    }
}

impl Attachable<Link> for Attachment {
    fn len(&self) -> u64 {
        match self {
            Self::Snapshot(_, sealed) => sealed.len() as u64,
            Self::Payload(payload) => payload.len() as u64,
            Self::Ring(passed) => passed.ring.memory() as u64,
        }
    }

    fn pass(&self, link: &Link, id: u64) -> Result<(), Shortage> {
        if let Self::Ring(PassedRing { ring, memory }) = self {
            return link.pass_ring(id, *ring, memory.as_object());
        }
        let generation = if let Self::Snapshot(generation, _) = self { *generation } else { 0 };
        // An unsealed one is rejected earlier.
        self.memory().map_or(Ok(()), |sealed| link.pass_attachment(id, generation, sealed))
    }
}
