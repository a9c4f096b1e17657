//! One client that speaks netipc: its channel, its protocol, and what it makes this process hold.

use std::sync::Arc;
use std::time::Duration;

use bellwire_core::batch::{BatchBuilder, BatchView};
use bellwire_core::wire::{RefuseCode, Status as Outcome};
use bellwire_core::{Instant, StallStatus};
use bellwire_netipc::method::{Answer, CallMethod, Exchange, SnapshotMethod};
use bellwire_netipc::server::{Request, ServerSession};
use bellwire_netipc::wire::{Agreed, MAX_PACKET, refuse_hello};
use bellwire_netipc::{Malformed, Status};

pub(super) use bellwire_netipc::wire::is_netipc;

use super::handler::Caller;
use super::quotas::Share;
use crate::control::ControlMessage;
use crate::publication::Publication;
use crate::transport::memory::{Charge, OverQuota};
use crate::transport::pass::{Channel, SendError};
use crate::transport::prelude::*;

/// The longest payload of a request, in bytes.
pub(super) const MAX_REQUEST: u32 = 1 << 20;
/// The payload of an answer that every client has room for, and the longest, in bytes.
const LEAST_RESPONSE: u32 = 64 << 10;
const MAX_RESPONSE: u32 = 64 << 20;

/// How a service's clients of netipc are served.
pub(super) enum Translation {
    /// With the newest snapshot, translated once, and its generation.
    Snapshot(SnapshotMethod, Option<(u64, Arc<[u8]>)>),
    Calls(CallMethod),
}

/// A session after the handshake.
pub(super) struct NetipcSession {
    pub(super) channel: Channel,
    pub(super) machine: ServerSession,
    pub(super) caller: Caller,
    pub(super) share: Share,
    /// The index of its listener, which is the row of its service's counters, and of its client.
    pub(super) row: usize,
    pub(super) client: usize,
    /// The request that is handled.
    handled: Option<(CallMethod, Request)>,
    /// The number of the last request.
    asked: u64,
    /// The charges of what has come of a request, or is handled, and of the answer.
    pub(super) arriving: Charge,
    leaving: Charge,
    /// Since when the client has taken nothing of an answer.
    blocked: Option<Instant>,
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

impl Translation {
    pub(super) fn snapshot(method: SnapshotMethod) -> Self {
        Self::Snapshot(method, None)
    }

    /// Returns the code of the only method.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Snapshot(method, _) => method.code,
            Self::Calls(method) => method.code,
        }
    }

    /// Returns the translation of the newest snapshot, which all clients share; `None` before the first, or if this process
    /// lacks a resource.
    pub(super) fn newest(&mut self, store: &Publication) -> Option<Arc<[u8]>> {
        let Self::Snapshot(method, cached) = self else { return None };
        let generation = store.generation();
        if cached.as_ref().is_none_or(|(cached, _)| *cached != generation) {
            let (generation, sealed) = store.newest().ok()??;
            let translated = (method.translate)(&sealed.to_vec().ok()?, generation)?;
            *cached = Some((generation, translated.into()));
        }
        cached.as_ref().map(|(_, payload)| Arc::clone(payload))
    }

    /// Returns the payload of an answer that a new client needs room for, and the longest within a service's limit. A snapshot
    /// may become twice as long before the client has to connect again.
    pub(super) fn response(&mut self, store: &Publication, limit: u64) -> (u32, u32) {
        let most = u32::try_from(limit).unwrap_or(u32::MAX).min(MAX_RESPONSE);
        let newest = self.newest(store).map_or(0, |payload| payload.len() * 2);
        let newest = u32::try_from(newest.next_power_of_two()).unwrap_or(u32::MAX);
        (newest.max(LEAST_RESPONSE).min(most), most)
    }
}

/// Refuses a client that was not let in, if its first message is one of netipc: returns whether it is.
pub(super) fn refuse(channel: &Channel, code: RefuseCode) -> bool {
    let first = ControlMessage::receive(channel).ok().flatten();
    let first = first.as_ref().map(ControlMessage::bytes).filter(|first| is_netipc(first));
    if let Some(first) = first {
        let status = match code {
            RefuseCode::Credentials | RefuseCode::Token => Status::AuthFailed,
            RefuseCode::Protocol => Status::BadEnvelope,
            RefuseCode::Incompatible => Status::Unsupported,
            _ => Status::Internal,
        };
        // One that does not read it learns nothing.
        let _ = channel.send(&refuse_hello(first, status), &[]);
    }
    first.is_some()
}

impl NetipcSession {
    pub(super) fn new(
        channel: Channel,
        (caller, share): (Caller, Share),
        agreed: Agreed,
        (row, client): (usize, usize),
    ) -> Self {
        Self {
            channel,
            machine: ServerSession::new(agreed),
            arriving: Charge::none(&share.quota),
            leaving: Charge::none(&share.quota),
            caller,
            share,
            row,
            client,
            handled: None,
            asked: 0,
            blocked: None,
            interest: (true, false),
        }
    }

    /// Returns whether a handler has the request.
    pub(super) fn is_handled(&self) -> bool {
        self.handled.is_some()
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
                Ok(()) => {
                    self.machine.sent();
                    self.blocked = None;
                }
                Err(SendError::WouldBlock) => {
                    self.blocked.get_or_insert(now);
                    return Flushed::Blocked;
                }
                Err(_) => return Flushed::Gone,
            }
        }
        Flushed::More
    }

    /// Returns whether the client has taken nothing for `limit` of an answer.
    pub(super) fn check_stalled(&self, now: Instant, limit: Duration) -> StallStatus {
        match self.blocked.map(|since| since.after(limit)) {
            None => StallStatus::CaughtUp,
            Some(due) if due <= now => StallStatus::Stalled,
            Some(due) => StallStatus::CheckAt(due),
        }
    }

    /// Answers with the snapshot.
    pub(super) fn pass(&mut self, newest: Option<Arc<[u8]>>) -> Result<(), OverQuota> {
        match newest {
            Some(payload) => {
                self.charge_answer(payload.len())?;
                self.machine.answer(payload);
            }
            None => self.machine.refuse(Status::Internal),
        }
        Ok(())
    }

    fn charge_answer(&mut self, bytes: usize) -> Result<(), OverQuota> {
        let charged = self.leaving.resize(bytes as u64);
        charged.inspect_err(|_| self.machine.refuse(Status::Internal))
    }

    /// Returns the service's requests that a message stands for, as a batch, and the number of the message. What it gives
    /// back later are the answers: [`NetipcSession::respond`].
    pub(super) fn begin(
        &mut self,
        method: CallMethod,
        request: Request,
        most: usize,
    ) -> Result<(u64, Vec<u8>), Status> {
        let bad = |_: Malformed| Status::BadEnvelope;
        if request.is_batch() && !method.takes_batches {
            return Err(Status::BadEnvelope);
        }
        let mut batch = BatchBuilder::new(usize::MAX);
        let mut is_whole = true;
        for payload in request.payloads().map_err(bad)? {
            let mut each = |bytes: &[u8]| {
                is_whole &=
                    batch.len() < most && batch.push(|into| into.extend_from_slice(bytes)).is_ok();
            };
            (method.requests)(payload, &mut each).map_err(bad)?;
        }
        if !is_whole {
            return Err(Status::LimitExceeded);
        }
        self.asked += 1;
        self.handled = Some((method, request));
        let mut bytes = Vec::new();
        batch.finish_into(&mut bytes);
        Ok((self.asked, bytes))
    }

    /// Translates the service's answers, and returns whether there are any.
    pub(super) fn respond(
        &mut self,
        outcome: Outcome,
        answers: &[u8],
        generation: u64,
    ) -> Result<bool, OverQuota> {
        let Some((method, request)) = self.handled.take() else { return Ok(true) };
        let room = self.machine.agreed().max_response as usize;
        let payloads = match (outcome, BatchView::parse(answers)) {
            (Outcome::Ok, Ok(batch)) => translate(&method, &request, batch, room, generation),
            _ => Err(Status::Internal),
        };
        match payloads {
            Ok(payloads) => {
                self.charge_answer(payloads.iter().map(Vec::len).sum())?;
                self.machine.answer_all(&payloads);
                Ok(true)
            }
            Err(status) => {
                self.machine.refuse(status);
                Ok(false)
            }
        }
    }
}

fn translate(
    method: &CallMethod,
    request: &Request,
    batch: BatchView<'_>,
    room: usize,
    generation: u64,
) -> Result<Vec<Vec<u8>>, Status> {
    let answers = batch.iter().map(|item| match item.status {
        Outcome::Ok => Answer::Ok(item.bytes),
        Outcome::Malformed => Answer::Malformed,
        Outcome::TooLarge => Answer::TooLarge,
        _ => Answer::Failed,
    });
    let answers: Vec<_> = answers.collect();
    let requests = request.payloads().map_err(|_| Status::BadEnvelope)?;
    // Each item of a batch is one request of the service; otherwise all of them are one message's.
    let each = if request.is_batch() { 1 } else { answers.len().max(1) };
    let mut answers = answers.chunks(each);
    let answer = |request| {
        let (answers, mut payload) = (answers.next().unwrap_or_default(), Vec::new());
        (method.respond)(&Exchange { request, answers, room, generation }, &mut payload)?;
        Ok(payload)
    };
    requests.into_iter().map(answer).collect()
}

/// Room for one datagram each way.
pub(super) fn room() -> Vec<u8> {
    vec![0; MAX_PACKET as usize]
}
