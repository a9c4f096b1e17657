//! Fetches what a provider has published: its broadcast ring, and the newest snapshot; and asks to be rung for news.

use std::task::{Poll, ready};

use bellwire_core::broadcast::Received;
use bellwire_core::call::{Reply, Ticket};
use bellwire_core::resize::FollowError;
use bellwire_core::wire::Status;
use bellwire_core::{Deadline, Instant, PeerFault, Port};

use super::{Answer, Body, Outgoing, Session, lost};
use crate::backoff::BackoffTimer;
use crate::broadcast::PeerRing;
use crate::transport::snapshot::SnapshotMap;
use crate::{CallError, Malformed, Service};

/// What a session knows of what its provider has published.
#[derive(Debug)]
pub(super) struct PublicationRequests {
    /// The request without an answer yet, and since when.
    asked: Option<(Request, Ticket, Instant)>,
    /// The request to be rung for news, and the generation above which it is answered.
    pub(super) long_poll: Option<(Ticket, u64)>,
    /// When a provider that answered without news is asked again.
    retry: BackoffTimer,
    ring: Option<PeerRing>,
    /// The number of a ring that this session does not get.
    denied: u32,
}

impl PublicationRequests {
    pub(super) fn new(retry: BackoffTimer) -> Self {
        Self { asked: None, long_poll: None, retry, ring: None, denied: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Newest,
    /// The broadcast ring with this number.
    Ring(u32),
}

impl<S: Service> Session<S> {
    /// Takes the answer to the request for the newest snapshot, its generation and its memory, if there is one; if no request is
    /// in flight, sends it. Pending while the provider has not answered.
    pub(crate) fn try_fetch(
        &mut self,
        max: usize,
    ) -> Poll<Result<Option<(u64, SnapshotMap)>, CallError>> {
        let answer = ready!(self.try_ask(Request::Newest)?);
        Poll::Ready(answer.map(|answer| self.attached(answer, max)).transpose())
    }

    /// Has the ring with this number mapped, or the one in use if the provider has that no more, and returns it. `None` if this
    /// session does not get it; pending while the provider has not answered.
    pub(crate) fn try_ring(
        &mut self,
        number: u32,
    ) -> Poll<Result<Option<&mut PeerRing>, CallError>> {
        let is_mapped = |ring: &PeerRing| ring.number() == number;
        if !self.publication_requests.ring.as_ref().is_some_and(is_mapped) {
            if self.publication_requests.denied == number {
                return Poll::Ready(Ok(None));
            }
            let answer = ready!(self.try_ask(Request::Ring(number))?);
            let has_come = answer.is_some_and(|answer| {
                self.count_answer(answer.reply.ticket, None);
                matches!(answer.body, Body::Inbox | Body::Own(_))
            });
            if !has_come {
                self.publication_requests.denied = number;
                return Poll::Ready(Ok(None));
            }
        }
        Poll::Ready(Ok(self.publication_requests.ring.as_mut()))
    }

    /// Returns the ring that is mapped.
    #[inline]
    pub(crate) fn ring(&mut self) -> Option<&mut PeerRing> {
        self.publication_requests.ring.as_mut()
    }

    /// Copies the newest snapshot out of the ring, if the ring that the board names is mapped and has one of this
    /// generation or later. Makes no system call.
    #[inline]
    pub(crate) fn newest_in_ring(
        &mut self,
        generation: u64,
        into: &mut Vec<u8>,
    ) -> Result<Option<(u64, usize)>, CallError> {
        let Some(ring) = self.ring_in_use() else { return Ok(None) };
        let found = ring.newest(into);
        match self.unless_fault(found)? {
            Received::Record { sequence, len, .. } if sequence >= generation => {
                self.abandon_fetch();
                Ok(Some((sequence, len)))
            }
            _ => Ok(None),
        }
    }

    /// Gives up the request for a snapshot that has been replaced: its answer would be an older one.
    #[inline]
    fn abandon_fetch(&mut self) {
        let is_fetch = |(asked, ..): &mut (Request, Ticket, Instant)| *asked == Request::Newest;
        if let Some((_, ticket, _)) = self.publication_requests.asked.take_if(is_fetch) {
            self.abandon(ticket);
        }
    }

    /// Returns what a tracer knows this session by, and when the publisher created its board.
    pub(crate) fn traced(&self) -> (&bellwire_probes::Session, u64) {
        (self.driver.end().observer().session(), self.board.publisher())
    }

    /// Copies the delta that leads to this generation out of the ring, if the ring that the board names is mapped and has it. Returns its length. Makes no system call.
    #[inline]
    pub(crate) fn delta_in_ring(
        &mut self,
        generation: u64,
        into: &mut Vec<u8>,
    ) -> Result<Option<usize>, CallError> {
        let Some(ring) = self.ring_in_use() else { return Ok(None) };
        let found = ring.delta(generation, into);
        match self.unless_fault(found)? {
            Received::Record { len, .. } => Ok(Some(len)),
            _ => Ok(None),
        }
    }

    /// Returns the ring that the board names, if that is mapped.
    #[inline]
    fn ring_in_use(&mut self) -> Option<&mut PeerRing> {
        let named = self.board.ring().map(|ring| ring.number);
        self.publication_requests.ring.as_mut().filter(|ring| Some(ring.number()) == named)
    }

    /// Poisons the session for a fault that was found in the ring.
    #[inline]
    pub(crate) fn unless_fault<T>(&mut self, found: Result<T, PeerFault>) -> Result<T, CallError> {
        found.map_err(|fault| {
            self.driver.end_mut().fail(fault);
            self.explain(fault.into())
        })
    }

    /// Has the provider ring this end when something after `generation` is published. If it cannot be asked now, or is not to be
    /// yet, [`Session::update_due`] says when.
    pub(crate) fn request_update(&mut self, generation: u64) -> Result<(), CallError> {
        self.note_answers()?;
        // Nothing rings for a session that is over.
        self.nothing::<()>()?;
        let now = self.driver.port().now();
        if self.publication_requests.long_poll.is_none()
            && self.publication_requests.retry.is_due(now)
        {
            match self.submit_now(Outgoing::from(&generation.to_le_bytes()[..])) {
                Ok(ticket) => self.publication_requests.long_poll = Some((ticket, generation)),
                Err(error) => match CallError::from(error) {
                    CallError::WouldBlock => self.publication_requests.retry.failed(now),
                    error => return Err(self.unsent(error)),
                },
            }
        }
        Ok(())
    }

    /// Returns when to poll for news even if nothing rings; `None` if the provider rings, or another answer is pending.
    pub(crate) fn update_due(&self) -> Option<Instant> {
        let PublicationRequests { asked, long_poll, retry, .. } = &self.publication_requests;
        retry.due().filter(|_| asked.is_none() && long_poll.is_none())
    }

    /// Returns since when a caller waits for an answer.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.publication_requests.asked.map(|(_, _, since)| since)
    }

    /// Returns whether the answer to the request in flight may have arrived.
    pub(crate) fn has_answer(&self) -> bool {
        self.publication_requests.asked.is_some() && self.driver.has_reply()
    }

    /// Waits for the provider, until `until` at most.
    pub(crate) fn wait_answer(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let mut until = until.map_or(Deadline::NEVER, Deadline::at);
        self.wait_then_check_link(|driver| driver.wait_for_data(&mut until))
    }

    /// Returns whether the answer with this ticket is the ring.
    pub(super) fn is_ring(&self, reply: &Reply) -> bool {
        matches!(self.publication_requests.asked, Some((Request::Ring(_), ticket, _)) if ticket == reply.ticket)
    }

    /// Takes a ring's memory off the control socket.
    pub(super) fn receive_ring(&mut self, reply: &Reply) -> Result<(), FollowError> {
        let (ring, region) = self.driver.port_mut().take_ring(reply.ticket.id())?;
        let checked = PeerRing::check(ring, region, self.service);
        let checked = checked
            .map_err(|_| PeerFault::Memory { what: "a ring", why: "its header is another one" })?;
        self.publication_requests.ring = Some(checked);
        Ok(())
    }

    /// Takes the answer to the request in flight, or sends one of this kind. `None` if the provider has none.
    fn try_ask(&mut self, kind: Request) -> Poll<Result<Option<Answer>, CallError>> {
        loop {
            let (asked, ticket) = match self.publication_requests.asked {
                Some((asked, ticket, _)) => (asked, ticket),
                None => match self.ask(kind) {
                    Err(CallError::WouldBlock) => return Poll::Pending,
                    asked => (kind, asked?),
                },
            };
            let Some(answer) = self.take_answer(ticket)? else {
                self.nothing::<()>()?;
                return Poll::Pending;
            };
            self.publication_requests.asked = None;
            if asked != kind {
                self.count_answer(answer.reply.ticket, None);
                continue;
            }
            return Poll::Ready(match self.checked(answer) {
                Err(CallError::Declined { status: Status::NotYet }) => Ok(None),
                // A provider that cannot pass its ring still passes snapshots.
                Err(CallError::Declined { .. }) if kind != Request::Newest => Ok(None),
                answer => answer.map(Some),
            });
        }
    }

    /// Takes the answer with this ticket, and notes the answer to a request to be rung.
    fn take_answer(&mut self, ticket: Ticket) -> Result<Option<Answer>, CallError> {
        while let Some(answer) = self.next_of(false)? {
            if answer.reply.ticket == ticket {
                return Ok(Some(answer));
            }
            if self.is_update(&answer) {
                self.note_update(answer.reply.status);
            }
        }
        Ok(None)
    }

    /// Keeps what has arrived, and notes the answer to a request to be rung.
    fn note_answers(&mut self) -> Result<(), CallError> {
        while self.keep_next_reply()? {}
        let at = self.pending_replies.iter().position(|answer| self.is_update(answer));
        if let Some(answer) = at.and_then(|at| self.pending_replies.remove(at)) {
            self.note_update(answer.reply.status);
        }
        Ok(())
    }

    fn is_update(&self, answer: &Answer) -> bool {
        self.publication_requests.long_poll.is_some_and(|(ticket, _)| ticket == answer.reply.ticket)
    }

    /// Notes how the request to be rung was answered. A provider that has no place for it would answer the next one likewise.
    fn note_update(&mut self, status: Status) {
        let newest = self.board.generation();
        let long_poll = self.publication_requests.long_poll.take();
        if status == Status::Ok && long_poll.is_some_and(|(_, after)| newest > after) {
            self.publication_requests.retry.succeeded();
        } else {
            self.publication_requests.retry.failed(self.driver.port().now());
        }
    }

    fn ask(&mut self, kind: Request) -> Result<Ticket, CallError> {
        let now = self.driver.port().now();
        let sent = match kind {
            Request::Newest => self.submit_now(Outgoing::from(&[][..])),
            Request::Ring(number) => self.submit_now(Outgoing::from(&number.to_le_bytes()[..])),
        };
        let ticket = sent.map_err(|failed| self.unsent(failed.into()))?;
        self.publication_requests.asked = Some((kind, ticket, now));
        Ok(ticket)
    }

    /// Returns the memory of an answer, which is already counted.
    fn attached(&mut self, answer: Answer, max: usize) -> Result<(u64, SnapshotMap), CallError> {
        let malformed = |why| CallError::Malformed(Malformed::new(0, answer.reply.len, why));
        let attached = match answer.body {
            Body::Mapped(_, map) if map.len() > max => Err(malformed("longer than a snapshot is")),
            Body::Mapped(generation, map) => Ok((generation, map)),
            Body::Lost(shortage) => Err(lost(shortage)),
            Body::Inbox | Body::Own(_) => Err(malformed("not an attachment")),
        };
        self.count_answer(answer.reply.ticket, attached.as_ref().err());
        attached
    }
}
