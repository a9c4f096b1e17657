//! How to wake a parked peer: a futex on the word that changed, or an eventfd.

use crate::Linux;
use crate::prelude::*;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bellwire_core::Instant;
use bellwire_core::sync::{AtomicBool, AtomicU32, Ordering};
use bellwire_core::wire::Doorbell;
use bellwire_shm::platform;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
use rustix::thread::futex::{
    Flags, Wait, WaitFlags, WaitPtr, WaitvFlags, wait as futex_wait, waitv, wake as futex_wake,
};
use rustix::time::ClockId;

use crate::fork::OwnerProcess;
use crate::peer::{Credentials, User};
use crate::sealed::VerifyError;
use crate::{clock, reaper};

/// How many words one wait takes without an allocation.
const FEW: usize = 8;
/// How long a wait may miss changes of the words after the first, on a kernel without `futex_waitv`.
const SLICE: Duration = Duration::from_millis(10);
/// The bits of a file's mode that hold its type (`S_IFMT`).
const TYPE: u32 = 0o170_000;

/// A 32-bit word on which threads of several processes may park. It supports load, wait and wake, but no store, since its
/// memory may be the peer's and read-only.
///
/// Every operation is a shared one: with the PRIVATE flag a wake from another process would be lost.
#[derive(Clone, Copy, Debug)]
pub struct FutexWord<'a>(&'a AtomicU32);

/// Why [`futex_wait_any`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Woke {
    /// A wake, a word that had changed already, or a spurious wakeup: check again.
    CheckAgain,
    /// The deadline has passed.
    Deadline,
}

/// An [`eventfd(2)`](https://man7.org/linux/man-pages/man2/eventfd.2.html), `CLOEXEC` and non-blocking.
///
/// `O_NONBLOCK` is a flag of the file description, and a peer that holds the descriptor can clear it: then [`Eventfd::ring`]
/// blocks once the counter is full. Share one only with a trusted peer (same uid), and never share one eventfd between two
/// peers.
#[derive(Debug)]
pub struct Eventfd(OwnedFd, OwnerProcess);

/// The name that every transport uses for the object that a peer rings.
pub type WakeEvent = Eventfd;

impl<'a> FutexWord<'a> {
    #[inline]
    pub(crate) fn new(word: &'a AtomicU32) -> Self {
        Self(word)
    }

    /// Returns the current value. Relaxed: it is a hint for a wait, which checks again.
    #[inline]
    pub fn load(self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Wakes one thread that is parked here and returns whether there was one
    /// ([`FUTEX_WAKE(2)`](https://man7.org/linux/man-pages/man2/FUTEX_WAKE.2const.html)).
    pub fn wake_one(self) -> bool {
        self.wake(1) > 0
    }

    /// Wakes every thread that is parked here and returns how many there were.
    pub fn wake_all(self) -> usize {
        self.wake(i32::MAX.unsigned_abs())
    }

    fn wake(self, most: u32) -> usize {
        // This fails only for an address that is not mapped or not aligned; this one is both.
        futex_wake(self.0, Flags::empty(), most).unwrap_or(0)
    }
}

/// Sleeps until a wake at one of `words`, until one of them differs from the value beside it, or until `deadline`. Takes 1 to
/// 128 words.
///
/// Uses [`futex_waitv(2)`](https://docs.kernel.org/userspace-api/futex2.html), Linux 5.16. On an older kernel it sleeps on
/// the first word and checks the others every 10 ms.
pub fn futex_wait_any(words: &[(FutexWord<'_>, u32)], deadline: Option<Instant>) -> Woke {
    static MISSING: AtomicBool = AtomicBool::new(false);
    if !MISSING.load(Ordering::Relaxed) {
        let result = match words.len() {
            0 => return Woke::CheckAgain,
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
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Woke::CheckAgain,
            Err(Errno::TIMEDOUT) => return Woke::Deadline,
            Err(Errno::NOSYS) => MISSING.store(true, Ordering::Relaxed),
            // A sandbox forbids the call, or there are too many words: use the slow path.
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
    let Some((first, expected)) = words.first() else { return Woke::CheckAgain };
    loop {
        if words.iter().any(|(word, expected)| word.load() != *expected) {
            return Woke::CheckAgain;
        }
        let left = clock::left(deadline);
        if left == Some(Duration::ZERO) {
            return Woke::Deadline;
        }
        let slice = clock::span(left.map_or(SLICE, |left| left.min(SLICE)));
        match futex_wait(first.0, Flags::empty(), *expected, Some(&slice)) {
            Err(Errno::TIMEDOUT) => {}
            _ => return Woke::CheckAgain,
        }
    }
}

impl platform::WakeEvent<Linux> for Eventfd {
    type Passed<'a> = BorrowedFd<'a>;

    fn create() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Self(fd, OwnerProcess::current()))
    }

    /// A descriptor that is no eventfd goes to the reaper: to write or even to close it might block.
    fn from_peer(fd: OwnedFd) -> Result<Self, VerifyError> {
        if is_eventfd(fd.as_fd()) {
            return Ok(Self(fd, OwnerProcess::current()));
        }
        reaper::reap(fd);
        Err(VerifyError::NotEventfd)
    }

    fn for_peer(&self) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.as_fd())
    }

    /// In a child of fork, which shares the eventfd, this does nothing.
    fn ring(&self) {
        if !self.1.is_owner_process() {
            return;
        }
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Does not block, even if a peer that shares the eventfd made it blocking and resets the count first.
    fn drain(&self) -> bool {
        if !self.1.is_owner_process() {
            return false;
        }
        let mut count = [0; 8];
        // RWF_NOWAIT does not depend on the file description's flags.
        let bufs = &mut [IoSliceMut::new(&mut count)];
        matches!(preadv2(&self.0, bufs, u64::MAX, ReadWriteFlags::NOWAIT), Ok(8))
    }

    /// Returns the doorbell that this end asks `peer` to ring when the program wants `wanted`. A process of another user could
    /// fill a shared eventfd, so it gets none, unless this end acts as root.
    fn choose(wanted: Doorbell, peer: &Credentials) -> Doorbell {
        let shares = peer.user().is_own() || User::own().is_system();
        if wanted == Doorbell::Eventfd && !shares { Doorbell::Socket } else { wanted }
    }

    /// Returns whether this end may ring an eventfd of this peer. Another user's peer could fill it, and the ring would block.
    fn may_ring(peer: &Credentials) -> bool {
        peer.user().is_own() || peer.user().is_system()
    }
}

/// Returns whether this is an eventfd.
///
/// It writes only to a descriptor whose file has no type, as anonymous files have none: a write to a regular file, a socket
/// or a pipe might block. Of anonymous files only an eventfd accepts an 8-byte number, and adding 0 has no effect.
///
/// `fstat(2)` would ask the server of a FUSE file, which need not answer. `AT_STATX_DONT_SYNC` avoids that: the type of an
/// open file is known ([`statx(2)`](https://man7.org/linux/man-pages/man2/statx.2.html), Linux 4.11). Neither poll nor
/// `preadv2` would do: poll on FUSE asks the server too, and a read at the file's position waits for other readers there.
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
