mod answers;
mod counts;
mod snapshots;

use std::collections::VecDeque;
use std::time::Duration;

use bellwire_core::lane::{Armed, Lanes, PushError, Record, Wake};
use bellwire_core::resize::{self, FollowError, ResizeError, Resource, Shortage};
use bellwire_core::sample::Answering;
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Doorbell, Role, Status};
use bellwire_core::{
    Bell, Instant, Left, PeerFault, PeerMemory, Port, ServiceName, Unread, Word, probes,
};

use crate::publisher::Attendance;
use crate::server::ServerConfig;
use crate::server::greeting::Arrived;
use crate::server::handler::{Answer, Caller, Handler, Request, Room};
use crate::server::incidents::Offence;
use crate::server::quotas::Share;
use crate::server::workers::{Done, Job, Parcel, Workers};
use crate::transport::clock;
use crate::transport::life::LifeLock;
use crate::transport::link::{Heard, Link};
use crate::transport::memory::{Charge, OverQuota};
use crate::transport::pass::Channel;
use crate::{Payload, ServerStats, learned, payload};
use answers::Attachable;
use counts::Settled;
use snapshots::Awaited;

/// Requests that one turn takes at most, so that a busy session does not starve the others.
const MOST_PER_TURN: usize = 64;
/// How long a turn goes on after its first messages, when handlers are slow.
const LONGEST_TURN: Duration = Duration::from_micros(50);
/// What takes longer than this is timed message by message.
pub(super) const SLOW: Duration = Duration::from_micros(20);
/// Answers that are published together at most: the first of them does not wait for all.
const MOST_UNPUBLISHED: usize = 8;

/// Bytes that a session exchanges before a trim of it gives the shared buffers back.
const WORTH_RELEASING: u64 = 64 << 10;

/// What a request takes that waits for a worker, besides its payload, in bytes.
const JOB: usize = 256;

/// Requests that are refused at a time.
const MOST_REFUSED: usize = 1024;

/// An open session, seen from the server.
pub(super) struct Conversation {
    link: Link,
    lanes: Lanes,
    serve: ServeMachine,
    caller: Caller,
    service: ServiceName,
    /// Answers in memfds of their own that wait for room, by request.
    waiting: VecDeque<(u64, Attachable)>,
    /// A request that is arriving in parts, on the user's quota.
    arriving: Vec<u8>,
    arriving_charge: Charge,
    /// Answers that wait for room, on the same.
    owed_charge: Charge,
    share: Share,
    /// How long the last answer in a memfd was, in bytes, if that was above the user's quota.
    over_quota: Option<u64>,
    max_batch: usize,
    attach_from: usize,
    stream_from: usize,
    shrink_after: Duration,
    /// The epoch whose size was noted for later sessions.
    noted: u32,
    /// This process, or the user's quota, lacks what it takes to go on reading: it is tried again by and by.
    is_stalled: bool,
    /// The client is gone. What it published before is still taken.
    is_departed: bool,
    /// No job of it is begun until the client has taken answers.
    is_held: bool,
    /// Turns in a row that found nothing.
    pub(super) idle_turns: u32,
    /// Whether the reactor polls it; if not, it is armed and will ring.
    pub(super) is_hot: bool,
    rings: u64,
    /// What [`Lanes::exchanged`] said when it was last asked for.
    exchanged: u64,
    /// The same at the last trim, less what went out in memfds since.
    trimmed: u64,
    /// What the client said that it wants to be rung by. Its page says so later than it comes in.
    rings_by: Doorbell,
    settled: Settled,
    /// Where it is counted.
    pub(super) row: usize,
    /// Whose session it is.
    pub(super) client: usize,
    /// What is to be told of it, when its counters are taken over.
    pub(super) incident: Option<Offence>,
    /// This process lacks something to follow the client with; that was told.
    is_short: bool,
    unread: Unread,
    /// Whether the reactor looks again, by and by, if the client has taken anything.
    pub(super) is_left_unread: bool,
    awaited: Awaited,
    /// Counts the client among the service's readers.
    _attendance: Attendance,
    trace: Answering,
    /// Tells a client that is parked on a futex that this thread died. Dropped before the page it stands in.
    _life: Option<LifeLock>,
}

/// Buffers that all sessions of a reactor share.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) request: Vec<u8>,
    pub(super) answer: Answer,
}

/// Where a turn's work goes.
pub(super) struct Desk<'a> {
    pub(super) handler: &'a Handler,
    pub(super) workers: &'a Workers,
    pub(super) scratch: &'a mut Scratch,
    pub(super) slot: usize,
    /// Others wait: the time is looked at after each message.
    pub(super) is_contended: bool,
    /// Messages take long: the same, until one does not.
    pub(super) is_slow: bool,
    /// When the time was looked at last.
    pub(super) read: Instant,
    /// When the turn is over, once that is looked at.
    pub(super) until: Option<Instant>,
}

impl Desk<'_> {
    /// Whether a turn that has taken some messages may go on. The clock is read between them only when there are many.
    fn has_time(&mut self) -> bool {
        let now = clock::now();
        let read = std::mem::replace(&mut self.read, now);
        // Where it is looked at seldom, the last look was long ago.
        let began = if self.is_contended || self.is_slow { read } else { now };
        self.is_slow &= now.since(read) >= SLOW;
        now < *self.until.get_or_insert(began.after(LONGEST_TURN))
    }
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client said bye, or died.
    Gone,
    /// The client broke the protocol.
    Poisoned(PeerFault),
    /// The client took nothing for too long.
    Unread,
}

impl From<PeerFault> for Ended {
    fn from(fault: PeerFault) -> Self {
        Self::Poisoned(fault)
    }
}

impl Conversation {
    pub(super) fn new(
        arrived: Arrived,
        config: &ServerConfig,
        row: usize,
        client: usize,
        attendance: Attendance,
    ) -> Self {
        let Arrived { link, lanes, share, caller, service, rings_by, trace, life, .. } = arrived;
        Self {
            arriving_charge: Charge::none(&share.quota),
            owed_charge: Charge::none(&share.quota),
            share,
            over_quota: None,
            serve: ServeMachine::new(config.max_in_flight),
            noted: lanes.epoch().number,
            link,
            lanes,
            caller,
            service,
            waiting: VecDeque::new(),
            arriving: Vec::new(),
            max_batch: usize::try_from(config.max_batch).unwrap_or(usize::MAX),
            attach_from: config.attach_from.unwrap_or(usize::MAX),
            stream_from: config.stream_from.unwrap_or(usize::MAX),
            shrink_after: config.shrink_after,
            is_stalled: false,
            is_departed: false,
            is_held: false,
            idle_turns: 0,
            is_hot: true,
            rings: 0,
            exchanged: 0,
            trimmed: 0,
            rings_by,
            settled: Settled::default(),
            row,
            client,
            incident: None,
            is_short: false,
            unread: Unread::default(),
            is_left_unread: false,
            awaited: Awaited::default(),
            _attendance: attendance,
            trace,
            _life: life,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn service(&self) -> ServiceName {
        self.service
    }

    pub(super) fn session(&self) -> u64 {
        self.caller.session
    }

    /// The client's process, where it can be told.
    pub(super) fn pid(&self) -> Option<u32> {
        self.caller.pid
    }

    /// Whether the client rings by its socket.
    pub(super) fn is_rung_by_socket(&self) -> bool {
        self.link.doorbell() == Doorbell::Socket
    }

    /// What the client is rung by.
    pub(super) fn rings_by(&self) -> Doorbell {
        self.rings_by
    }

    /// Takes requests that have arrived, answers them or hands them to a worker, and publishes the answers.
    /// How many messages were taken; answers that got out count as one.
    pub(super) fn turn(&mut self, desk: &mut Desk<'_>) -> Result<usize, Ended> {
        let (mut taken, mut unpublished) = (0, 0);
        if self.is_departed {
            self.serve.forget_answers();
            self.waiting.clear();
            self.owed_charge.clear();
        }
        let was_blocked = self.serve.is_blocked();
        let written = self.lanes.position();
        if was_blocked {
            self.flush()?;
        }
        let flushed = self.lanes.position() != written;
        if self.has_news() && self.take_news(desk.handler)? {
            unpublished += 1;
        }
        let passed = unpublished;
        if let Some(bytes) = self.over_quota {
            self.is_stalled |= self.share.is_paused(bytes, clock::now());
        }
        if self.is_stalled {
            // It reads nothing now, and notices a lie all the same.
            self.lanes.look(self.link.peer())?;
        }
        let has_workers = !desk.workers.is_empty();
        while taken < MOST_PER_TURN && !self.is_stalled {
            if has_workers && !desk.workers.has_room(desk.slot) {
                // As when the session is stalled.
                self.lanes.look(self.link.peer())?;
                break;
            }
            let incoming = match self.next_at_once(desk.scratch) {
                Some((id, len)) => Incoming::Request { id, len, batch: false },
                // The answer to the last one is not published yet: it does not wait for a look at nothing.
                None if self.is_quiet() => break,
                None => match self.next(desk.scratch)? {
                    Some(incoming) => incoming,
                    None => break,
                },
            };
            taken += 1;
            match incoming {
                Incoming::Request { id, len, batch: false } => self.request(id, len, desk)?,
                Incoming::Request { id, len, batch: true } => self.batch(id, len, desk)?,
                Incoming::Cancel { id } => self.cancel(id, desk)?,
                Incoming::Attached { id } => self.attached(id, desk)?,
                Incoming::Switch(switch) => {
                    if !self.follow(&switch)? {
                        break;
                    }
                }
                Incoming::Trim => self.trim(desk.scratch)?,
                Incoming::Part => self.charge_arriving(),
                Incoming::GivenUp { id } => self.respond(id, Status::Busy, &[])?,
            }
            unpublished += 1;
            if unpublished == MOST_UNPUBLISHED {
                unpublished = 0;
                self.commit();
                if !desk.has_time() {
                    break;
                }
            } else if (desk.is_contended || desk.is_slow) && !desk.has_time() {
                break;
            }
        }
        if unpublished > 0 || was_blocked {
            self.commit();
        }
        self.pace(desk.slot, desk.workers);
        if self.serve.closed().is_some() {
            return Err(Ended::Gone);
        }
        Ok(taken + passed + usize::from(flushed))
    }

    /// Puts a worker's answer into the lane.
    pub(super) fn answer(&mut self, done: &mut Done, workers: &Workers) -> Result<(), Ended> {
        self.deliver(done.id, done.status, &mut done.answer)?;
        self.commit();
        self.pace(done.slot, workers);
        Ok(())
    }

    /// While an answer waits for room no other is computed: a client that does not read has few of them kept here.
    #[inline]
    fn pace(&mut self, slot: usize, workers: &Workers) {
        let is_blocked = self.serve.is_blocked();
        if self.is_held != is_blocked && !workers.is_empty() {
            self.is_held = is_blocked;
            workers.hold(slot, is_blocked);
        }
    }

    /// Takes in what is on the control socket. What stays there, for lack of a descriptor or since enough are held already, is
    /// [`Heard::More`].
    pub(super) fn read_control(&mut self) -> Result<Heard, Ended> {
        match self.link.take_control() {
            Ok(heard) => Ok(heard),
            Err(FollowError::Lied(fault)) => Err(fault.into()),
            Err(FollowError::Short(shortage)) => {
                self.note_short(shortage);
                Ok(Heard::More)
            }
        }
    }

    /// Notes, once for as long as it lasts, that this process cannot follow the client.
    #[cold]
    fn note_short(&mut self, shortage: Shortage) {
        if !std::mem::replace(&mut self.is_short, true) {
            self.incident.get_or_insert(Offence::Short(shortage));
        }
    }

    /// Whether the session waits for this process to have descriptors or memory again.
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Tries to go on.
    pub(super) fn resume(&mut self) {
        self.is_stalled = false;
    }

    /// Notes that the client is gone. True for the first time.
    pub(super) fn depart(&mut self) -> bool {
        !std::mem::replace(&mut self.is_departed, true)
    }

    /// Whether the client is gone, and a turn that found nothing was the last.
    pub(super) fn is_departed(&self) -> bool {
        self.is_departed
    }

    /// Whether requests may be left that nobody takes until a worker is done.
    pub(super) fn is_at_limit(&self) -> bool {
        self.serve.is_at_limit()
    }

    /// Makes a lane small that has been much too large for long.
    pub(super) fn tend(&mut self, now: Instant) {
        if self.lanes.is_grown()
            && resize::shrink_idle(&mut self.link, &mut self.lanes, now, self.shrink_after)
        {
            self.publish();
        }
    }

    /// Whether a turn would find nothing to do: one load, for sessions that are looked at in passing.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let is_held_up =
            self.serve.is_blocked() || self.is_stalled || self.is_departed || self.has_news();
        !is_held_up && !self.lanes.has_untaken() && !self.lanes.moved(self.link.peer())
    }

    /// Whether the client published something that was not seen yet, or made the room that is waited for.
    #[inline]
    pub(super) fn has_moved(&mut self) -> bool {
        (self.lanes.moved(self.link.peer()) && !self.is_stalled)
            || (self.serve.is_blocked() && self.lanes.has_room(self.link.peer()).unwrap_or(true))
    }

    /// Readies the lane for the next answer: for between two looks.
    #[inline]
    pub(super) fn claim(&mut self) {
        self.lanes.claim(self.link.own());
    }

    /// Asks the client to ring. True when there is something to do already.
    pub(super) fn arm(&mut self) -> Result<bool, Ended> {
        let blocked = self.serve.is_blocked();
        let (armed, wake) = self.lanes.arm(self.link.own(), self.link.peer(), blocked)?;
        self.ring(wake);
        Ok(armed == Armed::Moved)
    }

    /// The client need not ring any more: this end looks by itself.
    pub(super) fn disarm(&self) {
        self.lanes.disarm(self.link.own());
    }

    /// Whether the client has taken nothing for `limit` of what was published for it.
    pub(super) fn look_unread(&mut self, now: Instant, limit: Duration) -> Result<Left, Ended> {
        if self.may_leave_the_rest()? {
            return Ok(Left::Nothing);
        }
        Ok(self.unread.look(&mut self.lanes, self.link.peer(), now, limit)?)
    }

    /// When the client last rang, as it says.
    pub(super) fn rung_at(&self) -> Instant {
        Instant::from_nanos(self.link.peer().load(Word::RungAt, Ordering::Relaxed))
    }

    /// How often the client was rung.
    #[inline]
    pub(super) fn rings(&self) -> u64 {
        self.rings
    }

    /// Whether nothing is owed to the client any more.
    pub(super) fn is_drained(&self) -> bool {
        self.serve.counts().in_flight() == 0 && !self.serve.is_blocked()
    }

    /// Refuses what the client has published and nobody has taken.
    pub(super) fn refuse_rest(
        &mut self,
        slot: usize,
        workers: &Workers,
        scratch: &mut Scratch,
    ) -> Result<(), Ended> {
        self.flush()?;
        self.stop_awaiting(None, Status::Stopping)?;
        // Bounded: who stops looks at the time in between.
        for _ in 0..MOST_REFUSED {
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
                Some(Incoming::Cancel { .. } | Incoming::Part) => {}
                None => break,
            }
        }
        self.commit();
        self.pace(slot, workers);
        Ok(())
    }

    /// Says bye: the client sees it at once, whatever it waits for.
    /// Gives back what was counted since the last time, with as many requests lost as nobody will answer, and the channel
    /// to be closed.
    pub(super) fn close(mut self, reason: CloseReason) -> (ServerStats, Option<Channel>) {
        // Whoever goes need not take back first what it awaited.
        let _ = self.stop_awaiting(None, Status::Cancelled);
        let wake = self.lanes.close(self.link.own(), self.link.peer(), reason);
        self.ring(wake);
        probes::session_closed(self.trace.session(), reason as u64);
        let lost = self.serve.counts().in_flight();
        let mut news = ServerStats { lost, ..ServerStats::default() };
        self.settle(&mut news);
        (news, self.link.into_channel())
    }

    /// The next request, if it is a plain one.
    #[inline]
    fn next_at_once(&mut self, scratch: &mut Scratch) -> Option<(u64, usize)> {
        let (own, peer) = (self.link.own(), self.link.peer());
        let request = self.serve.next_at_once(&mut self.lanes, own, peer, &mut scratch.request);
        if let Some((id, len)) = request {
            self.trace.took(peer, id, len, || self.lanes.received().bytes, || self.link.now());
        }
        request
    }

    /// What the client sent next. A request that arrives in parts takes the shared buffer along until it is whole:
    /// other sessions have their turns in between.
    #[inline]
    fn next(&mut self, scratch: &mut Scratch) -> Result<Option<Incoming>, Ended> {
        let was_arriving = self.serve.is_arriving();
        let buffer = if was_arriving { &mut self.arriving } else { &mut scratch.request };
        let (own, peer) = (self.link.own(), self.link.peer());
        let incoming = self.serve.next(&mut self.lanes, own, peer, buffer)?;
        if let Some((id, len)) = incoming.as_ref().and_then(Incoming::request) {
            let end = || self.lanes.received().bytes;
            self.trace.took(peer, id, len, end, || self.link.now());
        }
        if was_arriving != self.serve.is_arriving() {
            std::mem::swap(&mut self.arriving, &mut scratch.request);
            if was_arriving {
                self.arriving = Vec::new();
                self.arriving_charge.clear();
            }
        }
        Ok(incoming)
    }

    /// Counts what has arrived of a request in parts. Above the user's quota the rest of it is passed over.
    fn charge_arriving(&mut self) {
        let bytes = if self.serve.is_arriving() { self.arriving.len() as u64 } else { 0 };
        if let Err(over) = self.arriving_charge.resize(bytes) {
            self.note_over_quota(&over);
            self.serve.give_up_arriving();
            self.arriving = Vec::new();
            self.arriving_charge.clear();
        }
    }

    fn request(&mut self, id: u64, len: usize, desk: &mut Desk<'_>) -> Result<(), Ended> {
        let handler = match desk.handler {
            Handler::Snapshot(shelf) => return self.snapshot(id, len, desk, &shelf.clone()),
            Handler::Call(handler) => handler,
        };
        let Scratch { request, answer } = desk.scratch;
        if desk.workers.is_empty() {
            answer.clear();
            let status = handler.call(&self.caller, Request::Buffer(request, len), answer);
            if len >= payload::WORTH_KEEPING {
                payload::refill(request);
            }
            return self.deliver(id, status, answer);
        }
        let request = take_away(request, len);
        self.submit(id, Parcel::Bytes(request), len, desk)
    }

    /// Many requests in one message.
    fn batch(&mut self, id: u64, len: usize, desk: &mut Desk<'_>) -> Result<(), Ended> {
        let Handler::Call(handler) = desk.handler else {
            return self.respond(id, Status::Malformed, b"a snapshot is asked for alone");
        };
        let bytes = usize::try_from(self.lanes.max_message()).unwrap_or(usize::MAX);
        let room = Room { bytes, items: self.max_batch };
        let Scratch { request, answer } = desk.scratch;
        if desk.workers.is_empty() {
            answer.clear();
            let batch = request.get(..len).unwrap_or_default();
            let status = handler.call_batch(&self.caller, batch, room, answer);
            return self.deliver(id, status, answer);
        }
        let batch = take_away(request, len);
        self.submit(id, Parcel::Batch(batch, room), len, desk)
    }

    /// A request that came in a memfd of its own.
    fn attached(&mut self, id: u64, desk: &mut Desk<'_>) -> Result<(), Ended> {
        let Some(request) = self.receive(id)? else {
            // It reached no handler, and may be sent again.
            return self.respond(id, Status::Busy, &[]);
        };
        let handler = match desk.handler {
            Handler::Snapshot(shelf) => return self.pass_newest(id, &shelf.clone()),
            Handler::Call(handler) => handler,
        };
        if desk.workers.is_empty() {
            let answer = &mut desk.scratch.answer;
            answer.clear();
            let status = handler.call(&self.caller, Request::Mapped(request), answer);
            let delivered = self.deliver(id, status, answer);
            answer.clear();
            return delivered;
        }
        let len = request.len();
        self.submit(id, Parcel::Mapped(request), len, desk)
    }

    /// Queues a request of `len` bytes for a worker.
    fn submit(
        &mut self,
        id: u64,
        request: Parcel,
        len: usize,
        desk: &Desk<'_>,
    ) -> Result<(), Ended> {
        let Handler::Call(handler) = desk.handler else { return Ok(()) };
        let charge = match self.share.quota.charge((len + JOB) as u64) {
            Ok(charge) => charge,
            Err(over) => {
                self.note_over_quota(&over);
                return self.respond(id, Status::Busy, &[]);
            }
        };
        let (slot, caller, handler) = (desk.slot, self.caller.unwatched(), handler.clone());
        let client = self.client;
        desk.workers.submit(Job { client, slot, id, caller, handler, request, charge });
        Ok(())
    }

    #[cold]
    fn note_over_quota(&mut self, over: &OverQuota) {
        let shortage = Shortage { resource: Resource::Quota, bytes: over.bytes, code: 0 };
        self.incident.get_or_insert(Offence::Short(shortage));
    }

    /// The memory of a request. `None` when it cannot be mapped here now.
    fn receive(&mut self, id: u64) -> Result<Option<Payload>, Ended> {
        match self.link.take_attachment(id) {
            Ok((_, map)) => Ok(Some(Payload::mapped(map))),
            Err(FollowError::Lied(fault)) => Err(fault.into()),
            Err(FollowError::Short(shortage)) => {
                self.incident.get_or_insert(Offence::Short(shortage));
                Ok(None)
            }
        }
    }

    /// Goes on in the client's next epoch. False when this process lacks what it takes, for now.
    fn follow(&mut self, switch: &Record) -> Result<bool, Ended> {
        match resize::follow(&mut self.link, &mut self.lanes, switch) {
            Ok(()) => {
                self.is_short = false;
                let peer = self.lanes.received();
                probes::lane_resized(self.trace.session(), 2, peer.epoch, peer.size);
                Ok(true)
            }
            Err(FollowError::Lied(fault)) => Err(fault.into()),
            Err(FollowError::Short(shortage)) => {
                self.note_short(shortage);
                self.is_stalled = true;
                Ok(false)
            }
        }
    }

    /// Gives back what large messages needed, and says so. What cannot be given back now stays.
    fn trim(&mut self, scratch: &mut Scratch) -> Result<(), Ended> {
        let shrunk = resize::shrink(&mut self.link, &mut self.lanes);
        if let Err(ResizeError::Push(PushError::Peer(fault))) = shrunk {
            return Err(fault.into());
        }
        // Others use these buffers too: they go when this session has made them large.
        let exchanged = self.lanes.exchanged();
        let since = exchanged.wrapping_sub(std::mem::replace(&mut self.trimmed, exchanged));
        if since >= WORTH_RELEASING {
            *scratch = Scratch::default();
            payload::release_buffers();
        }
        let (own, peer) = (self.link.own(), self.link.peer());
        Ok(self.serve.trimmed(&mut self.lanes, own, peer)?)
    }

    fn cancel(&mut self, id: u64, desk: &Desk<'_>) -> Result<(), Ended> {
        if !self.stop_awaiting(Some(id), Status::Cancelled)? && desk.workers.withdraw(desk.slot, id)
        {
            self.respond(id, Status::Cancelled, &[])?;
        }
        Ok(())
    }

    #[inline]
    fn commit(&mut self) {
        self.publish();
        if self.lanes.take_chores()
            && resize::chores(&mut self.link, &mut self.lanes, self.shrink_after)
        {
            self.publish();
        }
        if self.lanes.epoch().number != self.noted {
            self.note_size();
        }
    }

    #[inline]
    fn publish(&mut self) {
        self.trace.publish(self.link.own(), || self.link.now());
        let wake = self.lanes.commit(self.link.own(), self.link.peer());
        self.serve.counts().tell(self.link.own());
        self.ring(wake);
    }

    /// Remembers how large the lane has become, for sessions that begin later.
    #[cold]
    fn note_size(&mut self) {
        let epoch = self.lanes.epoch();
        self.noted = epoch.number;
        probes::lane_resized(self.trace.session(), 1, epoch.number, epoch.size.size());
        learned::note(self.service, Role::Server, epoch.size);
        if self.lanes.is_grown() && self.lanes.next_size().is_none() {
            self.incident.get_or_insert(Offence::AtLimit { bytes: epoch.size.size() });
        }
    }

    fn ring(&mut self, wake: Wake) {
        if wake.data {
            self.rings += 1;
            probes::ring(self.trace.session(), Bell::Data.number());
            self.link.ring(Bell::Data);
        }
        if wake.space {
            self.rings += 1;
            probes::ring(self.trace.session(), Bell::Space.number());
            self.link.ring(Bell::Space);
        }
    }
}

/// The first bytes of a buffer that all sessions share, for a worker.
fn take_away(buffer: &mut Vec<u8>, len: usize) -> Vec<u8> {
    if len < payload::WORTH_KEEPING {
        return buffer.get(..len).unwrap_or_default().to_vec();
    }
    let mut taken = std::mem::take(buffer);
    taken.truncate(len);
    taken
}
