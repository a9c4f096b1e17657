//! One end of a session: the core's [`Port`] over memfds, a socket and a doorbell.

mod cancel;
mod control;
mod wait;

pub use cancel::Canceller;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::{Ordering, fence};
use bellwire_core::wire::{Doorbell, PAGE_SIZE};
use bellwire_core::{
    Bell, Instant, Limits, OwnMemory, Park, PeerFault, PeerMemory, Port, Woken, Word,
};
use bellwire_transport::Lender;
use rustix::io::Errno;

use crate::doorbell::Event;
use crate::fork::Home;
use crate::pass::Channel;
use crate::peer::Process;
use crate::poll::{Epoll, Interest, Trigger};
use crate::region::{OwnRegion, PeerRegion};
use crate::{clock, peer, spare};
use cancel::Cancel;
use control::Control;
pub use control::Heard;

/// The memory that this end writes.
pub type OwnEnd = bellwire_transport::OwnEnd<OwnRegion>;

/// The memory that the peer writes.
pub type PeerEnd = bellwire_transport::PeerEnd<PeerRegion>;

/// What a [`Link`] is made of, when the handshake is done.
#[derive(Debug)]
pub struct Parts {
    /// This end's memory.
    pub own: OwnEnd,
    /// The peer's memory.
    pub peer: PeerEnd,
    /// The control socket.
    pub channel: Channel,
    /// The doorbell that this end wants to be rung by.
    pub doorbell: Doorbell,
    /// The eventfd that the peer rings, for [`Doorbell::Eventfd`].
    pub own_event: Option<Event>,
    /// The eventfd that the peer wants to be rung by. Only ever that of a trusted peer: see [`Event`].
    pub peer_event: Option<Event>,
    /// The peer's process.
    pub process: Option<Process>,
    /// What the peer was told that this end puts up with.
    pub limits: Limits,
    /// What to call the memfds of the own lane, for whoever looks into `/proc/PID/maps`; at most 249 bytes.
    pub lane_name: String,
    /// Whether the peer keeps no way to write what it attaches. Seals show it here, so that nothing depends on this.
    pub trusts_peer: bool,
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
    control: Control,
    doorbell: Doorbell,
    own_event: Option<Event>,
    peer_event: Option<Event>,
    process: Option<Process>,
    cancel: Arc<Cancel>,
    lane_name: Box<str>,
    lender: Option<Lender>,
    // The own lane's next epoch, passed and not written yet.
    offered: Option<OwnRegion>,
    // What an event loop polls, once it has asked for it.
    gathered: OnceLock<Epoll>,
    home: Home,
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
            control: Control::new(parts.channel.into(), parts.limits),
            doorbell: parts.doorbell,
            own_event: parts.own_event,
            peer_event: parts.peer_event,
            process: parts.process,
            cancel: Arc::default(),
            lane_name: parts.lane_name.into(),
            lender: None,
            offered: None,
            gathered: OnceLock::new(),
            home: Home::here(),
        };
        link.choose_doorbell(parts.doorbell)?;
        spare::keep();
        Ok(link)
    }

    /// Puts memory that is made for the peer from now on, or passed to it, on its user's quota.
    #[must_use]
    pub fn on_quota_of(mut self, lender: Lender) -> Self {
        self.lender = Some(lender);
        self
    }

    /// Changes the doorbell that this end wants to be rung by. The peer may ring by the old one for a
    /// moment: look at its words again after this and before sleeping, which parking does by itself.
    ///
    /// # Errors
    /// [`LinkError::NoEventfd`] when the link has none, [`LinkError::Cancel`] at the limit of open files.
    pub fn choose_doorbell(&mut self, doorbell: Doorbell) -> Result<(), LinkError> {
        if doorbell == Doorbell::Eventfd && self.own_event.is_none() {
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

    /// Whether this is the process that opened the session: a child of fork has nothing of it.
    pub fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// The control socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Readable as long as there is a message on the control socket, or the other end is closed.
    pub fn arrived(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The peer's process.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The peer's process, for a link that was made without it: a descriptor more.
    pub fn find_process(&self) -> Option<Process> {
        peer::peer_pidfd(self.socket()).map(Process::from)
    }

    /// The eventfd that the peer rings, for an event loop that gathers those of many links itself.
    pub fn event(&self) -> Option<&Event> {
        self.own_event.as_ref()
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

    /// Unmaps everything and gives the control socket back, for who closes it elsewhere: a peer may have queued
    /// descriptors on it that block when they are closed.
    pub fn into_channel(self) -> Option<Channel> {
        self.control.into_socket().map(Channel::from)
    }

    /// What the peer did on the control socket that has no place there, found while this end waited.
    pub fn fault(&self) -> Option<PeerFault> {
        self.control.fault()
    }

    /// A descriptor that an event loop can poll for reading: ready when there may be data or space, or the
    /// peer is gone; call [`Link::acknowledge`] then, before looking. `None` when the doorbell is a futex.
    ///
    /// # Errors
    /// For an eventfd link the first call makes an epoll instance: `EMFILE` at the limit.
    pub fn pollable(&self) -> Result<Option<BorrowedFd<'_>>, Errno> {
        match (self.doorbell, &self.own_event) {
            (Doorbell::Eventfd, Some(eventfd)) => {
                if let Some(gathered) = self.gathered.get() {
                    return Ok(Some(gathered.as_fd()));
                }
                let gathered = self.gather(eventfd)?;
                Ok(Some(self.gathered.get_or_init(|| gathered).as_fd()))
            }
            (Doorbell::Socket, _) => Ok(Some(self.control.as_fd())),
            _ => Ok(None),
        }
    }

    /// Takes note of the rings so far, so that [`Link::pollable`] is ready again only for new ones.
    pub fn acknowledge(&mut self) {
        match self.doorbell {
            Doorbell::Futex => {}
            Doorbell::Eventfd => {
                if let Some(eventfd) = &self.own_event {
                    eventfd.drain();
                }
            }
            Doorbell::Socket => {
                self.control.hear();
            }
        }
    }

    /// One descriptor for all that may happen. A peer that reads the eventfd, which it shares, takes only
    /// its own ring away.
    fn gather(&self, eventfd: &Event) -> Result<Epoll, Errno> {
        let gathered = Epoll::create()?;
        gathered.add(eventfd, 0, Interest::readable(Trigger::Level))?;
        // Of the socket only the hang-up: control messages are read when a record says so.
        let quiet = Interest { readable: false, writable: false, trigger: Trigger::Level };
        gathered.add(&self.control, 1, quiet)?;
        if let Some(process) = &self.process {
            gathered.add(process, 2, Interest::readable(Trigger::Level))?;
        }
        Ok(gathered)
    }

    fn ring_futex(&self, bell: Bell) {
        let word = match bell {
            Bell::Data => Word::Tail,
            Bell::Space => Word::Head,
        };
        self.own.page.wake_one(word.offset());
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

    fn give_way(&self) {
        std::thread::yield_now();
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn ring(&self, bell: Bell) {
        if !self.is_here() {
            return;
        }
        self.own.rings(clock::now());
        let wanted = u32::try_from(self.peer.load(Word::Doorbell, Ordering::Acquire));
        match (wanted.ok().and_then(Doorbell::parse), &self.peer_event) {
            (Some(Doorbell::Eventfd), Some(eventfd)) => eventfd.ring(),
            (Some(Doorbell::Socket), _) => self.control.ring(),
            // Also what a peer gets that asks for nonsense, or for an eventfd that it never sent.
            _ => self.ring_futex(bell),
        }
    }

    fn park(&mut self, park: Park) -> Woken {
        if !self.is_here() {
            return Woken::PeerGone;
        }
        match (self.doorbell, &self.own_event) {
            (Doorbell::Eventfd, Some(eventfd)) => self.park_on_eventfd(eventfd, &park),
            (Doorbell::Socket, _) => self.park_on_socket(&park),
            _ => self.park_on_futex(&park),
        }
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        self.offer_lane(epoch)
    }

    fn adopt(&mut self, _: Epoch) {
        if let Some(lane) = self.offered.take() {
            self.own.lane = lane;
        }
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        self.follow_lane(epoch)
    }
}
