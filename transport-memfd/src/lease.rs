#![allow(unsafe_code, reason = "rustix has no leases: fcntl is called as the C library has it")]
//! Whether a peer still has memory that it was lent.
//!
//! The kernel charges a memfd's pages to its creator as long as any process has it open or mapped. No call returns how many
//! do, but a lease helps: it is granted only if no other open file description of the inode is left ([`fcntl(2)`,
//! `F_SETLEASE`](https://man7.org/linux/man-pages/man2/fcntl.2.html)). A description lives as long as its descriptors, its
//! mappings, and the messages that carry it. The description from `memfd_create` is not counted, so the peer gets one that
//! was opened anew through `/proc`; descriptions that the peer opens count too.
//!
//! An `O_PATH` descriptor and an inotify watch keep the inode alive and are not detected.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bellwire_shm::{Charge, LentMemory, Loan};
use rustix::fs::{Mode, OFlags};

use crate::clock;

/// The kernel's number; the C library defines it on some systems only.
const F_SETSIG: libc::c_int = 10;

/// A description of a memfd that no peer gets, used to check whether a peer still has another one. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Arc<OwnedFd>);

impl Watch {
    /// Returns a watch and the description to send in place of `memfd`; `None` without `/proc` or without descriptors.
    pub(crate) fn begin(memfd: BorrowedFd<'_>) -> Option<(Self, OwnedFd)> {
        let watch = open(memfd, OFlags::RDONLY)?;
        Some((Self(Arc::new(watch)), open(memfd, OFlags::RDWR)?))
    }

    /// Keeps `charge` until no peer has the memory any more.
    pub(crate) fn loan(watch: Option<Self>, charge: Charge) -> Loan {
        Loan::new(charge, watch.map(|watch| Box::new(watch) as Box<dyn LentMemory>), clock::now)
    }
}

impl LentMemory for Watch {
    fn is_released(&self) -> bool {
        let call = |command: libc::c_int, argument: libc::c_int| {
            // SAFETY: the descriptor is open, and each of these commands takes an integer.
            unsafe { libc::fcntl(self.0.as_raw_fd(), command, argument) == 0 }
        };
        // If another process opens the file while this one has the lease, the kernel sends a signal: SIGIO by default, which
        // ends a process that does not expect it. SIGURG is ignored by default. Giving up the lease undoes this.
        let is_granted = call(F_SETSIG, libc::SIGURG) && call(libc::F_SETLEASE, libc::F_WRLCK);
        if is_granted {
            call(libc::F_SETLEASE, libc::F_UNLCK);
        }
        is_granted
    }
}

/// Opens a memfd anew. The path belongs to this thread and the file to this process: neither can block.
fn open(memfd: BorrowedFd<'_>, access: OFlags) -> Option<OwnedFd> {
    let path = format!("/proc/thread-self/fd/{}", memfd.as_fd().as_raw_fd());
    rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use bellwire_core::sync::{AtomicBool, Ordering};
    use rustix::fs::MemfdFlags;

    use super::*;

    /// A peer that reopens the file through an undetected `O_PATH` descriptor may meet a lease, held for a microsecond.
    #[test]
    fn a_peer_that_reopens_leased_memory_kills_no_process() {
        let memfd = rustix::fs::memfd_create("lent", MemfdFlags::CLOEXEC).unwrap();
        let (watch, passed) = Watch::begin(memfd.as_fd()).unwrap();
        let unseen = open(passed.as_fd(), OFlags::PATH).unwrap();
        drop((memfd, passed));
        let is_over = AtomicBool::new(false);
        let (mut granted, mut refused) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(open(unseen.as_fd(), OFlags::RDONLY));
                }
            });
            while granted < 10_000 || refused < 10_000 {
                let is_released = watch.is_released();
                granted += u32::from(is_released);
                refused += u32::from(!is_released);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(watch.is_released());
    }
}
