//! One end of a session: the core's [`Port`] over sections, a pipe and an event.

mod control;
mod wait;

use std::cell::{OnceCell, RefCell};
use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::sync::Arc;

use bellwire_core::control::Control;
use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::{Ordering, fence};
use bellwire_core::wire::{Doorbell, PAGE_SIZE};
use bellwire_core::{
    Bell, Instant, Limits, OwnMemory, Park, PeerFault, PeerMemory, Port, Woken, Word,
};
use bellwire_transport::Lender;

use crate::doorbell::{Cancel, Event};
use crate::handle::{Access, duplicate};
use crate::life::LifeState;
use crate::pass::Channel;
use crate::peer::Process;
use crate::poll::{Interest, Poller, Trigger};
use crate::region::{OwnRegion, PeerRegion};
use crate::{OsError, clock, peer};
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
    /// The control pipe.
    pub channel: Channel,
    /// The doorbell that this end wants to be rung by: [`Doorbell::Socket`] is the pipe, everything else the event.
    pub doorbell: Doorbell,
    /// The event that the peer rings, where it was given one.
    pub own_event: Option<Event>,
    /// The event that the peer wants to be rung by.
    pub peer_event: Option<Event>,
    /// The peer's process, where [`Channel::process`] does not hold it already.
    pub process: Option<Process>,
    /// What the peer was told that this end puts up with.
    pub limits: Limits,
    /// For systems where memory has a name.
    pub lane_name: String,
    /// Whether the peer is trusted to keep no way to write what it attaches: nothing shows that here. True only of one that
    /// may write this process's memory anyway: of its user, or the system. What another one attaches is copied.
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
    /// The event that ends a wait could not be made. This system is at fault.
    #[error("cannot make an event to wait for: {source}")]
    Event {
        /// What the system said.
        source: OsError,
    },
}

/// One end of a session.
///
/// It holds five handles, and one more when it can be cancelled: the pipe, the event of its reads, the two
/// doorbells and the peer's process. One thread at a time uses it.
#[derive(Debug)]
pub struct Link {
    own: OwnEnd,
    peer: PeerEnd,
    channel: Channel,
    doorbell: Doorbell,
    own_event: Event,
    peer_event: Option<Arc<Event>>,
    process: Option<Process>,
    cancel: Cancel,
    control: RefCell<Control<Self>>,
    trusts_peer: bool,
    // On whose quota memory is that is made for the peer.
    lender: Option<Lender>,
    // The own lane's next epoch, passed and not written yet.
    offered: Option<OwnRegion>,
    // What rings the own event for everything else that may happen, once an event loop has asked for it.
    gathered: OnceCell<RefCell<Poller>>,
}

/// Wakes a thread that is parked in a [`Link`], from any other thread. Clones share the link.
#[derive(Clone, Debug)]
pub struct Canceller(Cancel);

impl Link {
    /// Whether this is the process that opened the session: there is no fork.
    pub const fn is_here(&self) -> bool {
        true
    }

    /// Puts the parts together, and says in the own page that this end wants to be rung by its event.
    ///
    /// # Errors
    /// [`LinkError`] when the parts do not belong together.
    pub fn new(parts: Parts) -> Result<Self, LinkError> {
        for size in [parts.own.page.size(), parts.peer.page.size()] {
            if size < PAGE_SIZE {
                return Err(LinkError::PageSize { size });
            }
        }
        let Parts {
            own, peer, channel, doorbell, peer_event, process, limits, trusts_peer, ..
        } = parts;
        let own_event = parts.own_event.map_or_else(Event::create, Ok);
        let own_event = own_event.map_err(|source| LinkError::Event { source })?;
        let doorbell = match doorbell {
            Doorbell::Socket => Doorbell::Socket,
            _ => Doorbell::Eventfd,
        };
        own.store(Word::Doorbell, u64::from(doorbell as u32), Ordering::Release);
        // Pairs with the fence in a publisher between its `tail` and its look at what this end wants.
        fence(Ordering::SeqCst);
        Ok(Self {
            own,
            peer,
            channel,
            doorbell,
            own_event,
            peer_event: peer_event.map(Arc::new),
            process,
            cancel: Cancel::new(),
            control: RefCell::new(Control::new(limits)),
            trusts_peer,
            lender: None,
            offered: None,
            gathered: OnceCell::new(),
        })
    }

    /// Puts memory that is made for the peer from now on, or passed to it, on its user's quota.
    #[must_use]
    pub fn on_quota_of(mut self, lender: Lender) -> Self {
        self.lender = Some(lender);
        self
    }

    /// The doorbell that this end wants to be rung by.
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell
    }

    /// The control pipe.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Ready as long as there is a message in the control pipe, or it is closed.
    pub fn arrived(&self) -> BorrowedHandle<'_> {
        self.channel.arrived()
    }

    /// The peer's process.
    pub fn process(&self) -> Option<&Process> {
        self.channel.process().or(self.process.as_ref())
    }

    /// The peer's process, for a link that was made without it: a handle more.
    pub fn find_process(&self) -> Option<Process> {
        peer::watch(&self.channel)
    }

    /// The event that the peer rings, for an event loop that gathers those of many links itself.
    pub fn event(&self) -> Option<&Event> {
        Some(&self.own_event)
    }

    /// The event that the peer is rung by.
    pub(crate) fn peer_event(&self) -> Option<&Arc<Event>> {
        self.peer_event.as_ref()
    }

    /// A handle that wakes the thread that is parked here.
    ///
    /// # Errors
    /// The first one costs an event: at the limit of handles or memory.
    pub fn canceller(&self) -> Result<Canceller, OsError> {
        self.cancel.arm()?;
        Ok(Canceller(self.cancel.clone()))
    }

    /// Resets the cancellation, and says whether there was one.
    pub fn take_cancel(&self) -> bool {
        self.cancel.take()
    }

    /// What the peer did on the pipe that has no place there, found while this end waited.
    pub fn fault(&self) -> Option<PeerFault> {
        self.control.borrow().fault()
    }

    /// Unmaps everything and gives the control pipe back.
    pub fn into_channel(self) -> Option<Channel> {
        Some(self.channel)
    }

    /// What the system notes of the peer's life by itself: nothing.
    pub fn life(&self) -> LifeState {
        LifeState::Unarmed
    }

    /// A handle that an event loop can wait for: ready when there may be data or space, or the peer is gone; call
    /// [`Link::acknowledge`] then, before looking. The wait itself may take that away (auto-reset).
    ///
    /// # Errors
    /// The first call has the system's thread pool wait for the peer's end: at the limit of handles or memory.
    pub fn pollable(&self) -> Result<Option<BorrowedHandle<'_>>, OsError> {
        if self.gathered.get().is_none() {
            let gathered = self.gather()?;
            // Nobody was faster: one thread at a time uses the link.
            let _ = self.gathered.set(RefCell::new(gathered));
        }
        Ok(Some(self.own_event.as_handle()))
    }

    /// Takes note of the rings so far, so that [`Link::pollable`] is ready again only for new ones.
    pub fn acknowledge(&self) {
        self.own_event.drain();
        self.hear();
        if let Some(gathered) = self.gathered.get() {
            gathered.borrow_mut().look_again();
        }
    }

    /// Has the pool ring the own event for what comes through the pipe, and for the peer's end.
    fn gather(&self) -> Result<Poller, OsError> {
        let bell = Event::of(duplicate(&self.own_event, Access::Same)?);
        let mut gathered = Poller::ringing(bell);
        gathered.add(self.arrived(), 0, Interest::readable(Trigger::Level))?;
        if let Some(process) = self.process() {
            gathered.add(process, 1, Interest::readable(Trigger::Level))?;
        }
        gathered.look_again();
        Ok(gathered)
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

    /// One event for data and space: whoever is rung looks for both.
    fn ring(&self, _bell: Bell) {
        self.own.rings(clock::now());
        let wanted = u32::try_from(self.peer.load(Word::Doorbell, Ordering::Acquire));
        match (wanted.ok().and_then(Doorbell::parse), &self.peer_event) {
            (Some(Doorbell::Socket), _) | (_, None) => self.ring_pipe(),
            // Also what a peer gets that asks for nonsense.
            (_, Some(event)) => event.ring(),
        }
    }

    fn park(&mut self, park: Park) -> Woken {
        self.park_on_event(&park)
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

impl Canceller {
    /// Ends the wait of the thread that is parked in the link, or its next one.
    pub fn cancel(&self) {
        self.0.set();
    }
}
