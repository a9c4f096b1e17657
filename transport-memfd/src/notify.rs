//! Notices that endpoints' files are gone, or others have their names, by
//! [`inotify(7)`](https://man7.org/linux/man-pages/man7/inotify.7.html): nothing is polled.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use crate::reaper;

/// What happens to the run directory, or to where it was. Readable when something may have happened.
#[derive(Debug)]
pub struct Notify {
    /// Until it is dropped.
    fd: Option<OwnedFd>,
    run_dir: PathBuf,
}

impl Notify {
    /// Watches a run directory. `None` where that cannot be had: what happens there then goes unnoticed.
    pub fn watch(run_dir: &Path) -> Option<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let notify = Self { fd: Some(fd), run_dir: std::path::absolute(run_dir).ok()? };
        notify.look().then_some(notify)
    }

    /// Takes note of what has happened, and goes on watching: the directory, or the nearest one above it that there is. Look
    /// after this what is where.
    pub fn take(&self) {
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut reader = Reader::new(self.as_fd(), &mut room);
        while reader.next().is_ok() {}
        self.look();
    }

    fn look(&self) -> bool {
        let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        // What is created by others has another's name: only a rename can take ours.
        let within = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        let comes = WatchFlags::CREATE | within;
        // A directory that is watched already stays so.
        let watch = |dir: &Path, what| inotify::add_watch(self, dir, itself | what).is_ok();
        let nearest = || {
            let dirs = self.run_dir.ancestors().enumerate();
            let what = |above| if above == 0 { within } else { comes };
            dirs.filter(|(above, dir)| watch(dir, what(*above))).map(|(above, _)| above).next()
        };
        // One below the nearest may come before that is watched: until it is the nearest once more.
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
    /// The kernel waits for all who read the list of watches: some 20 ms, and on a busy machine seconds.
    fn drop(&mut self) {
        self.fd.take().into_iter().for_each(reaper::reap);
    }
}
