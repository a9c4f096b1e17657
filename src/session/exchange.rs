//! How one request is sent and its answer received, blocking or not.

use bellwire_core::call::{self, Reply, SubmitError, Ticket};
use bellwire_core::counters::Outcome;
use bellwire_core::drive::CallFailed;
use bellwire_core::lane::PushError;
use bellwire_core::resize::FollowError;
use bellwire_core::{Deadline, Executed, LimitOwner};
use std::time::Duration;

use super::{Answer, Backpressure, Body, Outgoing, Session, check, lost};
use crate::connect::Driver;
use crate::transport::prelude::*;
use crate::transport::snapshot::Snapshot;
use crate::{CallError, Malformed, Message, Payload, Service, payload};

/// Why [`Session::write`] wrote nothing. A word, so that the result is two registers.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The request is not sure to be one record.
    Long,
    /// The record was refused.
    Failed(Box<CallFailed>),
}

impl<S: Service> Session<S> {
    /// Publishes what [`Session::write`] wrote.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.drive.commit();
    }

    /// Encodes a request and writes it, if it is one record and there is room for it now. [`Session::with_encoded`] continues
    /// otherwise.
    ///
    /// The result is moved only in registers. A load that covers several recent stores waits until they reach the
    /// cache, and so waits for all stores before them too, including those to the lane's lines, which the peer's
    /// cache holds.
    #[inline]
    pub(crate) fn write<const ONE_WAY: bool>(
        &mut self,
        request: &S::Request,
    ) -> Result<Ticket, Unwritten> {
        self.write_record::<ONE_WAY, false>(request)
    }

    /// Like [`Session::write`], but writes only a record that is free in the lane as it is: nothing grows, and nothing is observed
    /// of a request that is not written.
    #[cfg(feature = "tokio")]
    pub(crate) fn write_free(&mut self, request: &S::Request) -> Option<Ticket> {
        self.write_record::<false, true>(request).ok()
    }

    #[inline]
    fn write_record<const ONE_WAY: bool, const ONLY_FREE: bool>(
        &mut self,
        request: &S::Request,
    ) -> Result<Ticket, Unwritten> {
        self.outbox.clear();
        if request.as_payload().is_some() {
            return Err(Unwritten::Long);
        }
        self.refill_inbox();
        let bytes = match request.as_encoded() {
            Some(bytes) => bytes,
            None => {
                request.encode(&mut self.outbox);
                &self.outbox
            }
        };
        if !self.is_one_record(bytes.len()) {
            return Err(Unwritten::Long);
        }
        if ONLY_FREE && self.drive.end_mut().parts().0.reserve(bytes.len()).is_none() {
            return Err(Unwritten::Long);
        }
        let bytes = call::Outgoing::from(bytes);
        let ticket = self.drive.push(if ONE_WAY { bytes.one_way() } else { bytes })?;
        if ONE_WAY {
            self.posted();
        } else {
            self.sent(ticket);
        }
        Ok(ticket)
    }

    /// Passes the bytes of a request to `send`: in place, or in the outbox, where the preceding [`Session::write`] of this
    /// request left them.
    pub(crate) fn with_encoded<T>(
        &mut self,
        request: &S::Request,
        send: impl FnOnce(&mut Self, Outgoing<'_>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        if let Some(payload) = request.as_payload() {
            let sealed = payload.sealed().map(|memory| Outgoing::Sealed { memory, one_way: false });
            return send(self, sealed.unwrap_or_else(|| Outgoing::from(&payload[..])));
        }
        if let Some(bytes) = request.as_encoded() {
            return send(self, Outgoing::from(bytes));
        }
        let outbox = std::mem::take(&mut self.outbox);
        let sent = send(self, Outgoing::from(&outbox[..]));
        self.outbox = outbox;
        sent
    }

    /// Waits for the answer to a request, if it is plain and arrives next, and returns its length in the inbox.
    /// Returns `None` when the slow path is needed.
    #[inline]
    pub(super) fn await_fast(
        &mut self,
        ticket: Ticket,
        until: &mut Deadline,
    ) -> Result<Option<usize>, CallError> {
        match self.drive.wait_fast(until, &mut self.inbox) {
            Ok(Some((of, len))) if of == ticket => Ok(Some(len)),
            Ok(Some((of, len))) => {
                self.keep_reply(Answer::in_inbox(of, len));
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(failed) => Err(self.given_up(ticket, failed)),
        }
    }

    /// Sends a request and waits for its answer, which is no error: count it once it was read.
    #[inline]
    pub(super) fn exchange(
        &mut self,
        request: Outgoing<'_>,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let until = &mut Deadline::within(timeout);
        let sent = self.submit_waiting(request, until);
        let ticket = sent.map_err(|error| self.unsent(error))?;
        let answer = self.await_answer(ticket, until)?;
        self.checked(answer)
    }

    /// Checks that an answer is no error; errors are counted here.
    #[inline]
    pub(super) fn checked(&mut self, answer: Answer) -> Result<Answer, CallError> {
        match self.check(&answer) {
            Ok(()) => Ok(answer),
            Err(error) => {
                self.count_answer(answer.reply.ticket, Some(&error));
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
        match request {
            Outgoing::Bytes(bytes) if self.is_one_record(bytes.bytes().len()) => {}
            _ => return self.submit_long(request, until),
        }
        match self.submit_now(request) {
            Ok(ticket) => Ok(ticket),
            Err(failed) => self.submit_refused(request, failed, until),
        }
    }

    /// Sends a request that was [not written](Session::write), waiting for room.
    pub(super) fn submit_unwritten(
        &mut self,
        request: Outgoing<'_>,
        unwritten: Unwritten,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        let Unwritten::Failed(failed) = unwritten else { return self.submit_long(request, until) };
        match self.push_refused(request, *failed) {
            Ok(ticket) => Ok(ticket),
            Err(failed) => self.submit_refused(request, failed, until),
        }
    }

    /// Sends a request that is not sure to be one record: in parts where it does not fit the lane.
    #[cold]
    fn submit_long(
        &mut self,
        request: Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        match self.parts_of(request) {
            Some(parts) if parts.bytes().len() > self.parts_from() => {
                self.submit_in_parts(parts, until)
            }
            _ => match self.submit_now(request) {
                Ok(ticket) => Ok(ticket),
                Err(failed) => self.submit_refused(request, failed, until),
            },
        }
    }

    /// Sends a request that `failed` to be sent at once, once there is room for it.
    #[cold]
    fn submit_refused(
        &mut self,
        request: Outgoing<'_>,
        failed: CallFailed,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        if self.backpressure == Backpressure::Fail {
            return Err(failed.into());
        }
        let mut failed = Some(failed);
        let sent = self.waiting_for_room(until, |session| match failed.take() {
            Some(failed) => Err(failed),
            None => session.submit_now(request),
        });
        match (&sent, self.parts_of(request)) {
            // At the limit of shared memory, it goes through the current lane.
            (Err(CallError::TooLarge { len, .. }), Some(bytes)) if *len <= self.max_request() => {
                self.submit_in_parts(bytes, until)
            }
            _ => sent,
        }
    }

    /// Returns the bytes of a request that may be sent in parts.
    fn parts_of<'r>(&self, request: Outgoing<'r>) -> Option<call::Outgoing<'r>> {
        match request {
            Outgoing::Bytes(bytes)
                if self.backpressure != Backpressure::Fail && !self.is_to_attach(bytes) =>
            {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Returns whether a request of `len` bytes is one record of the lane, for a caller that waits, too.
    #[inline]
    fn is_one_record(&self, len: usize) -> bool {
        len <= self.short
            && (self.backpressure != Backpressure::Wait
                || len <= self.drive.end().lanes().epoch().size.max_payload())
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

    /// Sends the parts of a request for which there is room.
    fn submit_parts_now(&mut self, bytes: call::Outgoing<'_>) -> Result<Ticket, CallFailed> {
        self.refill_inbox();
        let ticket = self.drive.submit_in_parts(bytes)?;
        self.count_sent(ticket);
        Ok(ticket)
    }

    /// Runs before the next request: by now, the caller may have dropped the answer that took the inbox.
    #[inline]
    pub(super) fn refill_inbox(&mut self) {
        if std::mem::take(&mut self.is_inbox_taken) {
            payload::refill(&mut self.inbox);
        }
    }

    /// Sends a request, in the lane or attached, if there is room for it now.
    #[inline]
    pub(crate) fn submit_now(&mut self, request: Outgoing<'_>) -> Result<Ticket, CallFailed> {
        let ticket = self.push_now(request)?;
        self.drive.commit();
        Ok(ticket)
    }

    /// Writes a request if there is room for it now; a caller with several publishes them together. One that is attached is
    /// published.
    #[inline]
    pub(super) fn push_now(&mut self, request: Outgoing<'_>) -> Result<Ticket, CallFailed> {
        self.refill_inbox();
        let bytes = match request {
            Outgoing::Bytes(bytes) if !self.is_to_attach(bytes) => bytes,
            _ => return self.push_attached(request),
        };
        match self.drive.push(bytes) {
            Ok(ticket) => {
                self.count_sent(ticket);
                Ok(ticket)
            }
            Err(failed) => self.push_refused(request, failed),
        }
    }

    /// Writes a request that was [not written](Session::write), in the lane or attached, if there is room for it now.
    pub(crate) fn push_unwritten(
        &mut self,
        request: Outgoing<'_>,
        unwritten: Unwritten,
    ) -> Result<Ticket, CallFailed> {
        match unwritten {
            Unwritten::Long => self.push_now(request),
            Unwritten::Failed(failed) => self.push_refused(request, *failed),
        }
    }

    /// Attaches a request that `failed` because no lane holds it.
    #[cold]
    fn push_refused(
        &mut self,
        request: Outgoing<'_>,
        failed: CallFailed,
    ) -> Result<Ticket, CallFailed> {
        match failed {
            CallFailed::Submit(SubmitError::Push(PushError::Attach { len, limit })) => {
                match request {
                    // Batches are never attached.
                    Outgoing::Bytes(bytes) if bytes.is_batch() => {
                        let owner = LimitOwner::Own;
                        let too_large = PushError::TooLarge { len, limit, owner };
                        Err(CallFailed::Submit(SubmitError::Push(too_large)))
                    }
                    _ => self.push_attached(request),
                }
            }
            failed => Err(failed),
        }
    }

    #[cold]
    fn push_attached(&mut self, request: Outgoing<'_>) -> Result<Ticket, CallFailed> {
        let ticket = match request {
            Outgoing::Sealed { memory, one_way } => self.submit_sealed(memory, one_way)?,
            Outgoing::Bytes(bytes) => self.submit_copy(bytes)?,
        };
        self.count_sent(ticket);
        Ok(ticket)
    }

    /// Returns whether a request is so long that a copy of it is attached.
    fn is_to_attach(&self, request: call::Outgoing<'_>) -> bool {
        !request.is_batch() && request.bytes().len() >= self.attach_from
    }

    /// Sends a request as an attached copy, if it can be attached now.
    fn submit_copy(&mut self, request: call::Outgoing<'_>) -> Result<Ticket, CallFailed> {
        self.drive.can_attach(request.bytes().len() as u64)?;
        let copied = payload::seal_copy(request.bytes());
        let memory = copied.map_err(|short| CallFailed::Submit(SubmitError::Short(short)))?;
        self.submit_sealed(&memory, request.is_one_way())
    }

    fn submit_sealed(&mut self, memory: &Snapshot, one_way: bool) -> Result<Ticket, CallFailed> {
        let bytes = memory.len() as u64;
        self.drive.submit_attached(bytes, one_way, |link, id| link.pass_attachment(id, 0, memory))
    }

    /// Repeats an operation until it no longer finds the lane full. Keeps answers that arrive meanwhile: a provider
    /// that is blocked on its answers takes no requests.
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
            // The unreadable answer belongs to another request: this one was not sent.
            let kept = self.keep_next_reply().map_err(|error| match error {
                CallError::Short { shortage, .. } => {
                    CallError::Short { shortage, executed: Executed::No }
                }
                error => error,
            });
            if !kept? {
                self.wait_then_check_link(|drive| drive.wait_for_room(until))?;
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
                        self.keep_reply(answer);
                        continue;
                    }
                    Ok(None) => continue,
                    // Already counted where the error was found.
                    Err(error) if reply.ticket == ticket => return Err(error),
                    Err(error) => {
                        self.drive.give_up(ticket);
                        error
                    }
                },
                Err(failed) => return Err(self.given_up(ticket, failed)),
            };
            self.record_given_up(ticket, &error);
            return Err(error);
        }
    }

    /// Gives up a request that can no longer be waited for, and counts it.
    #[cold]
    fn given_up(&mut self, ticket: Ticket, failed: CallFailed) -> CallError {
        let error = match self.check_link() {
            Ok(()) => {
                if let CallFailed::Cancelled(_) = failed {
                    self.drive.port().take_cancel();
                }
                self.give_up_for(ticket, &failed.into())
            }
            Err(error) => {
                self.drive.give_up(ticket);
                error
            }
        };
        self.record_given_up(ticket, &error);
        error
    }

    /// Waits for the provider. First reports a protocol violation on the control socket.
    pub(super) fn wait_then_check_link(
        &mut self,
        wait: impl FnOnce(&mut Driver) -> Result<(), CallFailed>,
    ) -> Result<(), CallError> {
        let waited = wait(&mut self.drive);
        self.check_link()?;
        if let Err(CallFailed::Cancelled(_)) = waited {
            self.drive.port().take_cancel();
        }
        Ok(waited?)
    }

    /// Replaces any failure in a forked child, where the peer seems silent or seems to violate the protocol.
    #[cold]
    pub(super) fn explain(&self, error: CallError) -> CallError {
        if self.link().is_owner_process() { error } else { CallError::Forked }
    }

    /// Counts a request that was not sent.
    #[cold]
    pub(super) fn unsent(&mut self, error: CallError) -> CallError {
        let error = self.explain(error);
        self.not_sent(&error);
        error
    }

    /// Poisons the session for a protocol violation on the control socket.
    pub(super) fn check_link(&mut self) -> Result<(), CallError> {
        if !self.link().is_owner_process() {
            return Err(CallError::Forked);
        }
        match self.drive.port().fault() {
            Some(fault) => Err(self.drive.end_mut().fail(fault).into()),
            None => Ok(()),
        }
    }

    /// Returns the next answer that has arrived and is expected.
    pub(super) fn next_answer(&mut self) -> Result<Option<Answer>, CallError> {
        loop {
            let replied = self.drive.try_reply(&mut self.inbox);
            self.note_dropped();
            let replied = replied.map_err(|failed| self.explain(failed.into()))?;
            let Some(reply) = replied else { return Ok(None) };
            if let Some(answer) = self.receive(reply)? {
                return Ok(Some(answer));
            }
        }
    }

    /// Takes an attached answer's memfd off the control socket, where it was before the record was published. Returns
    /// `None` for an answer that nobody expects.
    pub(super) fn receive(&mut self, reply: Reply) -> Result<Option<Answer>, CallError> {
        if !reply.attached {
            return Ok(Some(Answer { reply, body: Body::Inbox }));
        }
        let taken = if self.is_ring(&reply) {
            self.receive_ring(&reply).map(|()| Body::Inbox)
        } else {
            let taken = self.drive.port_mut().take_attachment(reply.ticket.id());
            taken.map(|(attachment, map)| Body::Mapped(attachment.generation, map))
        };
        let body = match taken {
            Ok(body) => body,
            Err(FollowError::Short(shortage)) => Body::Lost(shortage),
            Err(FollowError::Peer(fault)) => {
                self.drive.end_mut().fail(fault);
                let error = fault.into();
                if reply.is_wanted {
                    self.count_answer(reply.ticket, Some(&error));
                }
                return Err(error);
            }
        };
        Ok(reply.is_wanted.then_some(Answer { reply, body }))
    }

    /// Keeps one answer that has arrived. Returns false when none has.
    pub(super) fn keep_next_reply(&mut self) -> Result<bool, CallError> {
        let Some(answer) = self.next_answer()? else { return Ok(false) };
        self.keep_reply(answer);
        Ok(true)
    }

    pub(super) fn keep_reply(&mut self, answer: Answer) {
        let Answer { reply, body } = answer;
        let body = match body {
            Body::Inbox => Body::Own(self.inbox.get(..reply.len).unwrap_or_default().to_vec()),
            body => body,
        };
        self.pending_replies.push_back(Answer { reply, body });
    }

    /// Returns the error that an answer reports.
    pub(super) fn check(&self, answer: &Answer) -> Result<(), CallError> {
        match &answer.body {
            Body::Inbox => check(answer.reply.status, self.inbox.get(..answer.reply.len)),
            Body::Own(bytes) => check(answer.reply.status, Some(bytes)),
            Body::Mapped(..) => check(answer.reply.status, None),
            Body::Lost(shortage) => Err(lost(*shortage)),
        }
    }

    pub(super) fn decode(&mut self, answer: Answer) -> Result<S::Response, CallError> {
        let Answer { reply, body } = answer;
        Ok(match body {
            Body::Inbox => self.decode_inbox(reply.len)?,
            Body::Own(mut bytes) => S::Response::take(&mut bytes, reply.len)?,
            Body::Mapped(_, map) => S::Response::from_payload(Payload::mapped(map))?,
            Body::Lost(shortage) => return Err(lost(shortage)),
        })
    }

    /// Decodes the first `len` bytes of the inbox.
    #[inline]
    pub(super) fn decode_inbox(&mut self, len: usize) -> Result<S::Response, Malformed> {
        self.is_inbox_taken = len >= payload::WORTH_KEEPING;
        S::Response::take(&mut self.inbox, len)
    }

    /// Decodes a plain answer, which is already counted.
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
        self.count_answer(ticket, Some(&error));
        error
    }
}

impl From<CallFailed> for Unwritten {
    #[cold]
    fn from(failed: CallFailed) -> Self {
        Self::Failed(Box::new(failed))
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Client, RunDir, Server};

    struct Held;

    impl Service for Held {
        const NAME: &'static str = "held";
        type Request = [u8; 1000];
        type Response = u8;
    }

    #[test]
    fn a_record_that_is_not_free_grows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let (release, held) = mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let mut builder = Server::builder(&run_dir);
        let answer = move |_: &_, _| Ok(u8::from(held.lock().unwrap().recv().is_ok()));
        builder.serve::<Held>(answer).unwrap();
        let server = builder.start().unwrap();
        let mut client = Client::<Held>::new(&run_dir);
        let mut session = client.connect().unwrap().backpressure(Backpressure::Grow);
        let size = |session: &Session<Held>| session.drive.end().lanes().epoch().size;
        let first = size(&session);
        // Now and then no record is free until the peer's head is loaded; at last there is no room.
        let sizes = std::iter::from_fn(|| {
            let is_written = session.write_free(&[1; 1000]).is_some();
            let free = size(&session);
            let is_full = !is_written && session.write::<false>(&[1; 1000]).is_err();
            session.publish();
            Some((free, size(&session), is_full))
        });
        let grown =
            sizes.take(200).find(|(free, now, is_full)| *is_full || now > free || *free > first);
        drop(release);
        server.stop();
        assert_eq!(grown, Some((first, first.doubled(), false)), "only who waits grows the lane");
    }
}
