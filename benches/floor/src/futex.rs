//! The bare futex floor: two processes that are both asleep each turn, two words, no spinning.

use rustix::io::Errno;
use rustix::thread::futex::{Flags, wait, wake};

use super::pingpong::{Link, PingPong, answer};
use super::process::{Peer, RoleResult, spawn};
use super::shared::{LINE, Region, Word};
use super::sync::{AtomicU32, Ordering};
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-futex";

/// What a word holds once its writer has died; no turn has this number.
const GONE: u32 = u32::MAX;

/// The futex floor; [`PingPong::round_trips`] measures it.
pub type Floor = PingPong<End>;

impl Floor {
    /// Two words; on one CPU ([`Cpus::same`]) or across two.
    pub fn start(cpus: Cpus) -> Result<Floor> {
        let region = Region::create(2 * LINE)?;
        let mut child = spawn(ROLE, &[cpus.peer], &[], &[region.descriptor()])?;
        let end = End::new(&region, [0, LINE])?;
        let theirs = end.theirs.clone();
        child.watch(move || {
            theirs.store(GONE, Ordering::Release);
            // A live mapping: the call cannot fail, and there is no caller to report to.
            let _ = wake(&theirs, Flags::empty(), 1);
        })?;
        Ok(PingPong::new(child, end))
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let region = Region::open(peer.descriptor()?)?;
    Ok(answer(peer, End::new(&region, [LINE, 0])?)?)
}

/// One end.
pub struct End {
    mine: Word<AtomicU32>,
    theirs: Word<AtomicU32>,
    sent: u32,
    seen: u32,
}

impl End {
    fn new(region: &Region, [mine, theirs]: [usize; 2]) -> Result<End> {
        Ok(End { mine: region.word(mine)?, theirs: region.word(theirs)?, sent: 0, seen: 0 })
    }
}

impl Link for End {
    const WARM: u64 = 10;

    #[inline]
    fn send(&mut self) -> Result<()> {
        self.sent = next(self.sent);
        self.mine.store(self.sent, Ordering::Release);
        // Never PRIVATE: the waiter is in another process and the wake would be lost.
        wake(&self.mine, Flags::empty(), 1).map_err(Error::system("wake a futex"))?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        let before = self.seen;
        self.seen = next(before);
        loop {
            match wait(&self.theirs, Flags::empty(), before, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::system("wait on a futex")(error)),
            }
            match self.theirs.load(Ordering::Acquire) {
                now if now == self.seen => return Ok(()),
                GONE => return Err(Error::PeerGone { role: ROLE }),
                _ => {}
            }
        }
    }
}

/// The turn after `turn`; [`GONE`] is left out.
fn next(turn: u32) -> u32 {
    if turn == GONE - 1 { 0 } else { turn + 1 }
}
