//! What wakes a parked peer: a futex on the word that moved, or an eventfd.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::Instant;
use bellwire_core::sync::{AtomicBool, AtomicU32, Ordering};
use bellwire_core::wire::Doorbell;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
use rustix::thread::futex::{
    Flags, Wait, WaitFlags, WaitPtr, WaitvFlags, wait as futex_wait, waitv, wake as futex_wake,
};
use rustix::time::ClockId;

use crate::fork::Home;
use crate::peer::{Credentials, User};
use crate::sealed::VerifyError;
use crate::{clock, reaper};

/// How many words one wait takes without allocating.
const FEW: usize = 8;
/// How long a wait may overlook the words after the first on a kernel without `futex_waitv`.
const SLICE: Duration = Duration::from_millis(10);
/// The bits of a file's mode that say what kind it is (`S_IFMT`).
const TYPE: u32 = 0o170_000;

/// A 32-bit word that threads of several processes may park on. It can be looked at, waited for and woken
/// at; it cannot be stored to, since the memory behind it may be the peer's and read-only.
///
/// Every operation is a shared one: with the PRIVATE flag a wake from another process would be lost.
#[derive(Clone, Copy, Debug)]
pub struct FutexWord<'a>(&'a AtomicU32);

/// Why [`futex_wait_any`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Woke {
    /// A word was woken at, or had moved on already, or for no reason: look again.
    LookAgain,
    /// The time is over.
    Deadline,
}

/// An [`eventfd(2)`](https://man7.org/linux/man-pages/man2/eventfd.2.html), `CLOEXEC` and non-blocking.
///
/// Its `O_NONBLOCK` stands in the file description, which a peer that holds the descriptor can change:
/// then [`Eventfd::ring`] blocks once the counter is full. Share one only with a peer that is trusted (the
/// same uid), and never one between two peers.
#[derive(Debug)]
pub struct Eventfd(OwnedFd, Home);

/// By the name that every transport has for what a peer rings.
pub type Event = Eventfd;

/// A word of this process on which one thread tells another to stop waiting. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CancelWord(Arc<AtomicU32>);

/// The doorbell that this end asks `peer` to ring when the program wants `wanted`. Another user's process could fill an
/// eventfd that it shares with this one: it gets none, unless this end acts as root.
pub fn choose(wanted: Doorbell, peer: &Credentials) -> Doorbell {
    let shares = peer.user().is_own() || User::own().is_system();
    if wanted == Doorbell::Eventfd && !shares { Doorbell::Socket } else { wanted }
}

/// Whether an eventfd of this peer's may be rung. One of another user's could fill it, and the ringer would block.
pub fn may_ring(peer: &Credentials) -> bool {
    peer.user().is_own() || peer.user().is_system()
}

impl<'a> FutexWord<'a> {
    #[inline]
    pub(crate) fn new(word: &'a AtomicU32) -> Self {
        Self(word)
    }

    /// The value now. Relaxed: a hint for a wait, which looks again itself.
    #[inline]
    pub fn load(self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Wakes one thread that is parked here, and says whether there was one
    /// ([`FUTEX_WAKE(2)`](https://man7.org/linux/man-pages/man2/FUTEX_WAKE.2const.html)).
    pub fn wake_one(self) -> bool {
        self.wake(1) > 0
    }

    /// Wakes every thread that is parked here, and says how many there were.
    pub fn wake_all(self) -> usize {
        self.wake(i32::MAX.unsigned_abs())
    }

    fn wake(self, most: u32) -> usize {
        // It fails only for an address that is not mapped or not aligned, and this one is both.
        futex_wake(self.0, Flags::empty(), most).unwrap_or(0)
    }
}

/// Sleeps until somebody wakes at one of `words`, one of them differs from the value beside it, or
/// `deadline`. Up to 128 words; never on none.
///
/// [`futex_waitv(2)`](https://docs.kernel.org/userspace-api/futex2.html), Linux 5.16. On an older kernel
/// it sleeps on the first word and looks at the others every 10 ms.
pub fn futex_wait_any(words: &[(FutexWord<'_>, u32)], deadline: Option<Instant>) -> Woke {
    static MISSING: AtomicBool = AtomicBool::new(false);
    if !MISSING.load(Ordering::Relaxed) {
        let result = match words.len() {
            0 => return Woke::LookAgain,
            1..=FEW => {
                let mut few = [Wait::new(); FEW];
                for (wait, word) in few.iter_mut().zip(words) {
                    *wait = describe(word);
                }
                wait_on(few.get(..words.len()).unwrap_or(&few), deadline)
            }
            _ => wait_on(&words.iter().map(describe).collect::<Vec<_>>(), deadline),
        };
        match result {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Woke::LookAgain,
            Err(Errno::TIMEDOUT) => return Woke::Deadline,
            Err(Errno::NOSYS) => MISSING.store(true, Ordering::Relaxed),
            // A sandbox that forbids the call, or too many words: the slow way works.
            Err(_) => {}
        }
    }
    wait_in_slices(words, deadline)
}

fn describe((word, expected): &(FutexWord<'_>, u32)) -> Wait {
    let mut wait = Wait::new();
    wait.val = u64::from(*expected);
    wait.uaddr = WaitPtr::new(word.0.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}

fn wait_on(waits: &[Wait], deadline: Option<Instant>) -> Result<usize, Errno> {
    let deadline = deadline.map(clock::absolute);
    waitv(waits, WaitvFlags::empty(), deadline.as_ref(), ClockId::Monotonic)
}

pub(crate) fn wait_in_slices(words: &[(FutexWord<'_>, u32)], deadline: Option<Instant>) -> Woke {
    let Some((first, expected)) = words.first() else { return Woke::LookAgain };
    loop {
        if words.iter().any(|(word, expected)| word.load() != *expected) {
            return Woke::LookAgain;
        }
        let left = clock::left(deadline);
        if left == Some(Duration::ZERO) {
            return Woke::Deadline;
        }
        let slice = clock::span(left.map_or(SLICE, |left| left.min(SLICE)));
        match futex_wait(first.0, Flags::empty(), *expected, Some(&slice)) {
            Err(Errno::TIMEDOUT) => {}
            _ => return Woke::LookAgain,
        }
    }
}

impl Eventfd {
    /// A new one, with nothing rung yet.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` at the limit of open files.
    pub fn create() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(|fd| Self(fd, Home::here()))
    }

    /// Takes over a descriptor that a peer sent, to ring it.
    ///
    /// What is none goes to the reaper: to write it, or only to close it, might block.
    ///
    /// # Errors
    /// [`VerifyError::NotEventfd`]
    pub fn from_peer(fd: OwnedFd) -> Result<Self, VerifyError> {
        if is_eventfd(fd.as_fd()) {
            return Ok(Self(fd, Home::here()));
        }
        reaper::reap(fd);
        Err(VerifyError::NotEventfd)
    }

    /// What the peer is given, to ring it.
    ///
    /// # Errors
    /// None.
    pub fn for_peer(&self) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.as_fd())
    }

    /// Rings. A counter that is full means that it was rung already. A child of fork, who shares it, rings nobody.
    pub fn ring(&self) {
        if !self.1.is_here() {
            return;
        }
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes back what was rung, and says whether there was something. Does not block, even when a peer
    /// that shares the eventfd made it blocking and takes the count away first.
    pub fn drain(&self) -> bool {
        if !self.1.is_here() {
            return false;
        }
        let mut count = [0; 8];
        // RWF_NOWAIT does not depend on the file description's flags.
        let bufs = &mut [IoSliceMut::new(&mut count)];
        matches!(preadv2(&self.0, bufs, u64::MAX, ReadWriteFlags::NOWAIT), Ok(8))
    }
}

/// Whether this is an eventfd. It is written only if it has no type, as what has no file behind it: what has one, a
/// socket or a pipe might block. Of those only an eventfd takes a number of 8 bytes; adding 0 to it does nothing.
///
/// `fstat(2)` would ask a FUSE file's server, which need not answer. `AT_STATX_DONT_SYNC` asks nobody: the type of an open
/// file is known ([`statx(2)`](https://man7.org/linux/man-pages/man2/statx.2.html), Linux 4.11). Neither poll nor `preadv2`
/// does for it: FUSE's poll asks, too, and a read at the file's position waits for whoever else reads there.
fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    let has_no_type = |stat: Statx| u32::from(stat.stx_mode) & TYPE == 0;
    statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        .is_ok_and(has_no_type)
        && matches!(rustix::io::write(fd, &0_u64.to_ne_bytes()), Ok(8))
}

impl AsFd for Eventfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl CancelWord {
    /// A word that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets it and wakes who is parked on it.
    pub fn set(&self) {
        self.0.store(1, Ordering::Release);
        // The kernel's wait compares under the same lock as this wake looks for waiters.
        self.word().wake_all();
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Resets it, and says whether it was set.
    pub fn take(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) != 0
    }

    /// The word to park on; 0 while it is not set.
    pub fn word(&self) -> FutexWord<'_> {
        FutexWord::new(&self.0)
    }
}
