//! Clients that speak netipc: from their first message on, each in its client's share.

use bellwire_core::wire::Status as Outcome;
use bellwire_netipc::Status;
use bellwire_netipc::handshake::{Terms, answer_hello, refuse_hello};
use bellwire_netipc::server::{Request, Wanted};
use bellwire_netipc::wire::MAX_PACKET;

use super::poll_budget::LONGEST_SHARE;
use super::{Reactor, Slot, SlotState};
use crate::ServerStats;
use crate::control::ControlMessage;
use crate::server::handler::{Answer, Handler, Room};
use crate::server::handshake::{FailedHandshake, PendingHandshake};
use crate::server::incidents::IncidentCause;
use crate::server::netipc::{Flushed, NetipcSession, newest_payload};
use crate::server::outbox::FinishedJob;
use crate::server::source::{SlotKey, Source};
use crate::server::workers::{JOB, Job, JobPayload};
use crate::transport::memory::OverQuota;
use crate::transport::pass::ReceiveError;
use crate::transport::poll::Interest;
use crate::transport::{Os, prelude::*};

/// The number of a session's job: there is one at a time.
const JOB_ID: u64 = 1;

/// What all sessions share.
#[derive(Default)]
pub(super) struct Netipc {
    /// A datagram that is received, and one that is sent.
    received: Vec<u8>,
    sent: Vec<u8>,
}

/// What a session does next.
pub(super) enum Step {
    More,
    /// Its channel is polled for what it needs.
    Wait,
    End(Option<IncidentCause>),
}

impl Reactor {
    /// Answers the HELLO of a client in the handshake.
    pub(super) fn welcome_netipc(
        &mut self,
        slot: usize,
        handshake: PendingHandshake,
        hello: &ControlMessage,
    ) {
        let Some(&Slot { listener: at, client, .. }) = self.slots.get(slot) else { return };
        let Some(listener) = self.listeners.get_mut(at) else { return };
        let refuse = |status| Err((status, refuse_hello(hello.bytes(), status)));
        let answer = match &mut listener.netipc {
            None => refuse(Status::Unsupported),
            Some(_) if hello.objects() > 0 => refuse(Status::BadEnvelope),
            Some(translation) => {
                let newest =
                    newest_payload(translation, &listener.store).map_or(0, |payload| payload.len());
                let limit = listener.admission.limits.max_message;
                let token = self.config.netipc_token;
                answer_hello(hello.bytes(), &Terms::new(token, limit, newest, handshake.session))
            }
        };
        let (channel, caller, user_handle) = handshake.into_parts();
        self.handshake_ended();
        match answer {
            Ok((agreed, ack)) if channel.send(&ack, &[]).is_ok() => {
                let session =
                    NetipcSession::new(channel, (caller, user_handle), agreed, (at, client));
                if let Some(entry) = self.slots.get_mut(slot) {
                    entry.state = SlotState::Netipc(Box::new(session));
                }
                self.count(at, &ServerStats { admitted: 1, netipc_admitted: 1, ..gauge() });
            }
            Ok(_) => {
                let (channel, caller) = (Some(channel), Some(caller));
                self.reject_at(slot, FailedHandshake { channel, caller, cause: None });
            }
            Err((status, ack)) => {
                let _ = channel.send(&ack, &[]);
                self.reject_at(
                    slot,
                    *FailedHandshake::refused_for(channel, Some(caller), &status.into()),
                );
            }
        }
    }

    /// Takes what has come, answers it, and sends what the client has room for.
    pub(super) fn turn_netipc(&mut self, key: SlotKey) {
        let began = Os::now();
        let step = self.with_netipc(key, |reactor, session| {
            loop {
                match reactor.step_netipc(key, session) {
                    Step::More if Os::now().since(began) < LONGEST_SHARE => {}
                    step => return step,
                }
            }
        });
        match step {
            Some(Step::More) => self.mark_ready(key),
            Some(Step::Wait) => self.watch_for_stall(key.slot, Os::now()),
            Some(Step::End(cause)) => self.end_netipc(key.slot, cause),
            None => {}
        }
    }

    /// Runs something with a session, which is out of its slot meanwhile. `None` if it is not there.
    fn with_netipc<T>(
        &mut self,
        key: SlotKey,
        run: impl FnOnce(&mut Self, &mut NetipcSession) -> T,
    ) -> Option<T> {
        let entry = self.slots.get_mut(key.slot).filter(|entry| entry.key == key)?;
        let mut session = match std::mem::replace(&mut entry.state, SlotState::Gone) {
            SlotState::Netipc(session) => session,
            other => {
                entry.state = other;
                return None;
            }
        };
        let done = run(self, &mut session);
        self.slots.get_mut(key.slot)?.state = SlotState::Netipc(session);
        Some(done)
    }

    fn step_netipc(&mut self, key: SlotKey, session: &mut NetipcSession) -> Step {
        let (now, netipc) = (Os::now(), &mut self.netipc);
        match session.flush(&mut netipc.sent, now) {
            Flushed::Gone => return Step::End(None),
            Flushed::More => return Step::More,
            Flushed::Blocked => return self.poll_netipc(key, session, (false, true)),
            Flushed::All if session.machine.is_over() => return Step::End(None),
            Flushed::All if session.machine.is_handling() => {
                return self.poll_netipc(key, session, (false, false));
            }
            Flushed::All => {}
        }
        netipc.received.resize(MAX_PACKET as usize, 0);
        let received = match session.channel.receive(&mut netipc.received, 0) {
            Ok(received) => netipc.received.get(..received.len).unwrap_or_default(),
            Err(ReceiveError::WouldBlock) => {
                return self.poll_netipc(key, session, (true, false));
            }
            // Gone, or a datagram that no client of netipc sends: too long, or with descriptors.
            Err(_) => return Step::End(None),
        };
        match session.machine.receive(received) {
            Ok(None) => match session.arriving.resize(session.machine.held() as u64) {
                Ok(()) => Step::More,
                Err(over) => Step::End(Some(IncidentCause::over_quota(&over))),
            },
            Ok(Some(request)) => self.handle_netipc(key.slot, session, request),
            Err(violation) => Step::End(Some(IncidentCause::NetipcViolation(violation))),
        }
    }

    /// Has the channel polled to read, to write, or only for its end.
    fn poll_netipc(
        &mut self,
        key: SlotKey,
        session: &mut NetipcSession,
        interest: (bool, bool),
    ) -> Step {
        if std::mem::replace(&mut session.interest, interest) == interest {
            return Step::Wait;
        }
        let token = Source::Socket(key).token();
        let interest = Interest::exchange(interest.0, interest.1);
        match self.poller.modify(session.channel.arrived(), token, interest) {
            Ok(()) => Step::Wait,
            Err(_) => Step::End(None),
        }
    }

    /// Has the channel polled only for its end, and leaves on it what has come.
    pub(super) fn mute_netipc(&mut self, key: SlotKey) {
        self.with_netipc(key, |reactor, session| reactor.poll_netipc(key, session, (false, false)));
    }

    fn handle_netipc(
        &mut self,
        slot: usize,
        session: &mut NetipcSession,
        request: Request,
    ) -> Step {
        let Some(listener) = self.listeners.get_mut(session.row) else { return Step::End(None) };
        let Some(translation) = &mut listener.netipc else { return Step::End(None) };
        // From here on it is held only as long as it is handled, or is on the account of a worker's job.
        session.arriving.clear();
        let mut delta = ServerStats { accepted: 1, ..ServerStats::default() };
        let items = self.config.max_batch;
        let batch = match session.machine.begin(request, translation.method(), items) {
            Ok(Wanted::Calls(batch)) => batch,
            Ok(Wanted::Snapshot) => {
                let newest = newest_payload(translation, &listener.store);
                let is_missing = newest.is_none();
                let passed = session.pass(newest);
                (delta.answered, delta.errors) = (1, u64::from(is_missing || passed.is_err()));
                return self.counted(session, &delta, passed);
            }
            // It reaches no handler.
            Err(status) => {
                session.machine.refuse(status);
                delta.refused = 1;
                return self.counted(session, &delta, Ok(()));
            }
        };
        let bytes = usize::try_from(listener.admission.limits.max_message).unwrap_or(usize::MAX);
        let room = Room { bytes, items };
        if let (Handler::Call(handler), true) = (&listener.handler, self.workers.is_empty()) {
            let answer = &mut self.scratch.answer;
            answer.clear();
            let status = handler.call_batch(&session.caller, &batch, room, answer);
            return self.respond_netipc(session, delta, status, &self.scratch.answer);
        }
        let held = session.machine.held() + batch.len() + JOB;
        let queued = session.user_handle.quota.charge(held as u64).map(|charge| {
            let (client, caller) = (session.client, session.caller.unwatched());
            let request = JobPayload::Batch(batch, room);
            let (id, after, traced) = (JOB_ID, JOB_ID, None);
            let job = Job { client, slot, id, after, caller, request, traced, charge };
            listener.handler.queue(job, &self.workers, &self.tasks);
        });
        self.count(session.row, &delta);
        match queued {
            Ok(()) => Step::More,
            // It is lost with the session.
            Err(over) => Step::End(Some(IncidentCause::over_quota(&over))),
        }
    }

    /// Answers with what a handler answered, and counts it.
    fn respond_netipc(
        &self,
        session: &mut NetipcSession,
        mut delta: ServerStats,
        status: Outcome,
        answer: &Answer,
    ) -> Step {
        // Tells this run of the provider from the next: when it started, in seconds.
        let generation = self.shared.stats().started / 1_000_000_000;
        let responded = session.respond(status, answer.bytes(), generation);
        (delta.answered, delta.errors) = (1, u64::from(!matches!(responded, Ok(true))));
        self.counted(session, &delta, responded.map(drop))
    }

    /// Counts a request that was answered, and reports that its user's quota did not suffice.
    fn counted(
        &self,
        session: &NetipcSession,
        delta: &ServerStats,
        passed: Result<(), OverQuota>,
    ) -> Step {
        self.count(session.row, delta);
        if let Err(over) = passed {
            let caller = Some(session.caller.unwatched());
            self.note_at(session.row, caller, IncidentCause::over_quota(&over));
        }
        Step::More
    }

    /// Takes the answer of a worker or a task, if it is one to a client of netipc.
    pub(super) fn answer_netipc(&mut self, done: &FinishedJob) {
        let key = SlotKey::new(done.slot, done.session);
        let answered = self.with_netipc(key, |reactor, session| {
            reactor.respond_netipc(session, ServerStats::default(), done.status, &done.answer)
        });
        if answered.is_some() {
            self.mark_ready(key);
        }
    }

    /// Sends what is left of answers while the server drains.
    pub(super) fn flush_netipc(&mut self) {
        let now = Os::now();
        for (_, entry) in &mut self.slots {
            if let SlotState::Netipc(session) = &mut entry.state {
                let _ = session.flush(&mut self.netipc.sent, now);
            }
        }
    }

    /// Takes a session out of its slot, and ends it.
    pub(super) fn end_netipc(&mut self, slot: usize, cause: Option<IncidentCause>) {
        let Slot { client, state, .. } = self.slots.remove(slot);
        self.clients.leave(client);
        self.workers.withdraw_all(slot);
        self.tasks.withdraw_all(slot);
        if let SlotState::Netipc(session) = state {
            self.close_netipc(*session, cause);
        }
    }

    /// Closes a session's channel, and counts what it leaves.
    pub(super) fn close_netipc(&mut self, session: NetipcSession, cause: Option<IncidentCause>) {
        let (row, caller) = (session.row, session.caller.unwatched());
        let lost = u64::from(session.machine.is_handling());
        if matches!(cause, Some(IncidentCause::NetipcViolation(_))) {
            self.quotas.slow_down(caller.user, Os::now());
        }
        self.reap_for(caller.user);
        self.count(row, &ServerStats { lost, ..ServerStats::default().since(&gauge()) });
        if let Some(cause) = cause {
            self.note_at(row, Some(caller), cause);
        }
        self.discard(session.channel);
    }
}

/// What an open session counts.
fn gauge() -> ServerStats {
    ServerStats { sessions: 1, netipc_sessions: 1, ..ServerStats::default() }
}
