//! One client that speaks netipc: its channel, its protocol, and what it makes this process hold.

use std::sync::Arc;

use bellwire_core::Instant;
use bellwire_core::wire::{RefuseCode, Status as Outcome};
use bellwire_netipc::Status;
use bellwire_netipc::handshake::{Agreed, refuse_hello};
use bellwire_netipc::server::{SessionMachine, Translation};

pub(super) use bellwire_netipc::handshake::is_netipc;

use super::handler::Caller;
use super::quotas::UserHandle;
use crate::control::ControlMessage;
use crate::publication::Publication;
use crate::transport::memory::{Charge, OverQuota};
use crate::transport::pass::{Channel, SendError};
use crate::transport::prelude::*;

/// A session after the handshake.
pub(super) struct NetipcSession {
    pub(super) channel: Channel,
    pub(super) machine: SessionMachine,
    pub(super) caller: Caller,
    pub(super) user_handle: UserHandle,
    /// The index of its listener, which is the row of its service's counters, and of its client.
    pub(super) row: usize,
    pub(super) client: usize,
    /// The charges of what has come of a request, or is handled, and of the answer.
    pub(super) arriving: Charge,
    leaving: Charge,
    /// What its channel is polled for: to read, to write.
    pub(super) interest: (bool, bool),
}

/// Datagrams that are sent at once. A client chooses how small they are, and may take them as fast as they come.
const BURST: usize = 16;

/// How far an answer has got.
pub(super) enum Flushed {
    All,
    /// The client has room for more, which others wait for.
    More,
    Blocked,
    Gone,
}

/// Returns the translation of the newest snapshot; `None` before the first, or if this process lacks a resource.
pub(super) fn newest_payload(
    translation: &mut Translation,
    store: &Publication,
) -> Option<Arc<[u8]>> {
    translation.newest(store.generation(), || {
        let (generation, sealed) = store.newest().ok()??;
        Some((generation, sealed.to_vec().ok()?))
    })
}

/// Refuses a client that was not let in, if its first message is one of netipc: returns whether it is.
pub(super) fn refuse(channel: &Channel, code: RefuseCode) -> bool {
    let first = ControlMessage::receive(channel).ok().flatten();
    let first = first.as_ref().map(ControlMessage::bytes).filter(|first| is_netipc(first));
    if let Some(first) = first {
        // One that does not read it learns nothing.
        let _ = channel.send(&refuse_hello(first, code.into()), &[]);
    }
    first.is_some()
}

impl NetipcSession {
    pub(super) fn new(
        channel: Channel,
        (caller, user_handle): (Caller, UserHandle),
        agreed: Agreed,
        (row, client): (usize, usize),
    ) -> Self {
        Self {
            channel,
            machine: SessionMachine::new(agreed),
            arriving: Charge::none(&user_handle.quota),
            leaving: Charge::none(&user_handle.quota),
            caller,
            user_handle,
            row,
            client,
            interest: (true, false),
        }
    }

    /// Returns whether an answer is missing, or has not left.
    pub(super) fn has_unsent_answer(&self) -> bool {
        !self.machine.takes_requests()
    }

    /// Sends some of what is left of an answer.
    pub(super) fn flush(&mut self, datagram: &mut Vec<u8>, now: Instant) -> Flushed {
        for _ in 0..BURST {
            if !self.machine.datagram(datagram) {
                self.leaving.clear();
                return Flushed::All;
            }
            match self.channel.send(datagram, &[]) {
                Ok(()) => self.machine.sent(),
                Err(SendError::WouldBlock) => {
                    self.machine.not_sent(now);
                    return Flushed::Blocked;
                }
                Err(_) => return Flushed::Gone,
            }
        }
        Flushed::More
    }

    /// Answers with the snapshot.
    pub(super) fn pass(&mut self, newest: Option<Arc<[u8]>>) -> Result<(), OverQuota> {
        match newest {
            Some(payload) => self.answer(payload),
            None => {
                self.machine.refuse(Status::Internal);
                Ok(())
            }
        }
    }

    /// Answers with what the service answered, and returns whether it did.
    pub(super) fn respond(
        &mut self,
        outcome: Outcome,
        answers: &[u8],
        generation: u64,
    ) -> Result<bool, OverQuota> {
        match self.machine.translate(outcome, answers, generation) {
            Ok(payloads) => self.answer(self.machine.joined(&payloads)).map(|()| true),
            Err(status) => {
                self.machine.refuse(status);
                Ok(false)
            }
        }
    }

    /// Answers with a payload, which is on the account of the client's user until it has left.
    fn answer(&mut self, payload: Arc<[u8]>) -> Result<(), OverQuota> {
        let charged = self.leaving.resize(payload.len() as u64);
        charged.inspect_err(|_| self.machine.refuse(Status::Internal))?;
        self.machine.answer(payload);
        Ok(())
    }
}
