mod backpressure;
mod batch;
mod exchange;
mod many;
mod metrics;
mod post;
mod raw;
mod replies;
mod requests;
mod snapshots;
#[cfg(feature = "tokio")]
mod tasks;

pub use backpressure::{Backpressure, WithBackpressure};
pub(crate) use batch::{decode_together, write_together};
pub use raw::RawSession;
pub use replies::BatchReplies;
use snapshots::PublicationRequests;
#[cfg(feature = "tokio")]
pub(crate) use {
    batch::Packed,
    tasks::{ArrivedBatch, Replied},
};

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Duration;

use bellwire_core::batch::BatchBuilder;
use bellwire_core::call::{self, Reply, Ticket};
use bellwire_core::counters::{CallCounters, Outcome};
use bellwire_core::drive::CallFailed;
use bellwire_core::resize::Shortage;
use bellwire_core::wire::{CloseReason, Role, Status};
use bellwire_core::{Deadline, Executed, Port, ServiceName, StallStatus};
use bellwire_probes as probes;

use crate::backoff::BackoffTimer;
use crate::board::Board;
use crate::connect::{Driver, Opened};
use crate::transport::link::Link;
use crate::transport::object::Borrowed;
use crate::transport::snapshot::{Snapshot, SnapshotMap};
use crate::{CallError, Canceller, ClientConfig, Service, learned, payload, reason};
use batch::SentBatch;

/// Which call or batch, and how it went.
pub type Answered<T> = (Ticket, Result<T, CallError>);

/// One session with a provider of `S`: calls, one at a time or many in flight.
///
/// One thread at a time uses a session. It copies a request into a lane in shared memory, without a system call
/// unless the provider sleeps and has to be rung. A request that does not fit makes the lane grow; one that fits no
/// lane, or a [`Payload`](crate::Payload) built in a memfd, is passed instead of copied.
///
/// After [`CallError::PeerGone`], [`CallError::Closed`] or [`CallError::ProtocolViolation`], a session stays closed: open
/// another one, or let a [`Client`](crate::Client) do so.
///
/// ```
/// use bellwire::{Client, Session};
/// # use std::time::Duration;
#[doc = include_str!("../doc/increment_served.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// let session: &mut Session<Increment> = client.connect()?;
/// let first = session.submit(&1)?;
/// let second = session.submit(&2)?;
/// let (answered, answer) = session.wait_reply(Duration::from_secs(5))?;
/// assert_eq!((answered, answer?), (first, 2));
/// assert!(session.abandon(second));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session<S: Service> {
    /// The tasks of a runtime drive it, too.
    pub(crate) driver: Driver,
    service: ServiceName,
    board: Board,
    /// The request being encoded.
    outbox: Vec<u8>,
    /// The batch being assembled.
    batch: Option<Box<BatchBuilder>>,
    /// Batches in flight, in the order sent.
    batches: VecDeque<SentBatch>,
    /// The answers to a batch that arrived while the inbox was in use.
    batch_inbox: Vec<u8>,
    /// The last answer; longer than it when an earlier answer was longer.
    inbox: Vec<u8>,
    /// Whether the last answer may have taken the inbox.
    is_inbox_taken: bool,
    /// Answers that arrived while another one was waited for.
    pending_replies: VecDeque<Answer>,
    provider_pid: Option<u32>,
    max_batch: usize,
    timeout: Duration,
    pub(crate) backpressure: Backpressure,
    attach_from: usize,
    stream_from: usize,
    /// Requests of at most this many bytes are sent as one record whenever there is room.
    short: usize,
    /// The epoch whose size was recorded for later sessions.
    recorded_epoch: u32,
    calls: CallCounters,
    publication_requests: PublicationRequests,
    stall_timeout: Option<Duration>,
    /// The reason to close with when the session is dropped.
    pub(crate) close: CloseReason,
    types: PhantomData<fn(&S)>,
}

/// An answer that has arrived.
#[derive(Debug)]
pub(crate) struct Answer {
    reply: Reply,
    body: Body,
}

impl Answer {
    /// Creates an answer that is Ok and whose bytes came through the lane.
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
    /// In a memfd of their own, with the generation if it is a snapshot.
    Mapped(u64, SnapshotMap),
    /// The memfd could not be mapped here.
    Lost(Shortage),
}

/// A request, ready to be sent.
#[derive(Clone, Copy)]
pub(crate) enum Outgoing<'a> {
    /// Its bytes; those of a batch are never attached.
    Bytes(call::Outgoing<'a>),
    /// Its memory, to be attached.
    Sealed { memory: &'a Snapshot, one_way: bool },
}

impl<'a> Outgoing<'a> {
    /// Makes it a one-way request.
    #[inline]
    fn one_way(self) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes.one_way()),
            Self::Sealed { memory, .. } => Self::Sealed { memory, one_way: true },
        }
    }
}

impl<'a> From<&'a [u8]> for Outgoing<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<S: Service> Session<S> {
    pub(crate) fn new(opened: Opened, config: &ClientConfig) -> Self {
        let [requests, _] = opened.driver.lane_stats();
        let mut driver = opened.driver;
        let attach_from = config.lane.attach_from.unwrap_or(usize::MAX);
        let stream_from = config.lane.stream_from.unwrap_or(usize::MAX);
        driver.end_mut().set_growth(config.backpressure.growth());
        driver.set_window(config.max_in_flight);
        Self {
            driver,
            service: opened.service,
            board: opened.board,
            outbox: Vec::new(),
            batch: None,
            batches: VecDeque::new(),
            batch_inbox: Vec::new(),
            inbox: Vec::new(),
            is_inbox_taken: false,
            pending_replies: VecDeque::new(),
            provider_pid: opened.pid,
            max_batch: usize::try_from(opened.max_batch).unwrap_or(usize::MAX),
            timeout: config.timeout,
            backpressure: config.backpressure,
            attach_from,
            stream_from,
            short: stream_from.min(attach_from.saturating_sub(1)),
            recorded_epoch: requests.epoch,
            calls: CallCounters::default(),
            publication_requests: PublicationRequests::new(BackoffTimer::of(config.backoff)),
            stall_timeout: config.stall_timeout,
            close: CloseReason::Normal,
            types: PhantomData,
        }
    }

    /// Calls and waits for the answer, at most for the session's configured time.
    ///
    /// # Errors
    /// [`CallError`]. The session stays usable unless the provider is gone or violated the protocol.
    pub fn call(&mut self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.timeout)
    }

    /// Calls and waits for the answer, at most for `timeout`.
    ///
    /// # Errors
    /// Like [`Session::call`].
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
        let ticket = match self.write::<false>(request) {
            Ok(ticket) => {
                self.publish();
                ticket
            }
            Err(unwritten) => self.submit_encoded(request, |session, bytes| {
                session.submit_unwritten(bytes, unwritten, until)
            })?,
        };
        match self.await_fast(ticket, until)? {
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

    /// Sends a request and returns immediately; [`Session::try_reply`] returns its answer. As many requests may be in
    /// flight as the lane has room for. With [`Backpressure::Wait`], it waits for room first.
    ///
    /// # Errors
    /// [`CallError::WouldBlock`] when the lane is full: take replies first. The handler will not run.
    pub fn submit(&mut self, request: &S::Request) -> Result<Ticket, CallError> {
        match self.write::<false>(request) {
            Ok(ticket) => {
                self.publish();
                Ok(ticket)
            }
            Err(unwritten) => self
                .submit_encoded(request, |session, bytes| session.submit_alone(bytes, unwritten)),
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

    /// Returns the next answer and its request's ticket, in the order in which the provider sent them; `None` when
    /// none has arrived. Never waits.
    ///
    /// # Errors
    /// [`CallError`] of the session; an error of one call is in the returned value.
    pub fn try_reply(&mut self) -> Result<Option<Answered<S::Response>>, CallError> {
        if self.pending_replies.is_empty() && self.batches.is_empty() {
            if let Some((ticket, len)) = self.driver.try_reply_fast(&mut self.inbox) {
                // Inlined `open_inbox`: its result would be moved once more, in pieces other than those it was written
                // in.
                return Ok(Some(match self.decode_inbox(len) {
                    Ok(response) => {
                        self.ended(ticket, Outcome::Answered);
                        (ticket, Ok(response))
                    }
                    Err(malformed) => (ticket, Err(self.unreadable(ticket, malformed))),
                }));
            }
        }
        self.try_reply_slow()
    }

    // Inlined into [`Session::try_reply`], it would have the fast path save registers that only this one needs.
    #[inline(never)]
    fn try_reply_slow(&mut self) -> Result<Option<Answered<S::Response>>, CallError> {
        let Some(answer) = self.next_of(false)? else { return self.nothing() };
        let ticket = answer.reply.ticket;
        Ok(Some((ticket, self.open(answer))))
    }

    /// Returns the next answer to a batch, or to a single request.
    fn next_of(&mut self, batch: bool) -> Result<Option<Answer>, CallError> {
        let fits = |answer: &Answer| self.is_batch(answer.reply.ticket) == batch;
        if let Some(at) = self.pending_replies.iter().position(fits) {
            return Ok(self.pending_replies.remove(at));
        }
        while let Some(answer) = self.next_answer()? {
            if self.is_batch(answer.reply.ticket) == batch {
                return Ok(Some(answer));
            }
            self.keep_reply(answer);
        }
        Ok(None)
    }

    fn is_batch(&self, ticket: Ticket) -> bool {
        self.batches.binary_search_by_key(&ticket, |batch| batch.ticket).is_ok()
    }

    /// Returns `None`, or the error of a session that is over.
    fn nothing<T>(&self) -> Result<Option<T>, CallError> {
        self.check_owner()?;
        self.driver.ended_waiting().map_or(Ok(None), |ended| Err(ended.into()))
    }

    /// Waits until [`Session::try_reply`] has an answer and returns it; waits at most for `timeout`.
    ///
    /// # Errors
    /// [`CallError::Deadline`] when none has arrived; requests stay in flight. Otherwise like [`Session::try_reply`].
    pub fn wait_reply(&mut self, timeout: Duration) -> Result<Answered<S::Response>, CallError> {
        self.wait_for(timeout, Self::try_reply)
    }

    /// Waits until `take` finds something.
    #[inline]
    fn wait_for<T>(
        &mut self,
        timeout: Duration,
        take: impl Fn(&mut Self) -> Result<Option<T>, CallError>,
    ) -> Result<T, CallError> {
        let mut until = Deadline::within(timeout);
        loop {
            if let Some(taken) = take(self)? {
                return Ok(taken);
            }
            self.wait_then_check_link(|driver| driver.wait_for_data(&mut until))?;
        }
    }

    /// Shrinks both lanes to their minimum and frees buffers after a period of large messages. Waits until the
    /// provider has done its part, at most for the session's configured time. Requests in flight are unaffected.
    ///
    /// An oversized lane also shrinks by itself after
    /// [`LaneConfig::shrink_after`](crate::LaneConfig::shrink_after), but only while the session is used.
    ///
    /// # Errors
    /// [`CallError`]; the session is usable unless the provider is gone or violated the protocol.
    pub fn trim(&mut self) -> Result<(), CallError> {
        let mut until = Deadline::within(self.timeout);
        self.waiting_for_room(&mut until, |session| session.driver.trim())?;
        while !self.driver.is_trimmed() {
            if !self.keep_next_reply()? && !self.driver.is_trimmed() {
                self.wait_then_check_link(|driver| driver.wait_for_data(&mut until))?;
            }
        }
        self.record_size();
        self.outbox = Vec::new();
        self.batch = None;
        self.batch_inbox = Vec::new();
        if !self.driver.is_arriving() {
            self.inbox = Vec::new();
        }
        payload::release_buffers();
        Ok(())
    }

    /// Makes the descriptor of [`Session::pollable`] readable at the next answer. Call it before each sleep in an event loop. Returns true
    /// if an answer has already arrived: do not sleep then.
    ///
    /// # Errors
    /// [`CallError::ProtocolViolation`].
    pub fn arm(&mut self) -> Result<bool, CallError> {
        self.arm_by(|driver| driver.arm(false))
    }

    /// Like [`Session::arm`], but [`Session::pollable`] also becomes readable when there is room for the request that
    /// last failed with [`CallError::WouldBlock`]. Call it only after that error.
    ///
    /// # Errors
    /// [`CallError::ProtocolViolation`].
    pub fn arm_for_room(&mut self) -> Result<bool, CallError> {
        self.arm_by(|driver| driver.arm(true))
    }

    fn arm_by(
        &mut self,
        arm: impl FnOnce(&mut Driver) -> Result<bool, CallFailed>,
    ) -> Result<bool, CallError> {
        self.driver.port_mut().acknowledge();
        self.check_link()?;
        Ok(!self.pending_replies.is_empty() || arm(&mut self.driver)?)
    }

    /// Returns the descriptor for an event loop: readable when an answer has arrived or the provider is gone. On Windows,
    /// it is the handle of an auto-reset event.
    ///
    /// # Errors
    /// `Unsupported` unless the session was opened with [`Doorbell::Eventfd`](crate::Doorbell::Eventfd) or
    /// [`Doorbell::Socket`](crate::Doorbell::Socket); `EMFILE` at the limit of open files. Neither on Windows.
    pub fn pollable(&self) -> std::io::Result<Borrowed<'_>> {
        let pollable = self.driver.port().pollable()?;
        pollable.ok_or_else(|| std::io::ErrorKind::Unsupported.into())
    }

    /// Abandons a request: its answer is dropped if it arrives, and the provider is notified that it need not run it.
    /// Returns false when the request was not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> bool {
        let kept = self.pending_replies.iter().position(|answer| answer.reply.ticket == ticket);
        let outcome = if kept.and_then(|at| self.pending_replies.remove(at)).is_some() {
            Outcome::Unused
        } else if self.driver.abandon(ticket) {
            Outcome::Failed
        } else {
            return false;
        };
        self.ended(ticket, outcome);
        self.batches.retain(|batch| batch.ticket != ticket);
        true
    }

    /// Returns a handle that cancels the current wait, or else the next one, from another thread.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use bellwire::{CallError, Client};
    #[doc = include_str!("../doc/increment_served.txt")]
    /// let mut client = Client::<Increment>::new(&run_dir);
    /// let session = client.connect()?;
    /// let canceller = session.canceller()?;
    /// std::thread::spawn(move || canceller.cancel());
    /// // Nothing was submitted: no answer comes.
    /// let waited = session.wait_reply(Duration::from_secs(60));
    /// assert!(matches!(waited, Err(CallError::Cancelled { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EMFILE` when the session's doorbell is a descriptor and no other can be opened.
    pub fn canceller(&self) -> std::io::Result<Canceller> {
        Ok(Canceller::of_session(self.link().canceller()?))
    }

    /// Returns whether another call may succeed: `false` once the provider died, closed the session or violated the protocol.
    /// One system call.
    pub fn is_open(&self) -> bool {
        self.driver.ended().is_none() && !self.driver.port().peer_gone()
    }

    /// Returns whether this end has noticed that the session is over, or that the provider closes it. No system call.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        !self.driver.end().is_open()
    }

    /// Returns the longest request that both ends' limits allow, in bytes.
    pub fn max_request(&self) -> u64 {
        self.driver.end().lanes().max_message()
    }

    /// Returns the most items that the provider accepts in one batch: send a longer list in chunks of this size.
    /// Never 0, so `requests.chunks(session.max_batch())` is safe.
    pub fn max_batch(&self) -> usize {
        self.max_batch.max(1)
    }

    /// Returns the provider's process id as reported by the kernel.
    pub fn provider_pid(&self) -> Option<u32> {
        self.provider_pid
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn link(&self) -> &Link {
        self.driver.port()
    }

    /// Returns whether the provider has taken nothing for longer than configured, counting from the first check: call
    /// it when a call took too long.
    pub(crate) fn is_peer_stalled(&mut self) -> bool {
        let Some(limit) = self.stall_timeout else { return false };
        let now = self.link().now();
        // A protocol violation is reported by the next call.
        matches!(self.driver.end_mut().check_stalled(now, limit), Ok(StallStatus::Stalled))
    }

    /// Records the lane's size for sessions that this process opens later.
    #[cold]
    fn record_size(&mut self) {
        let epoch = self.driver.end().lanes().epoch();
        self.recorded_epoch = epoch.number;
        learned::note(self.service, Role::Client, epoch.size);
    }
}

impl<S: Service> Drop for Session<S> {
    /// Closes the session: the provider sees it immediately, whatever it waits for.
    fn drop(&mut self) {
        let is_open = self.driver.ended().is_none();
        if is_open {
            self.driver.close(self.close);
        }
        let reason = if is_open { self.close as u64 } else { 0 };
        probes::session_closed(self.driver.end().observer().session(), reason);
    }
}

#[inline]
fn check(status: Status, bytes: Option<&[u8]>) -> Result<(), CallError> {
    if status == Status::Ok { Ok(()) } else { Err(failed(status, bytes)) }
}

/// Maps a status other than Ok to an error.
#[cold]
fn failed(status: Status, bytes: Option<&[u8]>) -> CallError {
    if status != Status::Failed {
        return CallError::Declined { status };
    }
    let (code, reason) = reason::read(bytes.unwrap_or_default());
    CallError::Handler { code, reason }
}

/// This process lacked something to take an answer.
fn lost(shortage: Shortage) -> CallError {
    CallError::Short { shortage, executed: Executed::Maybe }
}
