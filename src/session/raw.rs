//! A session with the bytes of its messages.

use std::time::Duration;

use bellwire_core::Deadline;
use bellwire_core::call::Ticket;
use bellwire_core::counters::Outcome;

use super::requests::Unwritten;
use super::{Answer, Answered, Body, Session, lost};
use crate::{CallError, Service};

/// A [`Session`] with the bytes of its messages, for callers that encode in place or know the types only at run time: see
/// [`Session::raw`].
#[derive(Debug)]
pub struct RawSession<'a, S: Service>(&'a mut Session<S>);

impl<'a, S: Service> RawSession<'a, S> {
    /// Calls with the bytes of a request and lends the bytes of the answer. In a steady state, it allocates nothing.
    ///
    /// # Errors
    /// Like [`Session::call`].
    pub fn call(self, request: &[u8]) -> Result<&'a [u8], CallError> {
        let timeout = self.0.timeout;
        self.call_within(request, timeout)
    }

    /// Calls like [`RawSession::call`], but waits at most for `timeout`.
    ///
    /// # Errors
    /// Like [`Session::call`].
    pub fn call_within(self, request: &[u8], timeout: Duration) -> Result<&'a [u8], CallError> {
        let len = self.0.call_bytes_until(request, &mut Deadline::within(timeout))?;
        Ok(self.0.answer_bytes(len))
    }

    /// Sends the bytes of a request as [`Session::submit`] does. They are not checked here: the provider answers invalid ones
    /// with [`CallError::Declined`].
    ///
    /// # Errors
    /// Like [`Session::submit`].
    pub fn submit(self, request: &[u8]) -> Result<Ticket, CallError> {
        let sent = self.0.submit_alone(request.into(), Unwritten::Long);
        sent.map_err(|error| self.0.unsent(error))
    }

    /// Like [`Session::try_reply`], but lends the answer's bytes. In a steady state, it allocates nothing.
    ///
    /// # Errors
    /// Like [`Session::try_reply`].
    pub fn try_reply(self) -> Result<Option<Answered<&'a [u8]>>, CallError> {
        let taken = self.0.take_reply()?;
        Ok(taken.map(|(ticket, len)| (ticket, len.map(|len| self.0.answer_bytes(len)))))
    }

    /// Like [`Session::wait_reply`], but lends the answer's bytes, as [`RawSession::try_reply`] does.
    ///
    /// # Errors
    /// Like [`Session::wait_reply`].
    pub fn wait_reply(self, timeout: Duration) -> Result<Answered<&'a [u8]>, CallError> {
        let (ticket, len) = self.0.wait_for(timeout, Session::take_reply)?;
        Ok((ticket, len.map(|len| self.0.answer_bytes(len))))
    }

    /// Sends the bytes of a one-way request as [`Session::post`] does. They are not checked here: the provider counts invalid
    /// ones in [`ServerStats::post_errors`](crate::ServerStats::post_errors).
    ///
    /// # Errors
    /// Like [`Session::post`].
    pub fn post(self, request: &[u8]) -> Result<(), CallError> {
        self.0.check_owner()?;
        self.0.post_waiting(request.into())
    }
}

impl<S: Service> Session<S> {
    /// Returns a view of the session with the bytes of its messages.
    pub fn raw(&mut self) -> RawSession<'_, S> {
        RawSession(self)
    }

    /// Returns the length of the answer, which [`Session::answer_bytes`] lends.
    #[inline]
    pub(crate) fn call_bytes_until(
        &mut self,
        request: &[u8],
        until: &mut Deadline,
    ) -> Result<usize, CallError> {
        let sent = self.submit_waiting(request.into(), until);
        let ticket = sent.map_err(|error| self.unsent(error))?;
        if let Some(len) = self.await_fast(ticket, until)? {
            self.ended(ticket, Outcome::Answered);
            return Ok(len);
        }
        let answer = self.await_answer(ticket, until).and_then(|answer| self.checked(answer))?;
        self.lend(answer)
    }

    /// Takes the next answer into the inbox, and returns its length there.
    fn take_reply(&mut self) -> Result<Option<Answered<usize>>, CallError> {
        self.refill_inbox();
        if self.pending_replies.is_empty() && self.batches.is_empty() {
            if let Some((ticket, len)) = self.driver.try_reply_fast(&mut self.inbox) {
                self.ended(ticket, Outcome::Answered);
                return Ok(Some((ticket, Ok(len))));
            }
        }
        let Some(answer) = self.next_of(false)? else { return self.nothing() };
        let ticket = answer.reply.ticket;
        let len = self.checked(answer).and_then(|answer| self.lend(answer));
        Ok(Some((ticket, len)))
    }

    /// Puts a good answer into the inbox. Returns its length there.
    fn lend(&mut self, answer: Answer) -> Result<usize, CallError> {
        self.count_answer(answer.reply.ticket, None);
        match answer.body {
            Body::Inbox => {}
            Body::Own(bytes) => self.inbox = bytes,
            Body::Mapped(_, map) => {
                self.inbox.clear();
                self.inbox.extend_from_slice(&map);
                // Its record has no bytes.
                return Ok(map.len());
            }
            // An error already.
            Body::Lost(shortage) => return Err(lost(shortage)),
        }
        Ok(answer.reply.len)
    }

    /// Returns the answer of `len` bytes to the last call.
    pub(crate) fn answer_bytes(&self, len: usize) -> &[u8] {
        self.inbox.get(..len).unwrap_or_default()
    }
}
