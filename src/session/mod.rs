mod batch;
mod books;
mod exchange;
mod many;
mod replies;
mod snapshots;
mod when_full;

#[cfg(feature = "tokio")]
pub(crate) use batch::{ArrivedBatch, Packed};
pub(crate) use batch::{decode_together, write_together};
pub use replies::Replies;
use snapshots::Asked;
pub(crate) use snapshots::{Attached, Fetched};
pub use when_full::{Choice, WhenFull};

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Duration;

use bellwire_core::batch::BatchBuilder;
use bellwire_core::call::{Reply, Ticket};
use bellwire_core::counters::{CallCounters, Outcome};
use bellwire_core::drive::Drive;
use bellwire_core::wire::{CloseReason, Role, Status};
use bellwire_core::{Deadline, Executed, Left, Unread, probes};

use crate::board::Board;
use crate::connect::Opened;
use crate::transport::link::{Canceller, Link};
use crate::transport::object::Borrowed;
use crate::transport::snapshot::SnapshotMap;
use crate::{CallError, Client, ClientConfig, Payload, Service, learned, payload};
use batch::SentBatch;

/// The longest reason of a failed handler that is kept, in bytes.
const MAX_REASON: usize = 4096;

/// One session with a provider of `S`: calls, one at a time or many in flight.
///
/// A session is for one thread at a time. It sends a request by copying it into a lane in shared memory and
/// makes no system call for it, unless the provider sleeps and has to be rung. A request that does not fit the lane
/// makes the lane grow; one that fits no lane, and a [`Payload`] in a memfd of its own, is passed instead of copied.
///
/// After [`CallError::PeerGone`], [`CallError::Unread`] or [`CallError::PeerLied`] a session stays closed: open another one, or let a
/// [`Client`](crate::Client) do so.
#[derive(Debug)]
pub struct Session<S: Service> {
    drive: Drive<Link>,
    board: Board,
    /// The request being encoded.
    outbox: Vec<u8>,
    /// The batch being put together.
    batch: Option<Box<BatchBuilder>>,
    /// Batches in flight, in the order sent.
    batches: VecDeque<SentBatch>,
    /// The answers to a batch that came while the inbox was in use.
    batch_inbox: Vec<u8>,
    /// The answer that came last; larger than the answer when an earlier one was.
    inbox: Vec<u8>,
    /// The last answer may have taken the inbox away.
    is_inbox_taken: bool,
    /// Answers that came while another one was waited for.
    stash: VecDeque<Answer>,
    provider_pid: Option<u32>,
    max_batch: usize,
    timeout: Duration,
    when_full: WhenFull,
    attach_from: usize,
    stream_from: usize,
    /// Requests of at most this many bytes go as one record, wherever there is room for it.
    short: usize,
    /// The epoch whose size was noted for later sessions.
    noted: u32,
    calls: CallCounters,
    /// The request for a snapshot.
    asked: Option<Asked>,
    unread: Unread,
    unread_timeout: Option<Duration>,
    /// What to say when it is dropped.
    bye: CloseReason,
    service: PhantomData<fn(&S)>,
}

/// An answer that has arrived.
#[derive(Debug)]
struct Answer {
    reply: Reply,
    body: Body,
}

impl Answer {
    /// One that is Ok, and whose bytes came through the lane.
    #[inline]
    fn in_inbox(ticket: Ticket, len: usize) -> Self {
        Self { reply: Reply::plain(ticket, len), body: Body::Inbox }
    }
}

/// Where an answer's bytes are.
#[derive(Debug)]
enum Body {
    /// In the inbox.
    Inbox,
    Own(Vec<u8>),
    /// In a memfd of their own; of which generation, if it is a snapshot.
    Mapped(u64, SnapshotMap),
    /// The memfd could not be mapped here.
    Lost(bellwire_core::resize::Shortage),
}

/// A request's bytes, ready to be sent.
#[derive(Clone, Copy)]
pub(crate) enum Outgoing<'a> {
    Bytes(&'a [u8]),
    /// Many requests; never in a memfd of its own.
    Batch(&'a [u8]),
    Sealed(&'a Payload),
}

impl<S: Service> Session<S> {
    pub(crate) fn new(opened: Opened, config: &ClientConfig) -> Self {
        let [requests, _] = opened.drive.lane_stats();
        let mut drive = opened.drive;
        let attach_from = config.attach_from.unwrap_or(usize::MAX);
        let stream_from = config.stream_from.unwrap_or(usize::MAX);
        drive.set_growth(config.when_full.growth());
        drive.set_window(config.max_in_flight);
        Self {
            drive,
            board: opened.board,
            outbox: Vec::new(),
            batch: None,
            batches: VecDeque::new(),
            batch_inbox: Vec::new(),
            inbox: Vec::new(),
            is_inbox_taken: false,
            stash: VecDeque::new(),
            provider_pid: opened.pid,
            max_batch: usize::try_from(opened.max_batch).unwrap_or(usize::MAX),
            timeout: config.timeout,
            when_full: config.when_full,
            attach_from,
            stream_from,
            short: stream_from.min(attach_from.saturating_sub(1)),
            noted: requests.epoch,
            calls: CallCounters::default(),
            asked: None,
            unread: Unread::default(),
            unread_timeout: config.unread_timeout,
            bye: CloseReason::Normal,
            service: PhantomData,
        }
    }

    /// Calls and waits for the answer, at most for the time set when the session was opened.
    ///
    /// # Errors
    /// [`CallError`]. The session stays usable unless the provider is gone or lied.
    pub fn call(&mut self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.timeout)
    }

    /// Calls and waits for the answer, at most for `timeout`.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call_within(
        &mut self,
        request: &S::Request,
        timeout: Duration,
    ) -> Result<S::Response, CallError> {
        self.call_until(request, &mut Deadline::within(timeout))
    }

    #[inline]
    pub(crate) fn call_until(
        &mut self,
        request: &S::Request,
        until: &mut Deadline,
    ) -> Result<S::Response, CallError> {
        let ticket = match self.send_at_once(request) {
            Some(ticket) => ticket,
            None => {
                self.submit_encoded(request, |session, bytes| session.submit_waiting(bytes, until))?
            }
        };
        match self.await_at_once(ticket, until)? {
            Some(len) => self.open_inbox(ticket, len),
            None => self.await_response(ticket, until),
        }
    }

    fn await_response(
        &mut self,
        ticket: Ticket,
        until: &mut Deadline,
    ) -> Result<S::Response, CallError> {
        let answer = self.await_answer(ticket, until)?;
        self.open(answer)
    }

    /// Calls with the bytes of a request and lends the bytes of the answer: for who encodes in place. In a
    /// steady state nothing is allocated.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call_bytes(&mut self, request: &[u8]) -> Result<&[u8], CallError> {
        let answer = self.exchange(Outgoing::Bytes(request), self.timeout)?;
        self.book_answer(answer.reply.ticket, None);
        match answer.body {
            Body::Inbox => {}
            Body::Own(bytes) => self.inbox = bytes,
            Body::Mapped(_, map) => {
                self.inbox.clear();
                self.inbox.extend_from_slice(&map);
                return Ok(&self.inbox);
            }
            // `exchange` has told so before.
            Body::Lost(shortage) => {
                return Err(CallError::Short { shortage, executed: Executed::Maybe });
            }
        }
        Ok(self.inbox.get(..answer.reply.len).unwrap_or_default())
    }

    /// Sends a request and returns at once; its answer comes by [`Session::try_reply`]. Any number up to the
    /// lane's room may be in flight. With [`WhenFull::Wait`] it waits for room first.
    ///
    /// # Errors
    /// [`CallError::WouldBlock`] when the lane is full: take replies first. The handler will not run.
    pub fn submit(&mut self, request: &S::Request) -> Result<Ticket, CallError> {
        match self.send_at_once(request) {
            Some(ticket) => Ok(ticket),
            None => self.submit_encoded(request, Self::submit_alone),
        }
    }

    #[cold]
    fn submit_encoded(
        &mut self,
        request: &S::Request,
        send: impl FnOnce(&mut Self, Outgoing<'_>) -> Result<Ticket, CallError>,
    ) -> Result<Ticket, CallError> {
        let sent = self.with_encoded(request, send);
        sent.map_err(|error| self.unsent(error))
    }

    /// Sends the bytes of a request as [`Session::submit`] does: for who encodes in place, or has the bytes anyway. They are not
    /// looked at here: what the provider cannot read comes back as [`CallError::Declined`].
    ///
    /// # Errors
    /// As [`Session::submit`].
    pub fn submit_bytes(&mut self, request: &[u8]) -> Result<Ticket, CallError> {
        let sent = self.submit_alone(Outgoing::Bytes(request));
        sent.map_err(|error| self.unsent(error))
    }

    /// The next answer, in whatever order the provider sent them, and the request that it is for; `None` when
    /// none has arrived. Never waits.
    ///
    /// # Errors
    /// [`CallError`] of the session; an error of one call stands inside.
    #[allow(clippy::type_complexity, reason = "which call, and how it went")]
    pub fn try_reply(
        &mut self,
    ) -> Result<Option<(Ticket, Result<S::Response, CallError>)>, CallError> {
        if self.stash.is_empty()
            && self.batches.is_empty()
            && let Some((ticket, len)) = self.drive.reply_at_once(&mut self.inbox)
        {
            // As `open_inbox`, whose result would be moved once more, in other pieces than it was written in.
            return Ok(Some(match self.decode_inbox(len) {
                Ok(response) => {
                    self.ended(ticket, Outcome::Answered);
                    (ticket, Ok(response))
                }
                Err(malformed) => (ticket, Err(self.unreadable(ticket, malformed))),
            }));
        }
        self.try_reply_otherwise()
    }

    #[allow(clippy::type_complexity, reason = "as of `try_reply`")]
    fn try_reply_otherwise(
        &mut self,
    ) -> Result<Option<(Ticket, Result<S::Response, CallError>)>, CallError> {
        let Some(answer) = self.next_of(false)? else { return self.nothing() };
        let ticket = answer.reply.ticket;
        Ok(Some((ticket, self.open(answer))))
    }

    /// The next answer to a batch, or to a request that was sent alone.
    fn next_of(&mut self, batch: bool) -> Result<Option<Answer>, CallError> {
        let fits = |answer: &Answer| self.is_batch(answer.reply.ticket) == batch;
        if let Some(at) = self.stash.iter().position(fits) {
            return Ok(self.stash.remove(at));
        }
        while let Some(answer) = self.next_answer()? {
            if self.is_batch(answer.reply.ticket) == batch {
                return Ok(Some(answer));
            }
            self.stash(answer);
        }
        Ok(None)
    }

    fn is_batch(&self, ticket: Ticket) -> bool {
        self.batches.binary_search_by_key(&ticket, |batch| batch.ticket).is_ok()
    }

    /// No answer is there: because the session is over?
    fn nothing<T>(&self) -> Result<Option<T>, CallError> {
        if !self.link().is_here() {
            return Err(CallError::Forked);
        }
        match self.drive.ended() {
            Some(ended) => Err(ended.into()),
            None => Ok(None),
        }
    }

    /// The next answer, as [`Session::try_reply`] has it, once there is one: waits for it, at most for `timeout`.
    ///
    /// # Errors
    /// [`CallError::Deadline`] when none has come; what was sent stays in flight. Else as
    /// [`Session::try_reply`].
    #[allow(clippy::type_complexity, reason = "which call, and how it went")]
    pub fn wait_reply(
        &mut self,
        timeout: Duration,
    ) -> Result<(Ticket, Result<S::Response, CallError>), CallError> {
        let mut until = Deadline::within(timeout);
        loop {
            if let Some(reply) = self.try_reply()? {
                return Ok(reply);
            }
            self.wait_by(|drive| drive.wait_for_data(&mut until))?;
        }
    }

    /// Makes both lanes as small as they ever get and gives buffers back, when large messages are over for a
    /// while: waits until the provider has done its part, at most for the time set when the session was opened.
    /// Requests in flight stay so.
    ///
    /// A lane that is much too large shrinks by itself too, after
    /// [`ClientConfig::shrink_after`](crate::ClientConfig::shrink_after), but only when the session is used.
    ///
    /// # Errors
    /// [`CallError`]; the session is usable unless the provider is gone or lied.
    pub fn trim(&mut self) -> Result<(), CallError> {
        let mut until = Deadline::within(self.timeout);
        self.waiting_for_room(&mut until, |session| session.drive.trim())?;
        while !self.drive.is_trimmed() {
            if !self.stash_next()? && !self.drive.is_trimmed() {
                self.wait_by(|drive| drive.wait_for_data(&mut until))?;
            }
        }
        self.note_size();
        self.outbox = Vec::new();
        self.batch = None;
        self.batch_inbox = Vec::new();
        if !self.drive.is_arriving() {
            self.inbox = Vec::new();
        }
        payload::release_buffers();
        Ok(())
    }

    /// Asks for [`Session::as_fd`] to become readable at the next answer. Call it before each sleep in an
    /// event loop; true means that an answer is there already: do not sleep.
    ///
    /// # Errors
    /// [`CallError::PeerLied`].
    pub fn arm(&mut self) -> Result<bool, CallError> {
        self.arm_with(false)
    }

    /// The same, and to become readable when there is room for the request that met a full lane last, with
    /// [`CallError::WouldBlock`]. Only after that.
    ///
    /// # Errors
    /// [`CallError::PeerLied`].
    pub fn arm_for_room(&mut self) -> Result<bool, CallError> {
        self.arm_with(true)
    }

    fn arm_with(&mut self, room: bool) -> Result<bool, CallError> {
        self.drive.port_mut().acknowledge();
        self.check_link()?;
        Ok(!self.stash.is_empty() || self.drive.arm(room)?)
    }

    /// The descriptor for an event loop: readable when an answer has come, or the provider is gone. `None`
    /// unless the session was opened with [`Doorbell::Eventfd`](crate::Doorbell::Eventfd) or
    /// [`Doorbell::Socket`](crate::Doorbell::Socket).
    ///
    /// On Windows the handle of an event, which a wait resets; there always is one.
    pub fn as_fd(&self) -> Option<Borrowed<'_>> {
        self.drive.port().pollable().ok().flatten()
    }

    /// Forgets a request: its answer, should it come, is dropped, and the provider is told that it need not
    /// run it any more. False when it was not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        let stashed = self.stash.iter().position(|answer| answer.reply.ticket == ticket);
        let outcome = if stashed.and_then(|at| self.stash.remove(at)).is_some() {
            Outcome::Unused
        } else if self.drive.abandon(ticket) {
            Outcome::Failed
        } else {
            return false;
        };
        self.ended(ticket, outcome);
        self.batches.retain(|batch| batch.ticket != ticket);
        true
    }

    /// Ends, from another thread, the call that waits now, or else the next one to wait.
    ///
    /// # Errors
    /// The session is rung by a descriptor and no other can be had (`EMFILE`).
    pub fn canceller(&self) -> std::io::Result<Canceller> {
        Ok(self.drive.port().canceller()?)
    }

    /// Whether the provider still is there: `false` once it died or closed the session. One system call.
    pub fn is_alive(&self) -> bool {
        self.drive.ended().is_none() && !self.drive.port().peer_gone()
    }

    /// The longest request that both ends' limits allow, in bytes.
    pub fn max_request(&self) -> u64 {
        self.drive.max_message()
    }

    /// The most items that the provider takes in one batch: a longer list goes in chunks of so many. Never 0, so that
    /// `requests.chunks(session.max_batch())` does.
    pub fn max_batch(&self) -> usize {
        self.max_batch.max(1)
    }

    /// The provider's process, as the kernel tells.
    pub fn provider_pid(&self) -> Option<u32> {
        self.provider_pid
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn link(&self) -> &Link {
        self.drive.port()
    }

    /// Gives up a request because of what ended all of them, and says what became of it.
    #[cfg(feature = "tokio")]
    pub(crate) fn fail(&mut self, ticket: Ticket, error: &CallError) -> CallError {
        let error = self.give_up_for(ticket, error);
        self.batches.retain(|batch| batch.ticket != ticket);
        self.book_given_up(ticket, &error);
        error
    }

    /// Whether the provider has taken nothing for longer than configured, as far as it was asked: ask when a call
    /// took too long.
    pub(crate) fn is_left_unread(&mut self) -> bool {
        let Some(limit) = self.unread_timeout else { return false };
        // Who lies is told so at the next call.
        matches!(self.drive.look_unread(&mut self.unread, limit), Ok(Left::TooLong))
    }

    /// Says why it is dropped, which it is next.
    pub(crate) fn leave(&mut self, reason: CloseReason) {
        self.bye = reason;
    }

    /// Remembers how large the lane has become, for sessions that this process opens later.
    #[cold]
    fn note_size(&mut self) {
        let epoch = self.drive.lane_epoch();
        self.noted = epoch.number;
        learned::note(Client::<S>::SERVICE, Role::Client, epoch.size);
    }
}

impl<S: Service> Drop for Session<S> {
    /// Says bye: the provider sees the end of the session at once, whatever it waits for.
    fn drop(&mut self) {
        let is_open = self.drive.ended().is_none();
        if is_open {
            self.drive.close(self.bye);
        }
        let reason = if is_open { self.bye as u64 } else { 0 };
        probes::session_closed(self.drive.trace().session(), reason);
    }
}

#[inline]
fn check(status: Status, bytes: Option<&[u8]>) -> Result<(), CallError> {
    if status == Status::Ok { Ok(()) } else { Err(failed(status, bytes)) }
}

/// What a status other than Ok means to a caller.
#[cold]
fn failed(status: Status, bytes: Option<&[u8]>) -> CallError {
    if status != Status::Failed {
        return CallError::Declined { status };
    }
    let bytes = bytes.unwrap_or_default();
    let bytes = bytes.get(..MAX_REASON).unwrap_or(bytes);
    // It is shown to people: no control characters of another process on their terminals.
    let reason = String::from_utf8_lossy(bytes).replace(char::is_control, " ");
    CallError::Handler { reason: reason.into() }
}
