//! How one request is sent: in the lane, in parts, or in memory of its own, waiting for room or not.

use bellwire_core::call::{self, SubmitError, Ticket};
use bellwire_core::drive::CallFailed;
use bellwire_core::lane::PushError;
use bellwire_core::{Deadline, Executed, LimitOwner};

use super::{Backpressure, Outgoing, Session};
use crate::transport::prelude::*;
use crate::transport::snapshot::Snapshot;
use crate::{CallError, Message, Service, payload};

/// Why [`Session::write`] wrote nothing. A word, so that the result is two registers.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The request is not sure to be one record.
    Long,
    /// The record was refused.
    Failed(Box<CallFailed>),
}

impl From<CallFailed> for Unwritten {
    #[cold]
    fn from(failed: CallFailed) -> Self {
        Self::Failed(Box::new(failed))
    }
}

impl<S: Service> Session<S> {
    /// Publishes what [`Session::write`] wrote.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.driver.commit();
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

    /// With `ONLY_FREE`, writes only a record that is free in the lane as it is: nothing grows, and nothing is observed of a
    /// request that is not written.
    #[inline]
    pub(super) fn write_record<const ONE_WAY: bool, const ONLY_FREE: bool>(
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
        if ONLY_FREE && self.driver.end_mut().parts().0.reserve(bytes.len()).is_none() {
            return Err(Unwritten::Long);
        }
        let bytes = call::Outgoing::from(bytes);
        let ticket = self.driver.push(if ONE_WAY { bytes.one_way() } else { bytes })?;
        self.sent(ticket, ONE_WAY);
        Ok(ticket)
    }

    /// Encodes a request and writes it, in the lane or attached, if there is room for it now.
    #[inline]
    pub(super) fn write_now<const ONE_WAY: bool>(
        &mut self,
        request: &S::Request,
    ) -> Result<Ticket, CallFailed> {
        match self.write::<ONE_WAY>(request) {
            Ok(ticket) => Ok(ticket),
            Err(unwritten) => self.with_encoded(request, |session, bytes| {
                session.push_unwritten(if ONE_WAY { bytes.one_way() } else { bytes }, unwritten)
            }),
        }
    }

    /// Passes the bytes of a request to `send`: in place, or in the outbox, where the preceding [`Session::write`] of this
    /// request left them.
    pub(super) fn with_encoded<T>(
        &mut self,
        request: &S::Request,
        send: impl FnOnce(&mut Self, Outgoing<'_>) -> T,
    ) -> T {
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

    /// Sends a request, waiting for room: in parts where it does not fit the lane.
    #[inline]
    pub(super) fn submit_waiting(
        &mut self,
        request: Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        let is_short = match request {
            Outgoing::Bytes(bytes) => self.is_one_record(bytes.bytes().len()),
            Outgoing::Sealed { .. } => false,
        };
        let parts = if is_short { None } else { self.parts_of(request) };
        if let Some(parts) = parts.filter(|parts| parts.bytes().len() > self.parts_from()) {
            return self.submit_in_parts(parts, until);
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
        let Unwritten::Failed(failed) = unwritten else {
            return self.submit_waiting(request, until);
        };
        match self.push_refused(request, *failed) {
            Ok(ticket) => Ok(ticket),
            Err(failed) => self.submit_refused(request, failed, until),
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
                || len <= self.driver.end().lanes().epoch().size.max_payload())
    }

    /// Sends a request in parts, waiting for room.
    fn submit_in_parts(
        &mut self,
        bytes: call::Outgoing<'_>,
        until: &mut Deadline,
    ) -> Result<Ticket, CallError> {
        let sent = self.waiting_for_room(until, |session| {
            // The parts for which there is room.
            session.refill_inbox();
            session.driver.submit_in_parts(bytes)
        });
        match sent {
            Ok(ticket) => self.sent(ticket, bytes.is_one_way()),
            Err(_) => self.driver.abort_parts(),
        }
        sent
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
        self.driver.commit();
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
        match self.driver.push(bytes) {
            Ok(ticket) => {
                self.sent(ticket, bytes.is_one_way());
                Ok(ticket)
            }
            Err(failed) => self.push_refused(request, failed),
        }
    }

    /// Writes a request that was [not written](Session::write), in the lane or attached, if there is room for it now.
    pub(super) fn push_unwritten(
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
        match request {
            Outgoing::Sealed { memory, one_way } => self.submit_sealed(memory, one_way),
            Outgoing::Bytes(bytes) => self.submit_copy(bytes),
        }
    }

    /// Returns whether a request is so long that a copy of it is attached.
    fn is_to_attach(&self, request: call::Outgoing<'_>) -> bool {
        !request.is_batch() && request.bytes().len() >= self.attach_from
    }

    /// Sends a request as an attached copy, if it can be attached now.
    fn submit_copy(&mut self, request: call::Outgoing<'_>) -> Result<Ticket, CallFailed> {
        self.driver.can_attach(request.bytes().len() as u64)?;
        let copied = payload::seal_copy(request.bytes());
        let memory = copied.map_err(|short| CallFailed::Submit(SubmitError::Short(short)))?;
        self.submit_sealed(&memory, request.is_one_way())
    }

    fn submit_sealed(&mut self, memory: &Snapshot, one_way: bool) -> Result<Ticket, CallFailed> {
        let bytes = memory.len() as u64;
        let ticket = self
            .driver
            .submit_attached(bytes, one_way, |link, id| link.pass_attachment(id, 0, memory))?;
        self.sent(ticket, one_way);
        Ok(ticket)
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
                self.wait_then_check_link(|driver| driver.wait_for_room(until))?;
            }
        }
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
        let size = |session: &Session<Held>| session.driver.end().lanes().epoch().size;
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
