//! The epoll floor: two processes that are both asleep each turn in `epoll_wait`, each with an eventfd that is not read.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::retry_on_intr;

use super::eventfd::{event, ring};
use super::pingpong::{Link, PingPong, answer};
use super::process::{Peer, RoleResult, spawn};
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-epoll";

/// The tokens of the other end's turns, and of its death.
const TURN: u64 = 0;
const GONE: u64 = 1;

/// The epoll floor; [`PingPong::round_trips`] measures it.
pub type Floor = PingPong<End>;

impl Floor {
    /// Two eventfds, each in an epoll instance of its waiter; on one CPU ([`Cpus::same`]) or across two.
    pub fn start(cpus: Cpus) -> Result<Floor> {
        let (mine, theirs, gone) = (event()?, event()?, event()?);
        let mut child = spawn(ROLE, &[cpus.peer], &[], &[theirs.as_fd(), mine.as_fd()])?;
        let end = End::new(mine, theirs)?;
        epoll::add(&end.epoll, &gone, EventData::new_u64(GONE), EventFlags::IN)
            .map_err(Error::system("watch an eventfd"))?;
        child.watch(move || {
            // Its counter is 0: the write cannot fail or block.
            let _ = ring(&gone);
        })?;
        Ok(PingPong::new(child, end))
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let end = End::new(peer.descriptor()?, peer.descriptor()?)?;
    Ok(answer(peer, end)?)
}

/// One end: writes `mine`, waits for `theirs`.
pub struct End {
    mine: OwnedFd,
    epoll: OwnedFd,
    /// In `epoll`.
    _theirs: OwnedFd,
    events: Vec<epoll::Event>,
}

impl End {
    fn new(mine: OwnedFd, theirs: OwnedFd) -> Result<End> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(Error::system("create an epoll instance"))?;
        // Each write is an edge: no read is needed.
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &theirs, EventData::new_u64(TURN), edge)
            .map_err(Error::system("watch an eventfd"))?;
        Ok(End { mine, epoll, _theirs: theirs, events: Vec::with_capacity(2) })
    }
}

impl Link for End {
    const WARM: u64 = 10;

    #[inline]
    fn send(&mut self) -> Result<()> {
        ring(&self.mine)
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        let events = &mut self.events;
        retry_on_intr(|| {
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), None)
        })
        .map_err(Error::system("wait for an eventfd"))?;
        if events.iter().any(|event| event.data.u64() == GONE) {
            return Err(Error::PeerGone { role: ROLE });
        }
        Ok(())
    }
}
