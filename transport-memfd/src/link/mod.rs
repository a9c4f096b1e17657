//! One end of a session, over memfds, a socket and a doorbell.

mod wait;

use crate::Linux;
use crate::prelude::*;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use bellwire_core::control;
use bellwire_core::wire::Doorbell;
use bellwire_core::{Bell, Instant, Park, Woken, Word};
use bellwire_shm::platform;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::doorbell::WakeEvent;
use crate::fork::OwnerProcess;
use crate::life::{LIFE_OFFSET, life_state};
use crate::poll::{Epoll, Interest, Trigger};
use crate::region::{OwnRegion, PeerRegion};
use crate::{LifeState, clock};

pub use bellwire_core::control::DrainOutcome;

/// The memory that this end writes.
pub type OwnEnd = bellwire_shm::OwnEnd<OwnRegion>;

/// The memory that the peer writes.
pub type PeerEnd = bellwire_shm::PeerEnd<PeerRegion>;

/// The parts of a [`Link`] after the handshake. The eventfd of the peer must be a trusted one's: see [`WakeEvent`].
pub type Parts = bellwire_shm::Parts<Linux>;

/// Wakes a thread that is parked in a [`Link`], from any other thread.
pub type Canceller = bellwire_shm::Canceller<Linux>;

/// One end of a session.
///
/// A futex session holds two descriptors, the socket and the peer's pidfd, plus the peer's eventfd if it has one.
pub type Link = bellwire_shm::Link<Linux>;

/// What the ends of a session ring: futexes on the words of their pages, eventfds, or the socket.
#[derive(Debug)]
pub struct Doorbells {
    own: Option<WakeEvent>,
    peer: Option<WakeEvent>,
    // The descriptor for event loops, created on the first request.
    gathered: OnceLock<Epoll>,
    owner_process: OwnerProcess,
}

impl platform::Doorbells<Linux> for Doorbells {
    /// Without an eventfd to be rung by, the doorbell is a futex.
    fn new(
        wanted: Doorbell,
        own: Option<WakeEvent>,
        peer: Option<WakeEvent>,
    ) -> Result<(Self, Doorbell), Errno> {
        let doorbell = match (wanted, &own) {
            (Doorbell::Eventfd, None) => Doorbell::Futex,
            (doorbell, _) => doorbell,
        };
        let (gathered, owner_process) = (OnceLock::new(), OwnerProcess::current());
        Ok((Self { own, peer, gathered, owner_process }, doorbell))
    }

    fn event(&self) -> Option<&WakeEvent> {
        self.own.as_ref()
    }

    fn now(_: &Link) -> Instant {
        clock::now()
    }

    fn is_owner_process(&self) -> bool {
        self.owner_process.is_owner_process()
    }

    fn ring(link: &Link, bell: Bell, wanted: Option<Doorbell>) {
        match (wanted, &link.bells.peer) {
            (Some(Doorbell::Eventfd), Some(eventfd)) => eventfd.ring(),
            (Some(Doorbell::Socket), _) => ring_socket(link),
            // Also for a peer that asks for an invalid doorbell, or for an eventfd that it never sent.
            _ => ring_futex(link, bell),
        }
    }

    fn park(link: &Link, park: &Park) -> Woken {
        match (link.doorbell, &link.bells.own) {
            (Doorbell::Eventfd, Some(eventfd)) => wait::park_on_eventfd(link, eventfd, park),
            (Doorbell::Socket, _) => wait::park_on_socket(link, park),
            _ => wait::park_on_futex(link, park),
        }
    }

    /// A futex waits on the low half of the word. One `FUTEX_WAKE` by the peer wakes every watcher.
    fn watch(
        link: &Link,
        board: &PeerRegion,
        offset: usize,
        seen: u64,
        until: Option<Instant>,
    ) -> Woken {
        let (word, seen) = (board.word(offset), wait::low(seen));
        wait::sleep(link, (word, seen), None, || word.load() != seen, until)
    }

    fn has_died(link: &Link) -> bool {
        link.life() == LifeState::Died || wait::process_gone(link)
    }

    #[inline]
    fn life(link: &Link) -> LifeState {
        life_state(link.peer.page.word(LIFE_OFFSET).load())
    }

    fn pollable(link: &Link) -> Result<Option<BorrowedFd<'_>>, Errno> {
        match (link.doorbell, &link.bells.own) {
            (Doorbell::Eventfd, Some(eventfd)) => {
                let found = &link.bells.gathered;
                if let Some(gathered) = found.get() {
                    return Ok(Some(gathered.as_fd()));
                }
                let gathered = gather(link, eventfd)?;
                Ok(Some(found.get_or_init(|| gathered).as_fd()))
            }
            (Doorbell::Socket, _) => Ok(Some(link.arrived())),
            _ => Ok(None),
        }
    }

    fn acknowledge(link: &Link) {
        match (link.doorbell, &link.bells.own) {
            (Doorbell::Eventfd, Some(eventfd)) => {
                eventfd.drain();
            }
            (Doorbell::Socket, _) => {
                link.drain_before_wait();
            }
            _ => {}
        }
    }
}

/// Returns one descriptor for all events. A peer that reads the shared eventfd only takes its own ring away.
fn gather(link: &Link, eventfd: &WakeEvent) -> Result<Epoll, Errno> {
    let gathered = Epoll::without_alarm()?;
    gathered.add(eventfd, 0, Interest::readable(Trigger::Level))?;
    // Only the hang-up of the socket: control messages are read when a record asks for it.
    let quiet = Interest { readable: false, writable: false, trigger: Trigger::Level };
    gathered.add(link.arrived(), 1, quiet)?;
    if let Some(process) = link.process() {
        gathered.add(process, 2, Interest::readable(Trigger::Level))?;
    }
    Ok(gathered)
}

fn ring_futex(link: &Link, bell: Bell) {
    let word = match bell {
        Bell::Data => Word::Tail,
        Bell::Space => Word::Head,
    };
    link.own.page.wake_one(word.offset());
}

/// Rings by the socket, unless a quarter of its buffer is unread: the peer is woken by that already, and one that never reads
/// would have the kernel hold more and more for this process.
fn ring_socket(link: &Link) {
    let mut socket = [PollFd::from_borrowed_fd(link.arrived(), PollFlags::OUT)];
    if poll(&mut socket, Some(&Timespec::default())) != Ok(0) {
        control::ring(link);
    }
}
