//! Notices that endpoint files are gone or were replaced, by
//! [`inotify(7)`](https://man7.org/linux/man-pages/man7/inotify.7.html) instead of polling.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::reaper;

/// Watches the run directory, or where it was. Readable when something may have happened.
#[derive(Debug)]
pub struct Notify {
    /// `None` only during drop.
    fd: Option<OwnedFd>,
    run_dir: PathBuf,
    /// What happens to files in the run directory that is of interest.
    within: WatchFlags,
}

impl Notify {
    /// Watches a run directory for files that go or are replaced. Returns `None` if that is not possible: then changes go
    /// unnoticed.
    pub fn watch(run_dir: &Path) -> Option<Self> {
        // Others can only create files of other names: only a rename can replace ours.
        Self::watch_for(run_dir, WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO)
            .ok()
    }

    /// Watches a run directory for endpoints that begin to listen: see [`touch`](crate::arrivals::touch).
    pub(crate) fn watch_arrivals(run_dir: &Path) -> Result<Self, Errno> {
        Self::watch_for(run_dir, WatchFlags::ATTRIB | WatchFlags::MOVED_TO)
    }

    fn watch_for(run_dir: &Path, within: WatchFlags) -> Result<Self, Errno> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let run_dir = std::path::absolute(run_dir).map_err(|_| Errno::INVAL)?;
        let notify = Self { fd: Some(fd), run_dir, within };
        if notify.look() { Ok(notify) } else { Err(Errno::NOSPC) }
    }

    /// Consumes the events and keeps watching the directory, or its nearest existing ancestor. Check the files after this
    /// call. Returns whether there were events.
    pub fn take(&self) -> bool {
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut reader = Reader::new(self.as_fd(), &mut room);
        let mut any = false;
        while reader.next().is_ok() {
            any = true;
        }
        self.look();
        any
    }

    fn look(&self) -> bool {
        let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        let within = self.within;
        // What is in the way of the directory may go, too.
        let moves = WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        let comes = WatchFlags::CREATE | WatchFlags::DELETE | moves;
        // A directory that is already watched stays watched.
        let watch = |dir: &Path, what| inotify::add_watch(self, dir, itself | what).is_ok();
        let nearest = || {
            let dirs = self.run_dir.ancestors().enumerate();
            let what = |above| if above == 0 { within } else { comes };
            dirs.filter(|(above, dir)| watch(dir, what(*above))).map(|(above, _)| above).next()
        };
        // A directory below the nearest may be created before the watch begins: repeat until the nearest is the same.
        let mut before = None;
        loop {
            let now = nearest();
            if now.is_none_or(|above| above == 0) || now == before {
                return now.is_some();
            }
            before = now;
        }
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().map_or(rustix::fs::CWD, AsFd::as_fd)
    }
}

impl Drop for Notify {
    /// Closes on another thread: the kernel waits for all readers of the watch list, some 20 ms, and seconds on a busy
    /// machine.
    fn drop(&mut self) {
        self.fd.take().into_iter().for_each(reaper::reap);
    }
}
