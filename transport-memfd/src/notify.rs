//! Notices that endpoint files are gone or were replaced, by
//! [`inotify(7)`](https://man7.org/linux/man-pages/man7/inotify.7.html) instead of polling.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::reaper;

/// Watches the run directory, or where it was. Readable when something may have happened.
#[derive(Debug)]
pub struct Notify {
    /// `None` only when it is retired.
    fd: Option<OwnedFd>,
    run_dir: PathBuf,
    /// What happens to files in the run directory that is of interest.
    within: WatchFlags,
    /// What [`Notify::retire`] ends.
    watches: Mutex<BTreeSet<i32>>,
}

impl Notify {
    /// Watches a run directory for files that go or are replaced. Returns `None` if that is not possible: then changes go
    /// unnoticed.
    pub fn watch(run_dir: &Path) -> Option<Self> {
        // Others can only create files of other names: only a rename can replace ours.
        let within = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        let notify = Self::new(create().ok()?, run_dir, within).ok()?;
        let _ = notify.look();
        Some(notify)
    }

    /// From its first [`Notify::look`] on, watches a run directory for endpoints that begin to listen: see
    /// [`touch`](crate::arrivals::touch).
    pub(crate) fn of_arrivals(fd: OwnedFd, run_dir: &Path) -> io::Result<Self> {
        Self::new(fd, run_dir, WatchFlags::ATTRIB | WatchFlags::MOVED_TO)
    }

    fn new(fd: OwnedFd, run_dir: &Path, within: WatchFlags) -> io::Result<Self> {
        let run_dir = std::path::absolute(run_dir)?;
        Ok(Self { fd: Some(fd), run_dir, within, watches: Mutex::default() })
    }

    /// Ends its watches, and leaves the inotify instance for another use.
    pub(crate) fn retire(&mut self) -> Option<OwnedFd> {
        let watches = self.watches.get_mut().unwrap_or_else(PoisonError::into_inner);
        for watch in std::mem::take(watches) {
            // Some ended with their directories.
            let _ = inotify::remove_watch(self.as_fd(), watch);
        }
        self.drain();
        self.fd.take()
    }

    /// Consumes the events and keeps watching the directory, or its nearest existing ancestor. Check the files after this
    /// call.
    pub fn take(&self) {
        self.drain();
        let _ = self.look();
    }

    /// Consumes the events. Returns whether there were any.
    pub(crate) fn drain(&self) -> bool {
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut reader = Reader::new(self.as_fd(), &mut room);
        let mut any = false;
        while reader.next().is_ok() {
            any = true;
        }
        any
    }

    /// Watches the directory, or its nearest existing ancestor.
    ///
    /// # Errors
    /// A directory exists, or may, that cannot be watched: what happens in it goes unnoticed.
    pub(crate) fn look(&self) -> io::Result<()> {
        // A directory below the nearest may be created before the watch begins: repeat until the nearest is the same.
        let mut before = None;
        loop {
            let mut failed = None;
            let mut dirs = self.run_dir.ancestors().enumerate();
            let nearest = dirs.find(|(above, dir)| match self.watch_dir(dir, *above > 0) {
                Ok(watch) => {
                    let watches = self.watches.lock();
                    watches.unwrap_or_else(PoisonError::into_inner).insert(watch);
                    true
                }
                Err(Errno::NOENT | Errno::NOTDIR) => false,
                Err(error) => {
                    failed.get_or_insert_with(|| unwatched(dir, error));
                    false
                }
            });
            let nearest = nearest.map(|(above, _)| above);
            if nearest.is_none_or(|above| above == 0) || nearest == before {
                return failed.map_or(Ok(()), Err);
            }
            before = nearest;
        }
    }

    /// A directory that is already watched stays watched.
    fn watch_dir(&self, dir: &Path, is_above: bool) -> Result<i32, Errno> {
        let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        // What is in the way of the directory may go, too.
        let moves = WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        let comes = WatchFlags::CREATE | WatchFlags::DELETE | moves;
        inotify::add_watch(self, dir, itself | if is_above { comes } else { self.within })
    }
}

/// Creates an inotify instance, of which a user has few.
///
/// # Errors
/// That of the system call, with what to do.
pub(crate) fn create() -> io::Result<OwnedFd> {
    let created = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
    created.map_err(|error| {
        let advice = match error {
            Errno::MFILE => {
                "raise fs.inotify.max_user_instances, or the limit of open files (RLIMIT_NOFILE)"
            }
            _ => "see inotify_init(2)",
        };
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("no inotify instance: {error}: {advice}"))
    })
}

/// Says what to do about a directory that cannot be watched.
fn unwatched(dir: &Path, error: Errno) -> io::Error {
    let advice = match error {
        Errno::ACCESS => {
            "let this user read it, and search those above it (chmod), or call refresh at intervals"
        }
        Errno::NOSPC => "raise fs.inotify.max_user_watches",
        _ => "see inotify_add_watch(2)",
    };
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{} cannot be watched: {error}: {advice}", dir.display()))
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
