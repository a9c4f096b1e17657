//! Sends answers: through the lane, which grows for them, in parts, or attached.

use std::sync::Arc;

use bellwire_core::lane::PushError;
use bellwire_core::resize::{self, ResizeError, Shortage};
use bellwire_core::serve::{Flushed, Passed, RespondError};
use bellwire_core::wire::Status;
use bellwire_core::{Geometry, Port, probes};

use super::{Ended, ServerSession};
use crate::Payload;
use crate::server::handler::Answer;
use crate::server::incidents::IncidentCause;
use crate::transport::link::Link;
use crate::transport::snapshot::Snapshot;

/// Parts of answers that one turn writes at most: 512 KiB, so that a long answer does not starve other sessions.
const MOST_PARTS: usize = 16;

/// An answer to attach.
pub(super) enum Attachable {
    Snapshot(u64, Arc<Snapshot>),
    Payload(Payload),
}

impl ServerSession {
    /// Sends a handler's answer in the lane or attached.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        id: u64,
        status: Status,
        answer: &mut Answer,
    ) -> Result<(), Ended> {
        if let Some(payload) = answer.sealed()
            && status == Status::Ok
        {
            return self.attach(id, Attachable::Payload(payload.clone()), Status::Short);
        }
        let bytes = answer.bytes();
        // An attached answer always has the status Ok.
        if bytes.len() >= self.attach_from && status == Status::Ok {
            return self.attach_copy(id, bytes);
        }
        if bytes.len() <= self.stream_from {
            return self.respond(id, status, bytes);
        }
        if self.lanes.allows(bytes.len() as u64).is_err() {
            return self.respond(id, Status::TooLarge, &[]);
        }
        if let Some(wanted) = self.lanes.wanted_for_parts() {
            // Without memory for a larger lane, the answer goes through the smaller one.
            let _ = self.grow(wanted);
        }
        if let Err(over) = self.owed_charge.extend(bytes.len() as u64) {
            self.note_over_quota(&over);
            return self.respond(id, Status::Short, &[]);
        }
        self.trace.begin(id, || self.link.now());
        self.serve.respond_in_parts(id, status, Box::new(answer.keep()));
        self.trace.wrote(None);
        self.flush()
    }

    fn respond_in_parts(&mut self, id: u64, status: Status, bytes: Vec<u8>) -> Result<(), Ended> {
        self.serve.respond_in_parts(id, status, Box::new(bytes));
        self.trace.wrote(None);
        self.flush()
    }

    /// Writes an answer to the lane, which grows for it.
    #[inline]
    pub(super) fn respond(&mut self, id: u64, status: Status, bytes: &[u8]) -> Result<(), Ended> {
        self.trace.begin(id, || self.link.now());
        let own = self.link.own();
        if self.serve.try_respond(&mut self.lanes, own, id, status, bytes) {
            self.trace.wrote(Some(self.lanes.position()));
            return Ok(());
        }
        self.respond_otherwise(id, status, bytes)
    }

    #[inline(never)]
    fn respond_otherwise(&mut self, id: u64, status: Status, bytes: &[u8]) -> Result<(), Ended> {
        // The answer may have to be kept until there is room.
        if let Err(over) = self.owed_charge.extend(bytes.len() as u64) {
            self.note_over_quota(&over);
            return self.respond(id, Status::Short, &[]);
        }
        self.respond_or_keep(id, status, bytes)?;
        if !self.serve.is_blocked() {
            self.owed_charge.clear();
        }
        Ok(())
    }

    fn respond_or_keep(&mut self, id: u64, status: Status, bytes: &[u8]) -> Result<(), Ended> {
        loop {
            let (own, peer) = (self.link.own(), self.link.peer());
            let to = match self.serve.respond(&mut self.lanes, own, peer, id, status, bytes) {
                Ok(()) => break,
                Err(RespondError::Peer(fault)) => return Err(fault.into()),
                Err(RespondError::Attach) => return self.attach_copy(id, bytes),
                Err(RespondError::Short(shortage)) => return self.respond_short(id, shortage),
                Err(RespondError::Grow(to)) => to,
            };
            match self.grow(to) {
                Ok(()) => {}
                Err(ResizeError::Push(PushError::Peer(fault))) => return Err(fault.into()),
                Err(ResizeError::Push(PushError::Full { missing })) => {
                    probes::lane_full(self.trace.session(), missing);
                    self.serve.respond_later(id, status, bytes);
                    self.trace.wrote(None);
                    return Ok(());
                }
                // At the limit of shared memory, it goes through the current lane.
                Err(ResizeError::Push(_)) => {
                    return self.respond_in_parts(id, status, bytes.to_vec());
                }
                Err(ResizeError::Short(shortage)) => return self.respond_short(id, shortage),
            }
        }
        if !self.serve.is_blocked() {
            self.trace.wrote(Some(self.lanes.position()));
            return Ok(());
        }
        self.trace.wrote(None);
        probes::lane_full(self.trace.session(), 0);
        if self.lanes.should_grow().is_some() { self.flush() } else { Ok(()) }
    }

    /// Attaches a copy of the answer.
    fn attach_copy(&mut self, id: u64, bytes: &[u8]) -> Result<(), Ended> {
        match Payload::sealed_copy(bytes) {
            Ok(payload) => self.attach(id, Attachable::Payload(payload), Status::Short),
            Err(shortage) => self.respond_short(id, shortage),
        }
    }

    /// Handles a resource that this process lacks for the answer.
    #[cold]
    fn respond_short(&mut self, id: u64, shortage: Shortage) -> Result<(), Ended> {
        self.incident.get_or_insert(IncidentCause::Short(shortage));
        self.respond(id, Status::Short, &[])
    }

    /// Attaches an answer, now or when there is room. If it cannot be passed, answers with the status `otherwise`.
    pub(super) fn attach(
        &mut self,
        id: u64,
        what: Attachable,
        otherwise: Status,
    ) -> Result<(), Ended> {
        self.trimmed = self.trimmed.wrapping_sub(what.len());
        let lent = what.memory().map(|memory| self.link.lend(memory).map(|_| ()));
        if let Some(Err(shortage)) = lent {
            // The next answers for this user would be built in vain too: pause its sessions.
            self.share.pause(self.link.now());
            (self.over_quota, self.is_stalled) = (Some(what.len()), true);
            self.incident.get_or_insert(IncidentCause::Short(shortage));
            return self.respond(id, otherwise, &[]);
        }
        self.over_quota = None;
        self.trace.begin(id, || self.link.now());
        let (own, peer) = (self.link.own(), self.link.peer());
        let pass = |id| what.pass(&self.link, id);
        match self.serve.respond_attached(&mut self.lanes, own, peer, id, what.len(), pass) {
            Ok(Passed::Now | Passed::Never) => self.trace.wrote(Some(self.lanes.position())),
            Ok(Passed::Later) => {
                self.trace.wrote(None);
                self.waiting.push_back((id, what));
            }
            Err(RespondError::Peer(fault)) => return Err(fault.into()),
            Err(error) => {
                if let RespondError::Short(shortage) = error {
                    self.incident.get_or_insert(IncidentCause::Short(shortage));
                }
                return self.respond(id, otherwise, &[]);
            }
        }
        Ok(())
    }

    /// Writes the answers that wait for room, as far as there is room or the lane can grow; writes only as many parts
    /// as is fair to other sessions.
    pub(super) fn flush(&mut self) -> Result<(), Ended> {
        let mut parts = 0;
        loop {
            let Self { link, lanes, serve, waiting, trace, .. } = self;
            let pass = |id| {
                let at = waiting.iter().position(|(waiting, _)| *waiting == id);
                at.and_then(|at| waiting.remove(at)).map_or(Ok(()), |(_, what)| what.pass(link, id))
            };
            let note = |id, end| trace.wrote_owed(id, end);
            let flushed = serve.flush_noting(lanes, link.own(), link.peer(), pass, note)?;
            let grown = match flushed {
                Flushed::Done => {
                    // The remaining answers were cut and no longer need their memory.
                    self.waiting.clear();
                    self.owed_charge.clear();
                    return Ok(());
                }
                Flushed::Part => {
                    self.commit();
                    parts += 1;
                    // The next turn continues.
                    if parts == MOST_PARTS {
                        return Ok(());
                    }
                    continue;
                }
                Flushed::Grow(to) => self.grow(to),
                Flushed::Blocked => match self.lanes.should_grow() {
                    Some(to) if self.grow(to).is_ok() => Ok(()),
                    _ => return Ok(()),
                },
            };
            match grown {
                Ok(()) => {}
                Err(ResizeError::Push(PushError::Peer(fault))) => return Err(fault.into()),
                Err(ResizeError::Push(PushError::Full { .. })) => return Ok(()),
                Err(error) => {
                    if let ResizeError::Short(shortage) = error {
                        self.incident.get_or_insert(IncidentCause::Short(shortage));
                    }
                    self.serve.cut_first();
                }
            }
        }
    }

    #[cold]
    pub(super) fn grow(&mut self, to: Geometry) -> Result<(), ResizeError> {
        resize::grow(&mut self.link, &mut self.lanes, to)
    }
}

impl Attachable {
    /// An unsealed one is rejected earlier.
    fn memory(&self) -> Option<&Snapshot> {
        match self {
            Self::Snapshot(_, sealed) => Some(sealed),
            Self::Payload(payload) => payload.sealed(),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Snapshot(_, sealed) => sealed.len() as u64,
            Self::Payload(payload) => payload.len() as u64,
        }
    }

    fn pass(&self, link: &Link, id: u64) -> Result<(), Shortage> {
        match self {
            Self::Snapshot(generation, sealed) => link.pass_attachment(id, *generation, sealed),
            // An unsealed one is rejected earlier.
            Self::Payload(payload) => match payload.sealed() {
                Some(sealed) => link.pass_attachment(id, 0, sealed),
                None => Ok(()),
            },
        }
    }
}
