//! The eventfd floors: two processes that are both asleep each turn, in a blocking `read` or in `epoll_wait`, where the
//! eventfd is not read.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, retry_on_intr, write};

use super::pingpong::{Link, PingPong, answer};
use super::process::{Peer, RoleResult, spawn};
use super::sync::{AtomicU32, Ordering};
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-eventfd";
/// The peer's role for [`Epoll`].
pub const EPOLL: &str = "floor-epoll";

/// The eventfd floor; [`PingPong::round_trips`] measures it.
pub type Floor = PingPong<End<false>>;

/// The same by epoll.
pub type Epoll = PingPong<End<true>>;

impl<const POLLS: bool> PingPong<End<POLLS>> {
    /// Two eventfds; on one CPU ([`Cpus::same`]) or across two.
    pub fn start(cpus: Cpus) -> Result<Self> {
        let event =
            || eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::system("create an eventfd"));
        let (mine, theirs) = (event()?, event()?);
        let descriptors = [theirs.as_fd(), mine.as_fd()];
        let mut child = spawn(role::<POLLS>(), &[cpus.peer], &[], &descriptors)?;
        let dead = theirs.try_clone().map_err(Error::system("duplicate an eventfd"))?;
        let end = End::<POLLS>::new(mine, theirs)?;
        let gone = Arc::clone(&end.gone);
        child.watch(move || {
            gone.store(1, Ordering::Release);
            // The counter is far from full: the write cannot fail or block.
            let _ = ring(&dead);
        })?;
        Ok(Self::new(child, end))
    }
}

/// The other process.
pub fn peer<const POLLS: bool>(peer: &mut Peer) -> RoleResult {
    let end = End::<POLLS>::new(peer.descriptor()?, peer.descriptor()?)?;
    Ok(answer(peer, end)?)
}

/// One end: writes `mine`, waits for `theirs`.
pub struct End<const POLLS: bool> {
    mine: OwnedFd,
    theirs: OwnedFd,
    /// Watches `theirs`, where that is what is waited for.
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Not 0 once the other end has died.
    gone: Arc<AtomicU32>,
}

impl<const POLLS: bool> End<POLLS> {
    fn new(mine: OwnedFd, theirs: OwnedFd) -> Result<Self> {
        let doing = "watch an eventfd";
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(Error::system(doing))?;
        if POLLS {
            // Each write is an edge: no read is needed.
            let edge = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, &theirs, EventData::new_u64(0), edge)
                .map_err(Error::system(doing))?;
        }
        Ok(Self { mine, theirs, epoll, events: Vec::with_capacity(1), gone: Arc::default() })
    }
}

impl<const POLLS: bool> Link for End<POLLS> {
    const WARM: u64 = 10;

    #[inline]
    fn send(&mut self) -> Result<()> {
        ring(&self.mine)
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        if POLLS {
            self.events.clear();
            retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut self.events), None))
                .map_err(Error::system("wait for an eventfd"))?;
        } else {
            retry_on_intr(|| read(&self.theirs, &mut [0; 8]))
                .map_err(Error::system("read an eventfd"))?;
        }
        match self.gone.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Error::PeerGone { role: role::<POLLS>() }),
        }
    }
}

/// Adds 1.
#[inline]
fn ring(event: &OwnedFd) -> Result<()> {
    retry_on_intr(|| write(event, &1_u64.to_ne_bytes()))
        .map_err(Error::system("write an eventfd"))?;
    Ok(())
}

const fn role<const POLLS: bool>() -> &'static str {
    if POLLS { EPOLL } else { ROLE }
}
