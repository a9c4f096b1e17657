//! One end of a session: the core's [`Port`] over memfds, a socket and a doorbell.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bellwire_core::sync::{Ordering, fence};
use bellwire_core::wire::{Doorbell, MAX_CONTROL, Message, PAGE_SIZE, SessionState};
use bellwire_core::{Bell, Instant, OwnMemory, Park, PeerMemory, Port, Woken, Word};
use rustix::event::PollFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::doorbell::{CancelWord, Eventfd, Woke, futex_wait_any};
use crate::life::{LIFE_OFFSET, LifeState, life_state};
use crate::poll::{Epoll, Interest, Trigger};
use crate::region::{OwnRegion, PeerRegion};
use crate::{clock, pass, poll};

/// How long a futex wait may overlook the peer's death when the peer has no life word.
const DEATH_SLICE: Duration = Duration::from_millis(100);
/// The same when it has one. The peer writes its life word and can fake it, so it is not relied on alone.
const ARMED_SLICE: Duration = Duration::from_secs(60);
/// How long a wait on the socket overlooks new rings behind a control message that nobody takes.
const BLOCKED_SLICE: Duration = Duration::from_millis(1);
/// How many rings are taken off the socket at once: a peer that floods it holds nobody up.
const MOST_RINGS: usize = 1024;
/// The length of an encoded [`Message::Ring`], in bytes.
const RING_LEN: usize = 8;

/// The memory that this end writes.
#[derive(Debug)]
pub struct OwnEnd {
    /// Its control words.
    pub page: OwnRegion,
    /// Its records.
    pub lane: OwnRegion,
}

/// The memory that the peer writes.
#[derive(Debug)]
pub struct PeerEnd {
    /// Its control words.
    pub page: PeerRegion,
    /// Its records.
    pub lane: PeerRegion,
}

/// What a [`Link`] is made of, when the handshake is done.
#[derive(Debug)]
pub struct Parts {
    /// This end's memory.
    pub own: OwnEnd,
    /// The peer's memory.
    pub peer: PeerEnd,
    /// The control socket, non-blocking.
    pub socket: OwnedFd,
    /// The doorbell that this end wants to be rung by.
    pub doorbell: Doorbell,
    /// The eventfd that the peer rings, for [`Doorbell::Eventfd`].
    pub own_eventfd: Option<Eventfd>,
    /// The eventfd that the peer wants to be rung by. Only ever that of a trusted peer: see [`Eventfd`].
    pub peer_eventfd: Option<Eventfd>,
    /// The peer's process.
    pub pidfd: Option<OwnedFd>,
}

/// Why no [`Link`] was made of its parts. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A page is too small for its words.
    #[error("a page has 4096 bytes, not {size}")]
    PageSize {
        /// The size given.
        size: usize,
    },
    /// The doorbell is an eventfd and there is none.
    #[error("this end wants to be rung by an eventfd, and none was made: create one first")]
    NoEventfd,
    /// The descriptor that ends a wait on descriptors could not be made. This system is at fault.
    #[error("cannot make a descriptor to cancel with: {source}; raise RLIMIT_NOFILE")]
    Cancel {
        /// What the kernel said.
        source: Errno,
    },
}

/// One end of a session.
///
/// A futex session holds two descriptors, the socket and the peer's pidfd, and the peer's eventfd if it has one. One thread at a time uses it.
#[derive(Debug)]
pub struct Link {
    own: OwnEnd,
    peer: PeerEnd,
    socket: OwnedFd,
    doorbell: Doorbell,
    own_eventfd: Option<Eventfd>,
    peer_eventfd: Option<Eventfd>,
    pidfd: Option<OwnedFd>,
    cancel: Arc<Cancel>,
    // What an event loop polls, once it has asked for it.
    gathered: OnceLock<Epoll>,
}

/// Wakes a thread that is parked in a [`Link`], from any other thread. Clones share the link.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Cancel>);

#[derive(Default)]
struct Cancel {
    word: CancelWord,
    // For waits on descriptors, which no futex ends; made when somebody asks for a canceller.
    eventfd: OnceLock<Eventfd>,
}

impl OwnMemory for OwnEnd {
    #[inline]
    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.page.store_u64(word.offset(), value, order);
    }

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.lane.write(offset, bytes);
    }

    #[inline]
    fn will_write(&self, offset: usize) {
        self.lane.will_write(offset);
    }
}

impl PeerMemory for PeerEnd {
    #[inline]
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.page.load_u64(word.offset(), order)
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        self.lane.read(offset, into);
    }

    #[inline]
    fn will_read(&self, offset: usize) {
        self.lane.will_read(offset);
    }
}

impl Link {
    /// Puts the parts together, and says in the own page which doorbell this end wants.
    ///
    /// # Errors
    /// [`LinkError`] when the parts do not belong together.
    pub fn new(parts: Parts) -> Result<Self, LinkError> {
        for size in [parts.own.page.size(), parts.peer.page.size()] {
            if size < PAGE_SIZE {
                return Err(LinkError::PageSize { size });
            }
        }
        let mut link = Self {
            own: parts.own,
            peer: parts.peer,
            socket: parts.socket,
            doorbell: parts.doorbell,
            own_eventfd: parts.own_eventfd,
            peer_eventfd: parts.peer_eventfd,
            pidfd: parts.pidfd,
            cancel: Arc::default(),
            gathered: OnceLock::new(),
        };
        link.choose_doorbell(parts.doorbell)?;
        Ok(link)
    }

    /// Changes the doorbell that this end wants to be rung by. The peer may ring by the old one for a
    /// moment: look at its words again after this and before sleeping, which parking does by itself.
    ///
    /// # Errors
    /// [`LinkError::NoEventfd`] when the link has none, [`LinkError::Cancel`] at the limit of open files.
    pub fn choose_doorbell(&mut self, doorbell: Doorbell) -> Result<(), LinkError> {
        if doorbell == Doorbell::Eventfd && self.own_eventfd.is_none() {
            return Err(LinkError::NoEventfd);
        }
        // Whoever holds a canceller already can end this kind of wait too.
        if doorbell != Doorbell::Futex && Arc::strong_count(&self.cancel) > 1 {
            self.cancel.make_eventfd().map_err(|source| LinkError::Cancel { source })?;
        }
        self.doorbell = doorbell;
        self.own.store(Word::Doorbell, u64::from(doorbell as u32), Ordering::Release);
        // Pairs with the fence in a publisher between its `tail` and its look at what this end wants.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// The doorbell that this end wants to be rung by.
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell
    }

    /// The control socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The peer's process.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(OwnedFd::as_fd)
    }

    /// The eventfd that the peer rings, for an event loop that gathers those of many links itself.
    pub fn eventfd(&self) -> Option<&Eventfd> {
        self.own_eventfd.as_ref()
    }

    /// A handle that wakes the thread that is parked here.
    ///
    /// # Errors
    /// A link that is rung by a descriptor needs one more to be cancelled: `EMFILE` at the limit.
    pub fn canceller(&self) -> Result<Canceller, Errno> {
        if self.doorbell != Doorbell::Futex {
            self.cancel.make_eventfd()?;
        }
        Ok(Canceller(Arc::clone(&self.cancel)))
    }

    /// Resets the cancellation, and says whether there was one.
    pub fn take_cancel(&self) -> bool {
        if let Some(eventfd) = self.cancel.eventfd.get() {
            eventfd.drain();
        }
        self.cancel.word.take()
    }

    /// Whether the peer's process ended, or it closed the session or its socket. Does not block. What it
    /// published before is still there to be read.
    pub fn peer_gone(&self) -> bool {
        self.peer_said_closed() || self.life() == LifeState::Died || self.process_gone()
    }

    /// What the kernel has noted of the peer's serving thread: one load, no system call.
    #[inline]
    pub fn life(&self) -> LifeState {
        self.peer.page.word(LIFE_OFFSET).map_or(LifeState::Unarmed, |word| life_state(word.load()))
    }

    /// Sleeps until the low half of the word at `offset` of `board`, which the same peer writes, moves on from
    /// `seen`, the peer dies, or the wait is over. One `FUTEX_WAKE` of the peer wakes every watcher.
    pub fn watch(
        &self,
        board: &PeerRegion,
        offset: usize,
        seen: u64,
        until: Option<Instant>,
    ) -> Woken {
        let mut looks = 0_u32;
        loop {
            let Some(word) = board.word(offset) else { return Woken::PeerGone };
            if self.cancel.word.is_set() {
                return Woken::Cancelled;
            }
            if word.load() != low(seen) {
                return Woken::Rung;
            }
            let life = self.peer.page.word(LIFE_OFFSET).map(|word| (word, word.load()));
            let life = life.filter(|(_, seen)| life_state(*seen) == LifeState::Alive);
            if (life.is_none() || looks > 0) && self.peer_gone() {
                return Woken::PeerGone;
            }
            looks += 1;
            let slice = clock::now().after(if life.is_some() { ARMED_SLICE } else { DEATH_SLICE });
            let sliced = until.is_none_or(|until| slice < until);
            let wake = if sliced { Some(slice) } else { until };
            let cancel = (self.cancel.word.word(), 0);
            let woke = match life {
                Some(life) => futex_wait_any(&[(word, low(seen)), cancel, life], wake),
                None => futex_wait_any(&[(word, low(seen)), cancel], wake),
            };
            if woke == Woke::Deadline && !sliced {
                return Woken::Deadline;
            }
        }
    }

    /// Unmaps everything and gives the control socket back, for who closes it elsewhere: a peer may have queued
    /// descriptors on it that block when they are closed.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// A descriptor that an event loop can poll for reading: ready when there may be data or space, or the
    /// peer is gone; call [`Link::acknowledge`] then, before looking. `None` when the doorbell is a futex.
    ///
    /// # Errors
    /// For an eventfd link the first call makes an epoll instance: `EMFILE` at the limit.
    pub fn pollable(&self) -> Result<Option<BorrowedFd<'_>>, Errno> {
        match (self.doorbell, &self.own_eventfd) {
            (Doorbell::Eventfd, Some(eventfd)) => {
                if let Some(gathered) = self.gathered.get() {
                    return Ok(Some(gathered.as_fd()));
                }
                let gathered = self.gather(eventfd)?;
                Ok(Some(self.gathered.get_or_init(|| gathered).as_fd()))
            }
            (Doorbell::Socket, _) => Ok(Some(self.socket.as_fd())),
            _ => Ok(None),
        }
    }

    /// Takes note of the rings so far, so that [`Link::pollable`] is ready again only for new ones.
    pub fn acknowledge(&self) {
        match self.doorbell {
            Doorbell::Futex => {}
            Doorbell::Eventfd => {
                if let Some(eventfd) = &self.own_eventfd {
                    eventfd.drain();
                }
            }
            Doorbell::Socket => {
                self.take_rings();
            }
        }
    }

    /// One descriptor for all that may happen. A peer that reads the eventfd, which it shares, takes only
    /// its own ring away.
    fn gather(&self, eventfd: &Eventfd) -> Result<Epoll, Errno> {
        let gathered = Epoll::create()?;
        gathered.add(eventfd, 0, Interest::readable(Trigger::Level))?;
        // Of the socket only the hang-up: control messages are read when a record says so.
        let quiet = Interest { readable: false, writable: false, trigger: Trigger::Level };
        gathered.add(&self.socket, 1, quiet)?;
        if let Some(pidfd) = &self.pidfd {
            gathered.add(pidfd, 2, Interest::readable(Trigger::Level))?;
        }
        Ok(gathered)
    }

    fn peer_said_closed(&self) -> bool {
        let state = SessionState::parse(self.peer.load(Word::State, Ordering::Acquire));
        matches!(state, Some((SessionState::Closed, _)))
    }

    fn process_gone(&self) -> bool {
        let mut polls = [poll::hung_up(self.socket.as_fd()), self.poll_pidfd()];
        poll::wait(&mut polls, Some(clock::now())).is_ok_and(poll::Ready::any)
    }

    /// The pidfd to be polled; where there is none, the socket once more.
    fn poll_pidfd(&self) -> PollFd<'_> {
        let pidfd = self.pidfd.as_ref().map(|pidfd| poll::readable(pidfd.as_fd()));
        pidfd.unwrap_or_else(|| poll::hung_up(self.socket.as_fd()))
    }

    /// Whether a word that `park` waits for has moved on. Acquire: what it announces is then visible.
    fn has_moved(&self, park: &Park) -> bool {
        let moved = |word, seen| self.peer.load(word, Ordering::Acquire) != seen;
        moved(Word::Tail, park.tail) || park.head.is_some_and(|seen| moved(Word::Head, seen))
    }

    /// Why there is no need to sleep, if so. Data before death: what was published is read first.
    fn reason(&self, park: &Park) -> Option<Woken> {
        if self.cancel.word.is_set() {
            Some(Woken::Cancelled)
        } else if self.has_moved(park) {
            Some(Woken::Rung)
        } else {
            None
        }
    }

    fn park_on_futex(&self, park: &Park) -> Woken {
        let mut looks = 0_u32;
        loop {
            if let Some(reason) = self.reason(park) {
                return reason;
            }
            let state = self.life();
            // An honest peer that is alive changes its life word only by dying or leaving.
            let armed = state == LifeState::Alive;
            if (!armed || looks > 0) && self.peer_gone() {
                return self.last_look(park);
            }
            looks += 1;
            let slice = clock::now().after(if armed { ARMED_SLICE } else { DEATH_SLICE });
            let sliced = park.until.is_none_or(|until| slice < until);
            let until = if sliced { Some(slice) } else { park.until };
            match self.wait_on_words(park, armed, until) {
                Woke::Deadline if sliced => {}
                Woke::Deadline => return self.reason(park).unwrap_or(Woken::Deadline),
                Woke::LookAgain if self.life() == LifeState::Died => return self.last_look(park),
                Woke::LookAgain if !armed || self.life() == LifeState::Alive => {
                    return self.reason(park).unwrap_or_else(|| spurious(park));
                }
                // It left its life word: go on by time slices.
                Woke::LookAgain => {}
            }
        }
    }

    fn wait_on_words(&self, park: &Park, armed: bool, until: Option<Instant>) -> Woke {
        let page = &self.peer.page;
        let life =
            if armed { page.word(LIFE_OFFSET).map(|word| (word, word.load())) } else { None };
        if life.is_some_and(|(_, seen)| life_state(seen) != LifeState::Alive) {
            return Woke::LookAgain;
        }
        let expecting = |word: Word, seen| page.word(word.offset()).map(|word| (word, low(seen)));
        let tail = expecting(Word::Tail, park.tail);
        let head = park.head.and_then(|seen| expecting(Word::Head, seen));
        let mut words = [(self.cancel.word.word(), 0); 4];
        let mut used = 1;
        for (slot, word) in words.iter_mut().skip(1).zip([tail, head, life].into_iter().flatten()) {
            *slot = word;
            used += 1;
        }
        futex_wait_any(words.get(..used).unwrap_or(&words), until)
    }

    fn park_on_eventfd(&self, eventfd: &Eventfd, park: &Park) -> Woken {
        self.park_on_fds(
            park,
            [poll::readable(eventfd.as_fd()), poll::hung_up(self.socket())],
            || {
                eventfd.drain();
            },
        )
    }

    fn park_on_socket(&self, park: &Park) -> Woken {
        // A control message that nobody has taken yet keeps the socket readable: waiting for that would
        // spin. Its reader is told of it by a record, so look at the words in short slices.
        if !self.take_rings() && self.reason(park).is_none() {
            let slice = clock::now().after(BLOCKED_SLICE);
            let (until, is_slice) = match park.until {
                Some(until) if until <= slice => (until, false),
                _ => (slice, true),
            };
            let quiet = Park { until: Some(until), ..*park };
            let socket = || poll::hung_up(self.socket.as_fd());
            let woken = self.park_on_fds(&quiet, [socket(), socket()], || {});
            return if is_slice && woken == Woken::Deadline { Woken::Rung } else { woken };
        }
        let socket = self.socket.as_fd();
        self.park_on_fds(park, [poll::readable(socket), poll::hung_up(socket)], || {
            self.take_rings();
        })
    }

    /// Sleeps until the bell, the hang-up, the end of the process, or a cancellation.
    fn park_on_fds(&self, park: &Park, [bell, socket]: [PollFd<'_>; 2], rung: impl Fn()) -> Woken {
        if let Some(reason) = self.reason(park) {
            return reason;
        }
        // That it hung up or ended is told by the wait itself.
        if self.peer_said_closed() {
            return self.last_look(park);
        }
        let cancel = match self.cancel.eventfd.get() {
            Some(eventfd) => poll::readable(eventfd.as_fd()),
            None => poll::hung_up(self.socket.as_fd()),
        };
        let ready = poll::wait(&mut [bell, socket, self.poll_pidfd(), cancel], park.until);
        let ready = ready.unwrap_or_default();
        if ready.is(0) {
            rung();
        }
        if let Some(reason) = self.reason(park) {
            return reason;
        }
        if self.peer_gone() {
            return self.last_look(park);
        }
        if ready.any() { spurious(park) } else { Woken::Deadline }
    }

    /// The peer is gone. Whatever it published before it went is visible by now: look once more.
    fn last_look(&self, park: &Park) -> Woken {
        self.reason(park).unwrap_or(Woken::PeerGone)
    }

    /// Receives the rings at the front of the control socket and leaves other messages there. Whether
    /// no other message is left in front.
    fn take_rings(&self) -> bool {
        let mut ring = [0; MAX_CONTROL];
        let len = Message::Ring.encode(0, &mut ring);
        let ring = ring.get(..len).unwrap_or(&ring);
        for _ in 0..MOST_RINGS {
            let mut peeked = [0; RING_LEN + 1];
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            match rustix::net::recv(&self.socket, &mut peeked, flags) {
                // Received with room for descriptors: a peer that attaches some to a ring gets them reaped.
                Ok((found, _)) if peeked.get(..found) == Some(ring) => {
                    let _ = pass::receive(self.socket.as_fd(), &mut peeked, 0);
                }
                // The end of the stream is no message.
                Ok((found, _)) => return found == 0,
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(_) => return true,
            }
        }
        true
    }

    fn ring_socket(&self) {
        let mut message = [0; MAX_CONTROL];
        let len = Message::Ring.encode(0, &mut message);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A full socket was rung already; a closed one has nobody to ring.
        let _ = rustix::net::send(&self.socket, message.get(..len).unwrap_or(&message), flags);
    }

    /// Counts in the own page, which nobody else writes.
    fn count(&self, word: Word) {
        let before = self.own.page.load_u64(word.offset(), Ordering::Relaxed);
        self.own.store(word, before.wrapping_add(1), Ordering::Relaxed);
    }

    fn ring_futex(&self, bell: Bell) {
        let word = match bell {
            Bell::Data => Word::Tail,
            Bell::Space => Word::Head,
        };
        if let Some(word) = self.own.page.word(word.offset()) {
            word.wake_one();
        }
    }
}

impl Port for Link {
    type Own = OwnEnd;
    type Peer = PeerEnd;

    #[inline]
    fn own(&self) -> &OwnEnd {
        &self.own
    }

    #[inline]
    fn peer(&self) -> &PeerEnd {
        &self.peer
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn ring(&self, bell: Bell) {
        self.own.store(Word::RungAt, clock::now().as_nanos(), Ordering::Relaxed);
        self.count(Word::Rings);
        let wanted = u32::try_from(self.peer.load(Word::Doorbell, Ordering::Acquire));
        match (wanted.ok().and_then(Doorbell::parse), &self.peer_eventfd) {
            (Some(Doorbell::Eventfd), Some(eventfd)) => eventfd.ring(),
            (Some(Doorbell::Socket), _) => self.ring_socket(),
            // Also what a peer gets that asks for nonsense, or for an eventfd that it never sent.
            _ => self.ring_futex(bell),
        }
    }

    fn park(&mut self, park: Park) -> Woken {
        match (self.doorbell, &self.own_eventfd) {
            (Doorbell::Eventfd, Some(eventfd)) => self.park_on_eventfd(eventfd, &park),
            (Doorbell::Socket, _) => self.park_on_socket(&park),
            _ => self.park_on_futex(&park),
        }
    }
}

impl Cancel {
    fn make_eventfd(&self) -> Result<(), Errno> {
        if self.eventfd.get().is_none() {
            // Somebody else's, made meanwhile, does as well.
            let _ = self.eventfd.set(Eventfd::create()?);
        }
        Ok(())
    }
}

impl Canceller {
    /// Ends the wait of the thread that is parked in the link, or its next one.
    pub fn cancel(&self) {
        self.0.word.set();
        if let Some(eventfd) = self.0.eventfd.get() {
            eventfd.ring();
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("is_set", &self.word.is_set()).finish_non_exhaustive()
    }
}

/// A wake without anything that was waited for. A peer that keeps ringing does not extend a deadline.
fn spurious(park: &Park) -> Woken {
    let over = park.until.is_some_and(|until| until <= clock::now());
    if over { Woken::Deadline } else { Woken::Rung }
}

/// The half of a word that a futex compares.
#[allow(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
const fn low(word: u64) -> u32 {
    word as u32
}
