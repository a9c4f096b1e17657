//! One end of a session: the core's [`Port`] over memfds, a socket and a doorbell.

mod control;
mod wait;

use crate::Linux;
use crate::prelude::*;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Shortage};
use bellwire_core::sync::{Ordering, fence};
use bellwire_core::wire::Doorbell;
use bellwire_core::{Bell, Instant, OwnMemory, Park, PeerFault, PeerMemory, Port, Woken, Word};
use bellwire_shm::platform;
use bellwire_shm::{Cancel, LoanAccount};
use rustix::io::Errno;

use crate::doorbell::Event;
use crate::fork::OwnerProcess;
use crate::pass::Channel;
use crate::peer::Process;
use crate::poll::{Epoll, Interest, Trigger};
use crate::region::{OwnRegion, PeerRegion};
use crate::{clock, peer, spare};
use control::Control;
pub use control::DrainOutcome;

/// The memory that this end writes.
pub type OwnEnd = bellwire_shm::OwnEnd<OwnRegion>;

/// The memory that the peer writes.
pub type PeerEnd = bellwire_shm::PeerEnd<PeerRegion>;

/// The parts of a [`Link`] after the handshake. The eventfd of the peer must be a trusted one's: see [`Event`].
pub type Parts = bellwire_shm::Parts<Linux>;

/// Wakes a thread that is parked in a [`Link`], from any other thread.
pub type Canceller = bellwire_shm::Canceller<Linux>;

/// One end of a session.
///
/// A futex session holds two descriptors, the socket and the peer's pidfd, plus the peer's eventfd if it has one. Only one
/// thread at a time may use it.
#[derive(Debug)]
pub struct Link {
    own: OwnEnd,
    peer: PeerEnd,
    control: Control,
    doorbell: Doorbell,
    own_event: Option<Event>,
    peer_event: Option<Event>,
    process: Option<Process>,
    cancel: Arc<Cancel<Linux>>,
    lane_name: Box<str>,
    account: Option<LoanAccount>,
    // The own lane's next epoch, passed but not written yet.
    offered: Option<OwnRegion>,
    // The descriptor for event loops, created on the first request.
    gathered: OnceLock<Epoll>,
    owner_process: OwnerProcess,
}

impl Link {
    /// Returns the control socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Returns one descriptor for all events. A peer that reads the shared eventfd only takes its own ring away.
    fn gather(&self, eventfd: &Event) -> Result<Epoll, Errno> {
        let gathered = Epoll::without_alarm()?;
        gathered.add(eventfd, 0, Interest::readable(Trigger::Level))?;
        // Only the hang-up of the socket: control messages are read when a record asks for it.
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

impl platform::Link<Linux> for Link {
    /// Without an eventfd to be rung by, the doorbell is a futex.
    fn new(parts: Parts) -> Result<Self, Errno> {
        let doorbell = match (parts.doorbell, &parts.own_event) {
            (Doorbell::Eventfd, None) => Doorbell::Futex,
            (doorbell, _) => doorbell,
        };
        parts.own.store(Word::Doorbell, u64::from(doorbell as u32), Ordering::Release);
        // Pairs with the fence in a publisher between its `tail` store and its load of what this end wants.
        fence(Ordering::SeqCst);
        spare::keep();
        Ok(Self {
            own: parts.own,
            peer: parts.peer,
            control: Control::new(parts.channel, parts.limits),
            doorbell,
            own_event: parts.own_event,
            peer_event: parts.peer_event,
            process: parts.process,
            cancel: Arc::default(),
            lane_name: parts.lane_name.into(),
            account: None,
            offered: None,
            gathered: OnceLock::new(),
            owner_process: OwnerProcess::current(),
        })
    }

    fn on_quota_of(mut self, account: LoanAccount) -> Self {
        self.account = Some(account);
        self
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell
    }

    fn is_owner_process(&self) -> bool {
        self.owner_process.is_owner_process()
    }

    fn arrived(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    fn find_process(&self) -> Option<Process> {
        peer::peer_pidfd(self.socket())
    }

    fn event(&self) -> Option<&Event> {
        self.own_event.as_ref()
    }

    fn canceller(&self) -> Result<Canceller, Errno> {
        self.cancel.canceller(self.doorbell != Doorbell::Futex)
    }

    fn take_cancel(&self) -> bool {
        self.cancel.take()
    }

    fn into_channel(self) -> Option<Channel> {
        self.control.into_channel()
    }

    fn fault(&self) -> Option<PeerFault> {
        self.control.fault()
    }

    fn pollable(&self) -> Result<Option<BorrowedFd<'_>>, Errno> {
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

    fn acknowledge(&mut self) {
        match self.doorbell {
            Doorbell::Futex => {}
            Doorbell::Eventfd => {
                if let Some(eventfd) = &self.own_event {
                    eventfd.drain();
                }
            }
            Doorbell::Socket => {
                self.control.drain_before_wait();
            }
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

    fn ring(&self, bell: Bell) {
        if !self.is_owner_process() {
            return;
        }
        self.own.rings(clock::now());
        let wanted = u32::try_from(self.peer.load(Word::Doorbell, Ordering::Acquire));
        match (wanted.ok().and_then(Doorbell::parse), &self.peer_event) {
            (Some(Doorbell::Eventfd), Some(eventfd)) => eventfd.ring(),
            (Some(Doorbell::Socket), _) => self.control.ring(),
            // Also for a peer that asks for an invalid doorbell, or for an eventfd that it never sent.
            _ => self.ring_futex(bell),
        }
    }

    fn park(&mut self, park: Park) -> Woken {
        if !self.is_owner_process() {
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
