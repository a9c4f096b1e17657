//! One end of a session: the core's [`Port`] over sections, a pipe and an event.

mod control;
mod wait;

use std::cell::{Cell, RefCell};
use std::os::windows::io::{AsHandle, BorrowedHandle};

use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::{Ordering, fence};
use bellwire_core::wire::{Doorbell, PAGE_SIZE, PageHeader};
use bellwire_core::{
    Bell, Instant, Limits, OwnMemory, Park, PeerFault, PeerMemory, Port, Woken, Word,
};

use crate::doorbell::{Cancel, Event};
use crate::pass::Channel;
use crate::peer::Process;
use crate::region::{OwnRegion, PeerRegion};
use crate::{OsError, clock};
pub use control::Heard;
use control::Inbox;

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
    /// The control pipe.
    pub channel: Channel,
    /// The event that the peer rings.
    pub own_event: Event,
    /// The event that the peer wants to be rung by.
    pub peer_event: Option<Event>,
    /// The peer's process, where [`Channel::process`] does not hold it already.
    pub process: Option<Process>,
    /// What the peer was told that this end puts up with.
    pub limits: Limits,
    /// Whether the peer keeps no way to write what it attaches: nothing shows that here. What another one attaches
    /// is copied before it is read.
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
    own_event: Event,
    peer_event: Option<Event>,
    process: Option<Process>,
    cancel: Cancel,
    inbox: RefCell<Inbox>,
    trusts_peer: bool,
    // The own lane's next epoch, passed and not written yet.
    offered: Option<OwnRegion>,
    // What the peer did on the pipe while somebody waited.
    fault: Cell<Option<PeerFault>>,
}

/// Wakes a thread that is parked in a [`Link`], from any other thread. Clones share the link.
#[derive(Clone, Debug)]
pub struct Canceller(Cancel);

impl OwnEnd {
    /// When the page was made, as stands in it: nanoseconds since 1970.
    pub fn created(&self) -> u64 {
        self.page.load_u64(PageHeader::CREATED, Ordering::Relaxed)
    }
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
        let Parts { own, peer, channel, own_event, peer_event, process, limits, trusts_peer } =
            parts;
        own.store(Word::Doorbell, u64::from(Doorbell::Eventfd as u32), Ordering::Release);
        // Pairs with the fence in a publisher between its `tail` and its look at what this end wants.
        fence(Ordering::SeqCst);
        Ok(Self {
            own,
            peer,
            channel,
            own_event,
            peer_event,
            process,
            cancel: Cancel::new(),
            inbox: RefCell::new(Inbox::new(limits)),
            trusts_peer,
            offered: None,
            fault: Cell::new(None),
        })
    }

    /// The control pipe.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The peer's process.
    pub fn process(&self) -> Option<&Process> {
        self.channel.process().or(self.process.as_ref())
    }

    /// The event that the peer rings, for an event loop that gathers those of many links itself.
    pub fn event(&self) -> &Event {
        &self.own_event
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
        self.fault.get()
    }

    /// Unmaps everything and gives the control pipe back.
    pub fn into_channel(self) -> Channel {
        self.channel
    }

    /// What an event loop waits for: one of these is ready when there may be data or space, or the peer is
    /// gone. Call [`Link::acknowledge`] then, before looking, unless the wait itself took the event's ring.
    pub fn waitables(&self) -> impl Iterator<Item = BorrowedHandle<'_>> {
        let process = self.process().map(AsHandle::as_handle);
        [self.own_event.as_handle(), self.channel.arrived()].into_iter().chain(process)
    }

    /// Takes note of the rings so far, so that [`Link::waitables`] are ready again only for new ones.
    pub fn acknowledge(&self) {
        self.own_event.drain();
        self.hear();
    }

    /// Counts in the own page, which nobody else writes.
    fn count(&self, word: Word) {
        let before = self.own.page.load_u64(word.offset(), Ordering::Relaxed);
        self.own.store(word, before.wrapping_add(1), Ordering::Relaxed);
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

    /// One event for data and space: whoever is rung looks for both.
    fn ring(&self, _bell: Bell) {
        self.own.store(Word::RungAt, clock::now().as_nanos(), Ordering::Relaxed);
        self.count(Word::Rings);
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
