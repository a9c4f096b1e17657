//! The eventfd floor: two processes that are both asleep each turn in a blocking `read`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, retry_on_intr, write};

use super::pingpong::{Link, PingPong, answer};
use super::process::{Peer, RoleResult, spawn};
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-eventfd";

/// What is added to the counter once its writer has died; a turn adds 1.
const GONE: u64 = 1 << 32;

/// The eventfd floor; [`PingPong::round_trips`] measures it.
pub type Floor = PingPong<End>;

impl Floor {
    /// Two eventfds; on one CPU ([`Cpus::same`]) or across two.
    pub fn start(cpus: Cpus) -> Result<Floor> {
        let (mine, theirs) = (event()?, event()?);
        let mut child = spawn(ROLE, &[cpus.peer], &[], &[theirs.as_fd(), mine.as_fd()])?;
        let dead = theirs.try_clone().map_err(Error::system("duplicate an eventfd"))?;
        child.watch(move || {
            // The counter is far from full: the write cannot fail or block.
            let _ = write(&dead, &GONE.to_ne_bytes());
        })?;
        Ok(PingPong::new(child, End { mine, theirs }))
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let (mine, theirs) = (peer.descriptor()?, peer.descriptor()?);
    Ok(answer(peer, End { mine, theirs })?)
}

/// One end: writes `mine`, reads `theirs`.
pub struct End {
    mine: OwnedFd,
    theirs: OwnedFd,
}

impl Link for End {
    const WARM: u64 = 10;

    #[inline]
    fn send(&mut self) -> Result<()> {
        ring(&self.mine)
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        let mut count = [0; 8];
        retry_on_intr(|| read(&self.theirs, &mut count))
            .map_err(Error::system("read an eventfd"))?;
        if u64::from_ne_bytes(count) >= GONE {
            return Err(Error::PeerGone { role: ROLE });
        }
        Ok(())
    }
}

pub(super) fn event() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::system("create an eventfd"))
}

/// Adds 1.
#[inline]
pub(super) fn ring(event: &OwnedFd) -> Result<()> {
    retry_on_intr(|| write(event, &1_u64.to_ne_bytes()))
        .map_err(Error::system("write an eventfd"))?;
    Ok(())
}
