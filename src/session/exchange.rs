//! How one request goes out and its answer comes in, waiting or not.

use bellwire_core::call::{self, Reply, SubmitError, Ticket};
use bellwire_core::counters::Outcome;
use bellwire_core::drive::{CallFailed, Drive};
use bellwire_core::lane::PushError;
use bellwire_core::resize::FollowError;
use bellwire_core::{Deadline, Executed, Whose};
use std::time::Duration;

use super::{Answer, Body, Outgoing, Session, WhenFull, check};
use crate::transport::link::Link;
use crate::{CallError, Malformed, Message, Payload, Service, payload};

impl<S: Service> Session<S> {
    /// Sends a request if that takes no more than a record in the lane, as [`Session::write_at_once`] writes it.
    #[inline]
    pub(crate) fn send_at_once(&mut self, request: &S::Request) -> Option<Ticket> {
        let ticket = self.write_at_once(request)?;
        self.drive.commit();
        Some(ticket)
    }

    /// Encodes a request and writes it, if that takes no more than a record in the lane. `None` when it does, and nothing was
    /// written: [`Session::with_encoded`] goes on with it.
    ///
    /// Nothing is moved on this way but a number in a register: a load that covers what several stores wrote waits until they are
    /// in the cache, and so does each store before them, those to the lane's lines too, which the peer has.
    #[inline]
    pub(super) fn write_at_once(&mut self, request: &S::Request) -> Option<Ticket> {
        self.outbox.clear();
        if request.as_payload().is_some() {
            return None;
        }
        request.encode(&mut self.outbox);
        if self.outbox.len() > self.short {
            return None;
        }
        self.refill_inbox();
        let ticket = self.drive.push_at_once(&self.outbox)?;
        self.sent(ticket);
        Some(ticket)
    }

    /// Hands the bytes of a request to `send`: where they lie, or in the outbox, which [`Session::write_at_once`] of this
    /// request, just before, has left there.
    pub(crate) fn with_encoded<T>(
        &mut self,
        request: &S::Request,
        send: impl FnOnce(&mut Self, Outgoing<'_>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        if let Some(payload) = request.as_payload() {
            let sealed = payload.sealed().is_some();
            let request = if sealed { Outgoing::Sealed(payload) } else { Outgoing::Bytes(payload) };
            return send(self, request);
        }
        let outbox = std::mem::take(&mut self.outbox);
        let sent = send(self, Outgoing::Bytes(&outbox));
        self.outbox = outbox;
        sent
    }

    /// Waits for the answer to a request, if it is plain and comes next: how many bytes of the inbox it has. `None` when
    /// there is more to do.
    #[inline]
    pub(super) fn await_at_once(
        &mut self,
        ticket: Ticket,
        until: &mut Deadline,
    ) -> Result<Option<usize>, CallError> {
        match self.drive.wait_at_once(until, &mut self.inbox) {
            Ok(Some((of, len))) if of == ticket => Ok(Some(len)),
            Ok(Some((of, len))) => {
                self.stash(Answer::in_inbox(of, len));
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(failed) => Err(self.given_up(ticket, failed)),
        }
    }

    /// Sends a request and waits for its answer, which has no error: book it when it was read.
    #[inline]
    pub(super) fn exchange(
        &mut self,
        request: Outgoing<'_>,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        self.exchange_until(request, &mut Deadline::within(timeout))
    }

    #[inline]
    pub(super) fn exchange_until(
        &mut self,
        request: Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<Answer, CallError> {
        let sent = self.submit_waiting(request, until);
        let ticket = sent.map_err(|error| self.unsent(error))?;
        let answer = self.await_answer(ticket, until)?;
        self.checked(answer)
    }

    /// An answer that has no error, which is booked otherwise.
    #[inline]
    pub(super) fn checked(&mut self, answer: Answer) -> Result<Answer, CallError> {
        match self.check(&answer) {
            Ok(()) => Ok(answer),
            Err(error) => {
                self.book_answer(answer.reply.ticket, Some(&error));
                Err(error)
            }
        }
    }

    /// Sends a request, waiting for room.
    #[inline]
    pub(super) fn submit_waiting(
        &mut self,
        request: Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        match self.submit_at_once(request) {
            Some(ticket) => Ok(ticket),
            None => self.submit_otherwise(request, until),
        }
    }

    fn submit_otherwise(
        &mut self,
        request: Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        let parts = match request {
            Outgoing::Bytes(bytes) if bytes.len() < self.attach_from => Some(bytes.into()),
            Outgoing::Batch(bytes) => Some(call::Outgoing::batch(bytes)),
            _ => None,
        };
        if self.when_full == WhenFull::Fail {
            return Ok(self.submit_now(request)?);
        }
        if let Some(bytes) = parts.filter(|bytes| bytes.len() > self.parts_from()) {
            return self.submit_in_parts(bytes, until);
        }
        let sent = self.waiting_for_room(until, |session| session.submit_now(request));
        match (&sent, parts) {
            // The limit of shared memory: it goes through the lane that there is.
            (Err(CallError::TooLarge { len, .. }), Some(bytes)) if *len <= self.max_request() => {
                self.submit_in_parts(bytes, until)
            }
            _ => sent,
        }
    }

    /// Sends a request in parts, waiting for room.
    fn submit_in_parts(
        &mut self,
        bytes: call::Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        let sent = self.waiting_for_room(until, |session| session.submit_parts_now(bytes));
        if sent.is_err() {
            self.drive.break_off();
        }
        sent
    }

    /// Sends a request in parts, as far as there is room.
    fn submit_parts_now(&mut self, bytes: call::Outgoing<'_>) -> Result<Ticket, CallFailed> {
        self.refill_inbox();
        let ticket = self.drive.submit_in_parts(bytes)?;
        self.sent(ticket);
        Ok(ticket)
    }

    /// Before the next request: the answer that took the inbox away may be dropped by now.
    #[inline]
    pub(super) fn refill_inbox(&mut self) {
        if std::mem::take(&mut self.is_inbox_taken) {
            payload::refill(&mut self.inbox);
        }
    }

    /// Writes a request if that takes no more than a record in the lane. `None` when it does, and nothing was written.
    #[inline]
    fn push_at_once(&mut self, request: Outgoing<'_>) -> Option<Ticket> {
        let Outgoing::Bytes(bytes) = request else { return None };
        if bytes.len() > self.short {
            return None;
        }
        self.refill_inbox();
        let ticket = self.drive.push_at_once(bytes)?;
        self.sent(ticket);
        Some(ticket)
    }

    /// Sends a request if that takes no more than a record in the lane. `None` when it does, and nothing was sent.
    #[inline]
    pub(super) fn submit_at_once(&mut self, request: Outgoing<'_>) -> Option<Ticket> {
        let ticket = self.push_at_once(request);
        if ticket.is_some() {
            self.drive.commit();
        }
        ticket
    }

    /// Sends a request if there is room for it now, in the lane or in a memfd of its own.
    #[inline]
    pub(crate) fn submit_now(&mut self, request: Outgoing<'_>) -> Result<Ticket, CallFailed> {
        if let Some(ticket) = self.submit_at_once(request) {
            return Ok(ticket);
        }
        self.refill_inbox();
        let sent = match request {
            Outgoing::Bytes(bytes) if bytes.len() < self.attach_from => {
                match self.drive.submit(bytes) {
                    Err(CallFailed::Submit(SubmitError::Push(PushError::Attach { .. }))) => {
                        self.submit_copy(bytes)
                    }
                    sent => sent,
                }
            }
            Outgoing::Bytes(bytes) => self.submit_copy(bytes),
            Outgoing::Batch(bytes) => self.submit_batch_now(bytes),
            Outgoing::Sealed(payload) => self.submit_sealed(payload),
        };
        let ticket = sent?;
        self.sent(ticket);
        Ok(ticket)
    }

    /// Writes a request if there is room for it now; whoever writes several publishes them together.
    #[inline]
    pub(super) fn push_now(&mut self, request: Outgoing<'_>) -> Result<Ticket, CallFailed> {
        if let Some(ticket) = self.push_at_once(request) {
            return Ok(ticket);
        }
        let Outgoing::Bytes(bytes) = request else { return self.submit_now(request) };
        if bytes.len() >= self.attach_from {
            return self.submit_now(request);
        }
        self.refill_inbox();
        let ticket = match self.drive.push(bytes) {
            Err(CallFailed::Submit(SubmitError::Push(PushError::Attach { .. }))) => {
                return self.submit_now(request);
            }
            sent => sent?,
        };
        self.sent(ticket);
        Ok(ticket)
    }

    /// Sends a batch through the lane, if one within the limits holds it.
    fn submit_batch_now(&mut self, bytes: &[u8]) -> Result<Ticket, CallFailed> {
        self.drive.submit(call::Outgoing::batch(bytes)).map_err(|failed| match failed {
            CallFailed::Submit(SubmitError::Push(PushError::Attach { len, limit })) => {
                let whose = Whose::Own;
                CallFailed::Submit(SubmitError::Push(PushError::TooLarge { len, limit, whose }))
            }
            failed => failed,
        })
    }

    /// Sends a request as a copy in a memfd of its own.
    pub(super) fn submit_copy(&mut self, bytes: &[u8]) -> Result<Ticket, CallFailed> {
        self.drive.can_attach(bytes.len() as u64)?;
        let copied = Payload::sealed_copy(bytes);
        let payload = copied.map_err(|short| CallFailed::Submit(SubmitError::Short(short)))?;
        self.submit_sealed(&payload)
    }

    pub(super) fn submit_sealed(&mut self, payload: &Payload) -> Result<Ticket, CallFailed> {
        let Some(sealed) = payload.sealed() else { return self.drive.submit(&payload[..]) };
        let bytes = payload.len() as u64;
        self.drive.submit_attached(bytes, |link, id| link.pass_attachment(id, 0, sealed))
    }

    /// Does what may meet a full lane until it does not. Answers that come meanwhile are stashed: a provider that
    /// cannot answer because nobody reads would not take requests either.
    pub(super) fn waiting_for_room<T>(
        &mut self,
        until: &mut Deadline,
        mut send: impl FnMut(&mut Self) -> Result<T, CallFailed>,
    ) -> Result<T, CallError> {
        loop {
            match send(self) {
                Err(CallFailed::Submit(
                    SubmitError::Push(PushError::Full { .. }) | SubmitError::Window,
                )) => {}
                sent => return sent.map_err(|failed| self.explain(failed.into())),
            }
            // What could not be read is an answer to something else: this was not sent.
            let stashed = self.stash_next().map_err(|error| match error {
                CallError::Short { shortage, .. } => {
                    CallError::Short { shortage, executed: Executed::No }
                }
                error => error,
            });
            if !stashed? {
                self.wait_by(|drive| drive.wait_for_room(until))?;
            }
        }
    }

    pub(super) fn await_answer(
        &mut self,
        ticket: Ticket,
        until: &mut Deadline,
    ) -> Result<Answer, CallError> {
        loop {
            let waited = self.drive.wait_for_reply(until, &mut self.inbox);
            self.note_dropped();
            let error = match waited {
                Ok(reply) => match self.receive(reply) {
                    Ok(Some(answer)) if answer.reply.ticket == ticket => return Ok(answer),
                    Ok(Some(answer)) => {
                        self.stash(answer);
                        continue;
                    }
                    Ok(None) => continue,
                    // It was booked where it was found out.
                    Err(error) if reply.ticket == ticket => return Err(error),
                    Err(error) => {
                        self.drive.give_up(ticket);
                        error
                    }
                },
                Err(failed) => return Err(self.given_up(ticket, failed)),
            };
            self.book_given_up(ticket, &error);
            return Err(error);
        }
    }

    /// Gives a request up that cannot be waited for any longer, and books it.
    #[cold]
    fn given_up(&mut self, ticket: Ticket, failed: CallFailed) -> CallError {
        let error = self.give_up(ticket, failed);
        self.book_given_up(ticket, &error);
        error
    }

    /// Gives a request up that cannot be waited for any longer.
    fn give_up(&mut self, ticket: Ticket, failed: CallFailed) -> CallError {
        if let Err(error) = self.check_link() {
            self.drive.give_up(ticket);
            return error;
        }
        match failed {
            CallFailed::Deadline(_) | CallFailed::Short(_) => {
                self.drive.abandon(ticket);
                failed.into()
            }
            CallFailed::Cancelled(_) => {
                self.drive.abandon(ticket);
                self.drive.port().take_cancel();
                failed.into()
            }
            CallFailed::PeerGone(_) => CallError::PeerGone { executed: self.drive.give_up(ticket) },
            CallFailed::Unread(_) => CallError::Unread { executed: self.drive.give_up(ticket) },
            failed => {
                self.drive.give_up(ticket);
                failed.into()
            }
        }
    }

    /// Waits for the provider. What it did on the control socket meanwhile is told first.
    pub(super) fn wait_by(
        &mut self,
        wait: impl FnOnce(&mut Drive<Link>) -> Result<(), CallFailed>,
    ) -> Result<(), CallError> {
        let waited = wait(&mut self.drive);
        self.check_link()?;
        if let Err(CallFailed::Cancelled(_)) = waited {
            self.drive.port().take_cancel();
        }
        Ok(waited?)
    }

    /// What a failure means in a child of fork, whose peer says nothing, or what no peer may say.
    #[cold]
    pub(super) fn explain(&self, error: CallError) -> CallError {
        if self.link().is_here() { error } else { CallError::Forked }
    }

    /// A request that was not sent is booked.
    #[cold]
    pub(super) fn unsent(&mut self, error: CallError) -> CallError {
        let error = self.explain(error);
        self.not_sent(&error);
        error
    }

    /// Poisons the session for what the provider did on the control socket.
    pub(super) fn check_link(&mut self) -> Result<(), CallError> {
        if !self.link().is_here() {
            return Err(CallError::Forked);
        }
        match self.drive.port().fault() {
            Some(fault) => {
                self.drive.poison(fault);
                Err(fault.into())
            }
            None => Ok(()),
        }
    }

    /// The next answer that has arrived and that somebody wants.
    pub(super) fn next_answer(&mut self) -> Result<Option<Answer>, CallError> {
        loop {
            let looked = self.drive.try_reply(&mut self.inbox);
            self.note_dropped();
            let looked = looked.map_err(|failed| self.explain(failed.into()))?;
            let Some(reply) = looked else { return Ok(None) };
            if let Some(answer) = self.receive(reply)? {
                return Ok(Some(answer));
            }
        }
    }

    /// Takes an attached answer's memfd off the control socket, where it lies since before the record was published.
    /// `None` for an answer that nobody wants.
    pub(super) fn receive(&mut self, reply: Reply) -> Result<Option<Answer>, CallError> {
        if !reply.attached {
            return Ok(Some(Answer { reply, body: Body::Inbox }));
        }
        let body = match self.drive.port_mut().take_attachment(reply.ticket.id()) {
            Ok((attachment, map)) => Body::Mapped(attachment.generation, map),
            Err(FollowError::Short(shortage)) => Body::Lost(shortage),
            Err(FollowError::Lied(fault)) => {
                self.drive.poison(fault);
                let error = fault.into();
                if reply.is_wanted {
                    self.book_answer(reply.ticket, Some(&error));
                }
                return Err(error);
            }
        };
        Ok(reply.is_wanted.then_some(Answer { reply, body }))
    }

    /// Stashes one answer that has arrived. False when none has.
    pub(super) fn stash_next(&mut self) -> Result<bool, CallError> {
        let Some(answer) = self.next_answer()? else { return Ok(false) };
        self.stash(answer);
        Ok(true)
    }

    pub(super) fn stash(&mut self, answer: Answer) {
        let Answer { reply, body } = answer;
        let body = match body {
            Body::Inbox => Body::Own(self.inbox.get(..reply.len).unwrap_or_default().to_vec()),
            body => body,
        };
        self.stash.push_back(Answer { reply, body });
    }

    /// Why an answer is none.
    pub(super) fn check(&self, answer: &Answer) -> Result<(), CallError> {
        match &answer.body {
            Body::Inbox => check(answer.reply.status, self.inbox.get(..answer.reply.len)),
            Body::Own(bytes) => check(answer.reply.status, Some(bytes)),
            Body::Mapped(..) => check(answer.reply.status, None),
            Body::Lost(shortage) => {
                Err(CallError::Short { shortage: *shortage, executed: Executed::Maybe })
            }
        }
    }

    pub(super) fn decode(&mut self, answer: Answer) -> Result<S::Response, CallError> {
        let Answer { reply, body } = answer;
        Ok(match body {
            Body::Inbox => self.decode_inbox(reply.len)?,
            Body::Own(mut bytes) => S::Response::take(&mut bytes, reply.len)?,
            Body::Mapped(_, map) => S::Response::from_payload(Payload::mapped(map))?,
            Body::Lost(shortage) => {
                return Err(CallError::Short { shortage, executed: Executed::Maybe });
            }
        })
    }

    /// What the first `len` bytes of the inbox say.
    #[inline]
    pub(super) fn decode_inbox(&mut self, len: usize) -> Result<S::Response, Malformed> {
        self.is_inbox_taken = len >= payload::WORTH_KEEPING;
        S::Response::take(&mut self.inbox, len)
    }

    /// What a plain answer says, which is booked.
    #[inline]
    pub(super) fn open_inbox(
        &mut self,
        ticket: Ticket,
        len: usize,
    ) -> Result<S::Response, CallError> {
        match self.decode_inbox(len) {
            Ok(response) => {
                self.ended(ticket, Outcome::Answered);
                Ok(response)
            }
            Err(malformed) => Err(self.unreadable(ticket, malformed)),
        }
    }

    #[cold]
    pub(super) fn unreadable(&mut self, ticket: Ticket, malformed: Malformed) -> CallError {
        let error = malformed.into();
        self.book_answer(ticket, Some(&error));
        error
    }
}
