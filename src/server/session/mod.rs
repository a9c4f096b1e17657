mod answers;
mod holdoff;
mod requests;
mod snapshots;
mod stats;

use std::time::Duration;

use bellwire_core::drive::ServeDriver;
use bellwire_core::end::{End, EndReason};
use bellwire_core::lane::{Armed, Record};
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::serve::Incoming;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Doorbell, ONE_WAY, Role, Status};
use bellwire_core::{Instant, PeerMemory, Port, ServiceName, StallStatus, Word};
use bellwire_probes as probes;

use crate::server::ServerConfig;
use crate::server::handler::{Answer, Caller, Handler};
use crate::server::handshake::Admitted;
use crate::server::incidents::IncidentCause;
use crate::server::outbox::FinishedJob;
use crate::server::quotas::UserHandle;
use crate::server::tasks::Tasks;
use crate::server::workers::Workers;
use crate::trace::ServerTrace;
use crate::transport::link::{DrainOutcome, Link};
use crate::transport::memory::Charge;
use crate::transport::pass::Channel;
use crate::transport::{Os, prelude::*};
use crate::{ServerStats, learned, payload};
use answers::Attachment;
use holdoff::Holdoff;
use snapshots::LongPoll;

/// The most requests that one turn takes, so that a busy session does not starve others.
const MAX_PER_TURN: usize = 64;
/// How long a turn continues after its first messages when handlers are slow.
const LONGEST_TURN: Duration = Duration::from_micros(50);
/// Above this, the clock is read after each message.
pub(super) const SLOW: Duration = Duration::from_micros(20);
/// The most answers published together, so that the first does not wait for all.
const MAX_UNPUBLISHED: usize = 8;
/// The most one-way requests between two reads of the clock: nothing waits to be published.
const MAX_POSTS: usize = 32;

/// Bytes that a session must have exchanged before trimming it frees the shared buffers.
const WORTH_RELEASING: u64 = 64 << 10;

/// Requests refused at a time.
const MAX_REFUSED: usize = 1024;

/// The server's end of an open session.
pub(super) struct ServerSession {
    driver: ServeDriver<Link, Attachment, ServerTrace>,
    pub(super) caller: Caller,
    pub(super) service: ServiceName,
    /// A request that is arriving in parts, charged to the user's quota.
    arriving: Vec<u8>,
    arriving_charge: Charge,
    /// The charge of answers that wait for room.
    pending_charge: Charge,
    user_handle: UserHandle,
    /// The length in bytes of the last attached answer, if it exceeded the user's quota.
    over_quota: Option<u64>,
    max_batch: usize,
    attach_from: usize,
    stream_from: usize,
    /// The epoch whose size was recorded for later sessions.
    recorded_epoch: u32,
    /// Whether its jobs are held back until the client has taken answers.
    is_held: bool,
    /// The number of the last request that was queued for a worker, one-way ones aside, and how many of those are queued
    /// or run.
    last_queued: u64,
    queued_posts: u64,
    pub(super) schedule: Schedule,
    holdoff: Holdoff,
    /// The value of [`Lanes::exchanged`] when it was last read.
    exchanged: u64,
    /// The same at the last trim, less the bytes attached since.
    trimmed: u64,
    /// The client's doorbell as of the handshake; the client writes it to its page only later.
    rings_by: Doorbell,
    /// What was counted until the last flush.
    flushed_stats: ServerStats,
    /// The row of its service's counters.
    pub(super) row: usize,
    /// The index of its client.
    pub(super) client: usize,
    /// An incident to report when the counters are flushed.
    pub(super) incident: Option<IncidentCause>,
    /// Whether this process lacks a resource to follow the client; already reported.
    is_short: bool,
    long_poll: LongPoll,
    /// Reports the death of this thread to a client parked on a futex. Dropped before the page that contains it.
    _life: Option<<Os as Platform>::LifeLock>,
}

/// How the reactor learns that a session has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// It polls the session, which had no work in the last turns.
    Active { idle_turns: u32 },
    /// The client will ring.
    Armed,
    /// Reading waits for descriptors, memory or the user's quota: the reactor tries again every 50 ms.
    Paused,
}

/// Buffers shared by all sessions of a reactor.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) request: Vec<u8>,
    pub(super) answer: Answer,
}

/// Handler, workers and buffers for one turn of a session.
pub(super) struct TurnContext<'a> {
    pub(super) handler: &'a Handler,
    pub(super) workers: &'a Workers,
    pub(super) tasks: &'a Tasks,
    pub(super) scratch: &'a mut Scratch,
    pub(super) slot: usize,
    /// Whether other sessions wait: then the clock is read after each message.
    pub(super) is_contended: bool,
    /// Whether messages are slow: then the clock is read after each message, until one is not.
    pub(super) is_slow: bool,
    /// When the clock was last read.
    pub(super) read: Instant,
    /// The end of the turn, once the clock has been read for it.
    pub(super) until: Option<Instant>,
}

impl TurnContext<'_> {
    /// Returns whether requests are not handled at once but queued, or started.
    fn has_queue(&self) -> bool {
        !self.workers.is_empty() || matches!(self.handler, Handler::Task(_))
    }

    /// Returns whether the session may queue, or start, another request. Without room for the answers, no future starts.
    fn has_room(&self, is_blocked: bool) -> bool {
        match self.handler {
            Handler::Task(_) => !is_blocked && self.tasks.has_room(self.slot),
            _ => self.workers.has_room(self.slot),
        }
    }

    /// Reads the clock and returns whether a turn may continue. Without contention, a turn calls it only after several
    /// messages.
    fn has_time(&mut self) -> bool {
        let now = Os::now();
        let read = std::mem::replace(&mut self.read, now);
        // If the clock is read rarely, the last reading is too old.
        let began = if self.is_contended || self.is_slow { read } else { now };
        self.is_slow &= now.since(read) >= SLOW;
        now < *self.until.get_or_insert(began.after(LONGEST_TURN))
    }
}

impl ServerSession {
    /// `in_flight` is the most requests at once.
    pub(super) fn new(
        admitted: Admitted,
        config: &ServerConfig,
        in_flight: usize,
        row: usize,
        client: usize,
    ) -> Self {
        let Admitted { link, lanes, user_handle, caller, service, rings_by, trace, life, .. } =
            admitted;
        let recorded_epoch = lanes.epoch().number;
        let mut driver = ServeDriver::new(link, lanes, in_flight as u64, trace);
        driver.end_mut().set_shrink_after(config.lane.shrink_after);
        Self {
            driver,
            arriving_charge: Charge::none(&user_handle.quota),
            pending_charge: Charge::none(&user_handle.quota),
            user_handle,
            over_quota: None,
            recorded_epoch,
            caller,
            service,
            arriving: Vec::new(),
            max_batch: config.max_batch,
            attach_from: config.lane.attach_from.unwrap_or(usize::MAX),
            stream_from: config.lane.stream_from.unwrap_or(usize::MAX),
            is_held: false,
            last_queued: 0,
            queued_posts: 0,
            schedule: Schedule::Active { idle_turns: 0 },
            holdoff: Holdoff::default(),
            exchanged: 0,
            trimmed: 0,
            rings_by,
            flushed_stats: ServerStats::default(),
            row,
            client,
            incident: None,
            is_short: false,
            long_poll: LongPoll::default(),
            _life: life,
        }
    }

    pub(super) fn link(&self) -> &Link {
        self.driver.end().port()
    }

    #[inline]
    pub(super) fn end(&self) -> &End<Link, ServerTrace> {
        self.driver.end()
    }

    #[inline]
    pub(super) fn end_mut(&mut self) -> &mut End<Link, ServerTrace> {
        self.driver.end_mut()
    }

    /// Takes the requests that have admitted, answers them or queues them for a worker, and publishes the answers.
    /// Returns the number of messages taken; answers that were sent count as one.
    pub(super) fn turn(&mut self, context: &mut TurnContext<'_>) -> Result<usize, EndReason> {
        let (mut taken, mut posts, mut unpublished) = (0, 0, 0);
        if !self.end().is_open() {
            self.check_over()?;
            self.forget_answers();
        }
        let was_blocked = self.driver.is_blocked();
        let written = self.end().lanes().position();
        if was_blocked {
            self.flush()?;
        }
        let flushed = self.end().lanes().position() != written;
        if self.has_published() && self.answer_if_published(context.handler)? {
            unpublished += 1;
        }
        let passed = unpublished;
        if let Some(bytes) = self.over_quota {
            match self.user_handle.is_paused(bytes, Os::now()) {
                true => self.schedule = Schedule::Paused,
                false => self.over_quota = None,
            }
        }
        if self.is_paused() {
            // No more requests are taken now, but a protocol violation must be noticed.
            self.end_mut().load_tail()?;
        }
        let has_queue = context.has_queue();
        while taken < MAX_PER_TURN && !self.is_paused() && self.over_quota.is_none() {
            if has_queue && !context.has_room(self.driver.is_blocked()) {
                // As when the session is paused.
                self.end_mut().load_tail()?;
                break;
            }
            if taken > 0 && posts == taken && self.holdoff.is_streaming() && !self.has_unread() {
                break;
            }
            let incoming = match self.driver.try_next(&mut context.scratch.request) {
                Some((id, len)) => Incoming::Request { id, len, batch: false },
                // The last answer is not published yet: publish it before polling again.
                None if self.is_quiet() => break,
                None => match self.next(context.scratch)? {
                    Some(incoming) => incoming,
                    None => break,
                },
            };
            taken += 1;
            posts += usize::from(matches!(incoming, Incoming::Request { id: ONE_WAY, .. }));
            match incoming {
                Incoming::Request { id, len, batch: false } => self.request(id, len, context)?,
                Incoming::Request { id, len, batch: true } => self.batch(id, len, context)?,
                Incoming::Cancel { id } => self.cancel(id, context)?,
                Incoming::Attached { id } => self.attached(id, context)?,
                Incoming::Switch(switch) => {
                    if !self.follow(&switch)? {
                        break;
                    }
                }
                Incoming::Trim => self.trim(context.scratch)?,
                Incoming::Part => self.charge_arriving(),
                Incoming::GivenUp { id } => self.respond(id, Status::Busy, &[])?,
                Incoming::Closed(_) => {}
            }
            unpublished += 1;
            let most = if posts == taken { MAX_POSTS } else { MAX_UNPUBLISHED };
            if unpublished >= most {
                unpublished = 0;
                self.commit();
                if !context.has_time() {
                    break;
                }
            } else if (context.is_contended || context.is_slow) && !context.has_time() {
                break;
            }
        }
        self.holdoff.turned(taken, posts, self.has_unread());
        if unpublished > 0 || was_blocked {
            self.commit();
        }
        self.hold_workers(context.slot, context.workers);
        self.check_closed()?;
        Ok(taken + passed + usize::from(flushed))
    }

    /// Ends the session that the client has closed, whether its channel has ended by now or not, unless workers have
    /// one-way requests of it.
    #[inline]
    fn check_closed(&self) -> Result<(), EndReason> {
        match self.end().closed() {
            Some(reason) if !self.has_posts() => Err(EndReason::Closed(reason)),
            _ => Ok(()),
        }
    }

    /// Drops the answers to a client that has left.
    fn forget_answers(&mut self) {
        self.driver.forget_answers();
        self.pending_charge.clear();
    }

    /// Reports a violation that was found outside of a turn, for instance when the session was armed.
    fn check_over(&self) -> Result<(), EndReason> {
        self.end().fault().map_or(Ok(()), |fault| Err(fault.into()))
    }

    /// Writes a worker's answer to the lane.
    pub(super) fn answer(
        &mut self,
        done: &mut FinishedJob,
        workers: &Workers,
    ) -> Result<(), EndReason> {
        self.queued_posts -= u64::from(done.id == ONE_WAY);
        self.check_over()?;
        self.deliver(done.id, done.status, &mut done.answer)?;
        self.commit();
        self.hold_workers(done.slot, workers);
        Ok(())
    }

    /// While an answer waits for room, no other is computed: a client that does not read makes the server keep only a
    /// few.
    #[inline]
    fn hold_workers(&mut self, slot: usize, workers: &Workers) {
        let is_blocked = self.driver.is_blocked();
        if self.is_held != is_blocked && !workers.is_empty() {
            self.is_held = is_blocked;
            workers.hold(slot, is_blocked);
        }
    }

    /// Receives what is on the control socket. Returns [`DrainOutcome::More`] when messages stay there, for lack of a
    /// descriptor or because enough are pending already.
    pub(super) fn read_control(&mut self) -> Result<DrainOutcome, EndReason> {
        match self.end_mut().port_mut().take_control() {
            Ok(outcome) => Ok(outcome),
            Err(FollowError::Peer(fault)) => Err(fault.into()),
            Err(FollowError::Short(shortage)) => {
                self.note_short(shortage);
                Ok(DrainOutcome::More)
            }
        }
    }

    /// Reports, once per shortage, that this process cannot follow the client.
    #[cold]
    fn note_short(&mut self, shortage: Shortage) {
        if !std::mem::replace(&mut self.is_short, true) {
            self.incident.get_or_insert(IncidentCause::Short(shortage));
        }
    }

    /// Counts a turn that did this much work.
    #[inline]
    pub(super) fn count_turn(&mut self, work: usize) {
        if let Schedule::Active { idle_turns } = &mut self.schedule {
            *idle_turns = if work > 0 { 0 } else { idle_turns.saturating_add(1) };
        }
    }

    /// Returns whether the session waits for descriptors, memory or quota.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.schedule == Schedule::Paused
    }

    /// Lets a paused session be activated.
    pub(super) fn resume(&mut self) {
        if self.is_paused() {
            self.schedule = Schedule::Armed;
        }
    }

    /// Returns whether the client is gone and nothing more will be taken.
    #[inline]
    pub(super) fn is_departed(&self) -> bool {
        self.end().is_departed()
    }

    /// Returns whether workers have one-way requests, which they handle although the client has left: it was told that
    /// they were taken.
    pub(super) fn has_posts(&self) -> bool {
        self.queued_posts > 0
    }

    /// Returns whether requests may remain that are not taken until a worker is done.
    pub(super) fn is_at_limit(&self) -> bool {
        self.driver.is_at_limit()
    }

    /// Returns whether a turn would find no work: one load, for sessions polled in passing.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let is_held_up = self.driver.is_blocked() || self.has_published() || !self.end().is_open();
        !is_held_up && !self.has_unread() && !self.end().has_moved()
    }

    /// Returns whether messages that were seen are left.
    #[inline]
    fn has_unread(&self) -> bool {
        self.end().lanes().has_unread()
    }

    /// Returns whether to skip this poll of the client, which streams one-way requests: see [`holdoff`]. Never after it has
    /// left, when a turn without work ends the session.
    #[inline]
    pub(super) fn holds_off(&mut self) -> bool {
        self.holdoff.skips() && self.end().is_open()
    }

    /// Returns whether the client published something new, or made the room that is awaited.
    #[inline]
    pub(super) fn has_moved(&mut self) -> bool {
        self.driver.has_moved()
    }

    /// Arms the session so that the client rings. Returns true when there is work already.
    pub(super) fn arm(&mut self) -> Result<bool, EndReason> {
        self.holdoff.end();
        Ok(self.driver.arm()? == Armed::Moved)
    }

    /// Returns whether the client has taken nothing for `limit` of what was published for it.
    pub(super) fn check_stalled(
        &mut self,
        now: Instant,
        limit: Duration,
    ) -> Result<StallStatus, EndReason> {
        self.check_over()?;
        if self.only_deferrable_left()? {
            return Ok(StallStatus::CaughtUp);
        }
        Ok(self.end_mut().check_stalled(now, limit)?)
    }

    /// Returns when the client last rang, according to its timestamp.
    pub(super) fn rung_at(&self) -> Instant {
        Instant::from_nanos(self.link().peer().load(Word::RungAt, Ordering::Relaxed))
    }

    /// Returns whether no answer to the client is pending.
    pub(super) fn is_drained(&self) -> bool {
        self.driver.counts().in_flight() == 0 && !self.driver.is_blocked()
    }

    /// Refuses the requests that the client has published and that were not taken.
    pub(super) fn refuse_rest(
        &mut self,
        slot: usize,
        workers: &Workers,
        scratch: &mut Scratch,
    ) -> Result<(), EndReason> {
        self.check_over()?;
        if !self.end().is_open() {
            self.forget_answers();
        }
        self.flush()?;
        self.stop_awaiting(None, Status::Stopping)?;
        // Bounded: a stopping reactor reads the clock in between.
        for _ in 0..MAX_REFUSED {
            match self.next(scratch)? {
                Some(Incoming::Request { id, .. }) => self.respond(id, Status::Stopping, &[])?,
                Some(Incoming::GivenUp { id }) => self.respond(id, Status::Stopping, &[])?,
                Some(Incoming::Attached { id }) => {
                    self.receive(id)?;
                    self.respond(id, Status::Stopping, &[])?;
                }
                Some(Incoming::Switch(switch)) => {
                    if !self.follow(&switch)? {
                        break;
                    }
                }
                Some(Incoming::Trim) => self.trim(scratch)?,
                Some(Incoming::Cancel { .. } | Incoming::Part | Incoming::Closed(_)) => {}
                None => break,
            }
        }
        self.commit();
        self.hold_workers(slot, workers);
        self.check_closed()
    }

    /// Closes the lane: the client sees it immediately, whatever it waits for. Returns the counters since the last
    /// flush, with unanswered requests counted as lost, and the channel to close.
    pub(super) fn close(mut self, reason: CloseReason) -> (ServerStats, Channel) {
        // A client need not cancel its request for the next snapshot before it leaves: that one is not lost.
        let _ = self.stop_awaiting(None, Status::Cancelled);
        self.end_mut().close(reason);
        probes::session_closed(self.end().observer().session(), reason as u64);
        let lost = self.driver.counts().in_flight();
        let mut delta = ServerStats { lost, ..ServerStats::default() };
        self.flush_stats(&mut delta);
        (delta, self.driver.into_port().into_channel())
    }

    /// Continues in the client's next epoch. Returns false when this process lacks a resource for that now.
    fn follow(&mut self, switch: &Record) -> Result<bool, EndReason> {
        match self.driver.end_mut().follow(switch) {
            Ok(()) => {
                self.is_short = false;
                Ok(true)
            }
            Err(FollowError::Peer(fault)) => Err(fault.into()),
            Err(FollowError::Short(shortage)) => {
                self.note_short(shortage);
                self.schedule = Schedule::Paused;
                Ok(false)
            }
        }
    }

    /// Frees what large messages needed, and reports it to the client. Keeps what cannot be freed now.
    fn trim(&mut self, scratch: &mut Scratch) -> Result<(), EndReason> {
        // Other sessions use these buffers too: free them only if this session made them large.
        let exchanged = self.end().lanes().exchanged();
        let since = exchanged.wrapping_sub(std::mem::replace(&mut self.trimmed, exchanged));
        if since >= WORTH_RELEASING {
            *scratch = Scratch::default();
            payload::release_buffers();
        }
        Ok(self.driver.trim()?)
    }

    #[inline]
    fn commit(&mut self) {
        self.driver.commit();
        if self.end().lanes().epoch().number != self.recorded_epoch {
            self.record_size();
        }
    }

    /// Records the lane's size for later sessions.
    #[cold]
    fn record_size(&mut self) {
        let lanes = self.end().lanes();
        let (epoch, is_at_limit) = (lanes.epoch(), lanes.next_size().is_none());
        let is_grown = lanes.is_grown();
        self.recorded_epoch = epoch.number;
        learned::note(self.service, Role::Server, epoch.size);
        if is_grown && is_at_limit {
            self.incident.get_or_insert(IncidentCause::AtLimit { bytes: epoch.size.size() });
        }
    }
}
