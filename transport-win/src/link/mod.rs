//! One end of a session: the core's [`Port`] over sections, a pipe and an event.

mod control;
mod wait;

use crate::Windows;
use crate::prelude::*;
use std::cell::{OnceCell, RefCell};
use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::sync::Arc;

use bellwire_core::control::{Control, ring};
use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::{Ordering, fence};
use bellwire_core::wire::Doorbell;
use bellwire_core::{Bell, Instant, OwnMemory, Park, PeerFault, PeerMemory, Port, Woken, Word};
use bellwire_shm::platform;
use bellwire_shm::{Cancel, LoanAccount};

use crate::doorbell::Event;
use crate::handle::{Access, duplicate};
use crate::pass::Channel;
use crate::peer::Process;
use crate::poll::{Interest, Poller, Trigger};
use crate::region::{OwnRegion, PeerRegion};
use crate::{OsError, clock};
pub use control::DrainOutcome;

/// The memory that this end writes.
pub type OwnEnd = bellwire_shm::OwnEnd<OwnRegion>;

/// The memory that the peer writes.
pub type PeerEnd = bellwire_shm::PeerEnd<PeerRegion>;

/// The parts of a [`Link`] after the handshake. The doorbell is the pipe for [`Doorbell::Socket`], and the event for every other
/// value.
pub type Parts = bellwire_shm::Parts<Windows>;

/// Wakes a thread that is parked in a [`Link`], from any other thread.
pub type Canceller = bellwire_shm::Canceller<Windows>;

/// One end of a session.
///
/// It holds five handles, plus one when it can be cancelled: the pipe, the event of its reads, the two doorbells and the
/// peer's process. Only one thread at a time may use it.
#[derive(Debug)]
pub struct Link {
    own: OwnEnd,
    peer: PeerEnd,
    channel: Channel,
    doorbell: Doorbell,
    own_event: Event,
    peer_event: Option<Arc<Event>>,
    process: Option<Process>,
    cancel: Arc<Cancel<Windows>>,
    control: RefCell<Control<Self>>,
    trusts_peer: bool,
    // The quota to which memory for the peer is charged.
    account: Option<LoanAccount>,
    // The own lane's next epoch, passed but not written yet.
    offered: Option<OwnRegion>,
    // Rings the own event for everything else that may happen; created on an event loop's first request.
    gathered: OnceCell<RefCell<Poller>>,
}

impl Link {
    /// Returns the control pipe.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Returns the event that this end rings for the peer.
    pub(crate) fn peer_event(&self) -> Option<&Arc<Event>> {
        self.peer_event.as_ref()
    }

    /// Makes the pool ring the own event for messages in the pipe and for the peer's end.
    fn gather(&self) -> Result<Poller, OsError> {
        let bell = Event::of(duplicate(&self.own_event, Access::Same)?);
        let mut gathered = Poller::ringing(bell);
        gathered.add(self.arrived(), 0, Interest::readable(Trigger::Level))?;
        if let Some(process) = self.process() {
            gathered.add(process.as_handle(), 1, Interest::readable(Trigger::Level))?;
        }
        gathered.recheck();
        Ok(gathered)
    }
}

impl platform::Link<Windows> for Link {
    fn new(parts: Parts) -> Result<Self, OsError> {
        let Parts {
            own, peer, channel, doorbell, peer_event, process, limits, trusts_peer, ..
        } = parts;
        let own_event = parts.own_event.map_or_else(Event::create, Ok)?;
        let doorbell = match doorbell {
            Doorbell::Socket => Doorbell::Socket,
            _ => Doorbell::Eventfd,
        };
        own.store(Word::Doorbell, u64::from(doorbell as u32), Ordering::Release);
        // Pairs with the fence in a publisher between its `tail` store and its load of what this end wants.
        fence(Ordering::SeqCst);
        Ok(Self {
            own,
            peer,
            channel,
            doorbell,
            own_event,
            peer_event: peer_event.map(Arc::new),
            process,
            cancel: Arc::default(),
            control: RefCell::new(Control::new(limits)),
            trusts_peer,
            account: None,
            offered: None,
            gathered: OnceCell::new(),
        })
    }

    fn on_quota_of(mut self, account: LoanAccount) -> Self {
        self.account = Some(account);
        self
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell
    }

    fn arrived(&self) -> BorrowedHandle<'_> {
        self.channel.arrived()
    }

    fn process(&self) -> Option<&Process> {
        self.channel.process().or(self.process.as_ref())
    }

    fn find_process(&self) -> Option<Process> {
        Process::watch(&self.channel)
    }

    fn event(&self) -> Option<&Event> {
        Some(&self.own_event)
    }

    fn canceller(&self) -> Result<Canceller, OsError> {
        self.cancel.canceller(true)
    }

    fn take_cancel(&self) -> bool {
        self.cancel.take()
    }

    fn into_channel(self) -> Option<Channel> {
        Some(self.channel)
    }

    fn fault(&self) -> Option<PeerFault> {
        self.control.borrow().fault()
    }

    fn pollable(&self) -> Result<Option<BorrowedHandle<'_>>, OsError> {
        if self.gathered.get().is_none() {
            let gathered = self.gather()?;
            // It cannot have been set meanwhile: only one thread at a time uses the link.
            let _ = self.gathered.set(RefCell::new(gathered));
        }
        Ok(Some(self.own_event.as_handle()))
    }

    fn acknowledge(&mut self) {
        self.own_event.drain();
        self.drain_before_wait();
        if let Some(gathered) = self.gathered.get() {
            gathered.borrow_mut().recheck();
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

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    /// Rings one event for data and space: a woken peer checks both.
    fn ring(&self, _bell: Bell) {
        self.own.rings(clock::now());
        let wanted = u32::try_from(self.peer.load(Word::Doorbell, Ordering::Acquire));
        match (wanted.ok().and_then(Doorbell::parse), &self.peer_event) {
            (Some(Doorbell::Socket), _) | (_, None) => ring(self),
            // Also for a peer that asks for an invalid doorbell.
            (_, Some(event)) => event.ring(),
        }
    }

    fn park(&mut self, park: Park) -> Woken {
        self.sleep(|| park.has_moved(&self.peer), park.until)
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
