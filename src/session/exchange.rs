//! How an answer is waited for, taken, checked and decoded, blocking or not.

use bellwire_core::call::{Reply, Ticket};
use bellwire_core::counters::Outcome;
use bellwire_core::drive::CallFailed;
use bellwire_core::resize::FollowError;
use bellwire_core::{Deadline, Executed};

use super::{Answer, Body, Session, check, lost};
use crate::connect::Driver;
use crate::{CallError, Malformed, Message, Payload, Service, payload};

impl<S: Service> Session<S> {
    /// Waits for the answer to a request, if it is plain and arrives next, and returns its length in the inbox.
    /// Returns `None` when the slow path is needed.
    #[inline]
    pub(super) fn await_fast(
        &mut self,
        ticket: Ticket,
        until: &mut Deadline,
    ) -> Result<Option<usize>, CallError> {
        match self.driver.wait_fast(until, &mut self.inbox) {
            Ok(Some((of, len))) if of == ticket => Ok(Some(len)),
            Ok(Some((of, len))) => {
                self.keep_reply(Answer::in_inbox(of, len));
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(failed) => Err(self.given_up(ticket, failed)),
        }
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

    pub(super) fn await_answer(
        &mut self,
        ticket: Ticket,
        until: &mut Deadline,
    ) -> Result<Answer, CallError> {
        loop {
            let waited = self.driver.wait_for_reply(until, &mut self.inbox);
            self.note_dropped();
            let reply = waited.map_err(|failed| self.given_up(ticket, failed))?;
            match self.receive(reply) {
                Ok(Some(answer)) if answer.reply.ticket == ticket => return Ok(answer),
                Ok(Some(answer)) => self.keep_reply(answer),
                Ok(None) => {}
                Err(error) => return Err(self.give_up(ticket, &error)),
            }
        }
    }

    /// Gives up a request that can no longer be waited for.
    #[cold]
    fn given_up(&mut self, ticket: Ticket, failed: CallFailed) -> CallError {
        if let Err(error) = self.check_link() {
            return self.give_up(ticket, &error);
        }
        if let CallFailed::Cancelled(_) = failed {
            self.driver.port().cancel.take();
        }
        self.give_up(ticket, &failed.into())
    }

    /// Gives up a request because of this error, counts it, and returns its own error.
    #[cold]
    pub(super) fn give_up(&mut self, ticket: Ticket, error: &CallError) -> CallError {
        // One whose answer violated the protocol is already counted.
        let waits = self.driver.is_waiting(ticket);
        let error = match *error {
            CallError::PeerGone { .. } => {
                CallError::PeerGone { executed: self.driver.give_up(ticket) }
            }
            CallError::Closed { reason, .. } => {
                CallError::Closed { reason, executed: self.driver.give_up(ticket) }
            }
            CallError::ProtocolViolation(fault) => {
                self.driver.give_up(ticket);
                CallError::ProtocolViolation(fault)
            }
            CallError::Forked => {
                self.driver.give_up(ticket);
                CallError::Forked
            }
            ref error => {
                self.driver.abandon(ticket);
                let executed = Executed::Maybe;
                match *error {
                    CallError::Cancelled { .. } => CallError::Cancelled { executed },
                    CallError::Short { shortage, .. } => CallError::Short { shortage, executed },
                    _ => CallError::Deadline { executed },
                }
            }
        };
        if waits {
            self.record_given_up(ticket, &error);
        }
        error
    }

    /// Waits for the provider. First reports a protocol violation on the control socket.
    pub(super) fn wait_then_check_link(
        &mut self,
        wait: impl FnOnce(&mut Driver) -> Result<(), CallFailed>,
    ) -> Result<(), CallError> {
        let waited = wait(&mut self.driver);
        self.check_link()?;
        if let Err(CallFailed::Cancelled(_)) = waited {
            self.driver.port().cancel.take();
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
        self.check_owner()?;
        match self.driver.port().fault() {
            Some(fault) => Err(self.driver.end_mut().fail(fault).into()),
            None => Ok(()),
        }
    }

    /// Returns the next answer that has arrived and is expected.
    pub(super) fn next_answer(&mut self) -> Result<Option<Answer>, CallError> {
        loop {
            let replied = self.driver.try_reply(&mut self.inbox);
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
            let taken = self.driver.port_mut().take_attachment(reply.ticket.id());
            taken.map(|(attachment, map)| Body::Mapped(attachment.generation, map))
        };
        let body = match taken {
            Ok(body) => body,
            Err(FollowError::Short(shortage)) => Body::Lost(shortage),
            Err(FollowError::Peer(fault)) => {
                self.driver.end_mut().fail(fault);
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
