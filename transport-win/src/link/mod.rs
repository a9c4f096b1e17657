//! One end of a session, over sections, a pipe and an event.

mod wait;

use crate::Windows;
use crate::prelude::*;
use std::cell::{OnceCell, RefCell};
use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::sync::Arc;

use bellwire_core::control;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::Doorbell;
use bellwire_core::{Bell, Instant, Park, Woken};
use bellwire_shm::platform;

use crate::doorbell::Event;
use crate::handle::{Access, duplicate};
use crate::peer::Process;
use crate::poll::{Interest, Poller, Trigger};
use crate::region::{OwnRegion, PeerRegion};
use crate::{OsError, clock};

pub use bellwire_core::control::DrainOutcome;

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
/// peer's process.
pub type Link = bellwire_shm::Link<Windows>;

/// What the ends of a session ring: their events, or the pipe.
#[derive(Debug)]
pub struct Doorbells {
    own: Event,
    peer: Option<Arc<Event>>,
    // Rings the own event for everything else that may happen; created on an event loop's first request.
    gathered: OnceCell<RefCell<Poller>>,
}

impl Doorbells {
    /// Returns the event that this end rings for the peer.
    pub(crate) fn peer(&self) -> Option<&Arc<Event>> {
        self.peer.as_ref()
    }
}

impl platform::Doorbells<Windows> for Doorbells {
    fn new(
        wanted: Doorbell,
        own: Option<Event>,
        peer: Option<Event>,
    ) -> Result<(Self, Doorbell), OsError> {
        let own = own.map_or_else(Event::create, Ok)?;
        let doorbell = match wanted {
            Doorbell::Socket => Doorbell::Socket,
            _ => Doorbell::Eventfd,
        };
        Ok((Self { own, peer: peer.map(Arc::new), gathered: OnceCell::new() }, doorbell))
    }

    fn event(&self) -> Option<&Event> {
        Some(&self.own)
    }

    fn now(_: &Link) -> Instant {
        clock::now()
    }

    /// Rings one event for data and space: a woken peer checks both.
    fn ring(link: &Link, _: Bell, wanted: Option<Doorbell>) {
        match (wanted, &link.bells.peer) {
            (Some(Doorbell::Socket), _) | (_, None) => control::ring(link),
            // Also for a peer that asks for an invalid doorbell.
            (_, Some(event)) => event.ring(),
        }
    }

    fn park(link: &Link, park: &Park) -> Woken {
        wait::sleep(link, || park.has_moved(&link.peer), park.until)
    }

    fn watch(
        link: &Link,
        board: &PeerRegion,
        offset: usize,
        seen: u64,
        until: Option<Instant>,
    ) -> Woken {
        wait::sleep(link, || board.load_u64(offset, Ordering::Acquire) != seen, until)
    }

    fn has_died(link: &Link) -> bool {
        link.process().is_some_and(Process::has_exited) || !link.channel().is_open()
    }

    fn pollable(link: &Link) -> Result<Option<BorrowedHandle<'_>>, OsError> {
        if link.bells.gathered.get().is_none() {
            let gathered = gather(link)?;
            // It cannot have been set meanwhile: only one thread at a time uses the link.
            let _ = link.bells.gathered.set(RefCell::new(gathered));
        }
        Ok(Some(link.bells.own.as_handle()))
    }

    fn acknowledge(link: &Link) {
        link.bells.own.drain();
        link.drain_before_wait();
        if let Some(gathered) = link.bells.gathered.get() {
            gathered.borrow_mut().recheck();
        }
    }
}

/// Makes the pool ring the own event for messages in the pipe and for the peer's end.
fn gather(link: &Link) -> Result<Poller, OsError> {
    let bell = Event::of(duplicate(&link.bells.own, Access::Same)?);
    let mut gathered = Poller::ringing(bell);
    gathered.add(link.arrived(), 0, Interest::readable(Trigger::Level))?;
    if let Some(process) = link.process() {
        gathered.add(process.as_handle(), 1, Interest::readable(Trigger::Level))?;
    }
    gathered.recheck();
    Ok(gathered)
}
