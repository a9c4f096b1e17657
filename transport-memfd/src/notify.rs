//! Notices that endpoint files are gone or were replaced, by
//! [`inotify(7)`](https://man7.org/linux/man-pages/man7/inotify.7.html) instead of polling.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use bellwire_shm::{lock, platform};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::Linux;
use crate::reaper;

/// How often one call updates the watches: whoever replaces directories again and again must not hold the caller up. It is woken
/// once more for the last.
pub(crate) const MAX_UPDATES: usize = 4;
/// What happens in a directory when the next one on the path goes, and when it comes.
const REMOVED: WatchFlags = WatchFlags::DELETE.union(WatchFlags::MOVED_FROM);
const ADDED: WatchFlags = WatchFlags::CREATE.union(WatchFlags::MOVED_TO);

/// Watches the run directory, or where it was. Readable when something may have happened.
#[derive(Debug)]
pub struct Notify {
    /// `None` only when it is retired.
    fd: Option<OwnedFd>,
    run_dir: PathBuf,
    /// What happens to files in the run directory that is of interest, and in the nearest one above it while it is missing.
    within: WatchFlags,
    nearest: WatchFlags,
    /// Those of the directories that matter now.
    watches: Mutex<BTreeSet<i32>>,
}

impl Notify {
    /// From its first [`Notify::update`] on, watches a run directory for endpoints that begin to listen: see
    /// [`touch`](crate::arrivals::touch).
    pub(crate) fn of_arrivals(fd: OwnedFd, run_dir: &Path) -> io::Result<Self> {
        // Files are removed before their directory is: after the last one, the one above it tells when it goes. Nobody comes
        // up when files are removed above it.
        Self::new(fd, run_dir, REMOVED | WatchFlags::ATTRIB | WatchFlags::MOVED_TO, ADDED)
    }

    fn new(
        fd: OwnedFd,
        run_dir: &Path,
        within: WatchFlags,
        nearest: WatchFlags,
    ) -> io::Result<Self> {
        let run_dir = std::path::absolute(run_dir)?;
        Ok(Self { fd: Some(fd), run_dir, within, nearest, watches: Mutex::default() })
    }

    /// Ends its watches, and leaves the inotify instance for another use.
    pub(crate) fn retire(&mut self) -> Option<OwnedFd> {
        let watches = self.watches.get_mut().unwrap_or_else(PoisonError::into_inner);
        let watches = std::mem::take(watches);
        watches.into_iter().for_each(|watch| self.end(watch));
        self.drain();
        self.fd.take()
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

    /// Watches the directory, or its nearest existing ancestor and the one above that. A removed directory reports its end only
    /// when the last file that was in it is closed, so the one above it is watched for that; the run directory's only if
    /// `is_missing`, and for what is removed there only when no file is left in the run directory: others are removed first.
    ///
    /// Other directories do not stay watched: in one like `/tmp`, above a run dir that was missing, much happens. Returns whether
    /// watches ended. That is an event, too: consume the events, and update once more.
    ///
    /// # Errors
    /// A directory exists, or may, that cannot be watched: what happens in it goes unnoticed.
    pub(crate) fn update(&self, is_missing: bool) -> io::Result<bool> {
        let mut watches = lock(&self.watches);
        let mut current = BTreeSet::new();
        if let Err(error) = self.watch_nearest(is_missing, &mut current, &mut watches) {
            // What cannot be watched anew may be watched still.
            watches.append(&mut current);
            return Err(error);
        }
        let stale: Vec<i32> = watches.difference(&current).copied().collect();
        stale.iter().for_each(|&watch| self.end(watch));
        *watches = current;
        Ok(!stale.is_empty())
    }

    /// Watches what [`Notify::update`] says: those watches are `current` then. What it watched on the way is added to `before`.
    fn watch_nearest(
        &self,
        is_missing: bool,
        current: &mut BTreeSet<i32>,
        before: &mut BTreeSet<i32>,
    ) -> io::Result<()> {
        // A directory below the nearest may be created before the watch begins: repeat until the nearest is the same.
        let mut seen = None;
        loop {
            let (mut found, mut failed) = (None, None);
            let mut dirs = self.run_dir.ancestors().enumerate();
            let nearest = dirs.find(|(above, dir)| {
                let wanted = if *above > 0 { self.nearest } else { self.within };
                match self.watch_dir(dir, wanted) {
                    Ok(watch) => {
                        found = Some(watch);
                        true
                    }
                    Err(Errno::NOENT | Errno::NOTDIR) => false,
                    Err(error) => {
                        failed.get_or_insert_with(|| unwatched(dir, error));
                        false
                    }
                }
            });
            let nearest = nearest.map(|(above, _)| above);
            if nearest != seen {
                before.append(current);
            }
            current.extend(found);
            if nearest.is_none() || nearest == seen || nearest == Some(0) && !is_missing {
                return failed.map_or(Ok(()), Err);
            }
            if let Some((_, above)) = dirs.next() {
                // Without the right to watch it, the end of the nearest may go unnoticed until its files are closed.
                let is_told = nearest == Some(0) && ends_with_events(&self.run_dir);
                let wanted = if is_told { WatchFlags::empty() } else { REMOVED };
                current.extend(self.watch_dir(above, wanted));
            }
            seen = nearest;
        }
    }

    /// Watches a directory for what is `wanted`, and for its own end. One that is already watched stays watched, for this only.
    fn watch_dir(&self, dir: &Path, wanted: WatchFlags) -> Result<i32, Errno> {
        let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        inotify::add_watch(self, dir, itself | wanted)
    }

    /// Ends a watch, if it did not end with its directory.
    fn end(&self, watch: i32) {
        let _ = inotify::remove_watch(self, watch);
    }
}

impl platform::Notify<Linux> for Notify {
    fn watch(run_dir: &Path) -> Option<Self> {
        // Others can only create files of other names: only a rename can replace ours.
        let within = REMOVED | WatchFlags::MOVED_TO;
        // What is in the run dir's way may go, too.
        let notify = Self::new(create().ok()?, run_dir, within, REMOVED | ADDED).ok()?;
        let _ = notify.update(false);
        Some(notify)
    }

    fn changed(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn take(&self, is_missing: bool) {
        for _ in 0..MAX_UPDATES {
            self.drain();
            if !matches!(self.update(is_missing), Ok(true)) {
                return;
            }
        }
    }
}

/// Returns whether something happens in a directory before it can go: it is no link, and there are files in it.
fn ends_with_events(dir: &Path) -> bool {
    !dir.is_symlink() && fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some())
}

/// A system call failed, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}: {advice}")]
struct Advised {
    what: String,
    source: io::Error,
    advice: &'static str,
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
        advised("no inotify instance", error, advice)
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
    advised(&format!("{} cannot be watched", dir.display()), error, advice)
}

fn advised(what: &str, error: Errno, advice: &'static str) -> io::Error {
    let (what, source) = (what.to_owned(), io::Error::from(error));
    io::Error::new(source.kind(), Advised { what, source, advice })
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::clock;
    use crate::poll::wait_readable;
    use crate::prelude::*;

    #[test]
    fn directories_watched_during_an_update_are_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let (passed, run_dir) = (dir.path().join("passed"), dir.path().join("run"));
        fs::create_dir(&passed).unwrap();
        fs::create_dir(&run_dir).unwrap();
        let notify = Notify::watch(&run_dir).unwrap();
        // As after a round in which another directory was the nearest.
        let passed = notify.watch_dir(&passed, ADDED).unwrap();
        let (mut current, mut before) = (BTreeSet::from([passed]), BTreeSet::new());
        notify.watch_nearest(false, &mut current, &mut before).unwrap();
        assert!(!current.contains(&passed) && before.contains(&passed));
    }

    #[test]
    fn the_removal_of_a_directory_with_open_files_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("above");
        let run_dir = above.join("run");
        fs::create_dir_all(&run_dir).unwrap();
        let held = [above.join("file"), run_dir.join("file")].map(|file| {
            let _ = File::create(&file).unwrap();
            File::open(file).unwrap()
        });
        let notify = Notify::watch(&run_dir).unwrap();
        let has_news = || {
            let soon = clock::now().after(std::time::Duration::from_secs(10));
            wait_readable(&[notify.as_fd()], Some(soon)).unwrap().any()
        };
        let _ = File::create(run_dir.join("other")).unwrap();
        for file in ["other", "file"] {
            fs::remove_file(run_dir.join(file)).unwrap();
            assert!(has_news(), "{file}");
            notify.take(true);
        }
        fs::remove_dir(&run_dir).unwrap();
        assert!(has_news(), "the run dir");
        notify.take(true);
        fs::remove_dir_all(&above).unwrap();
        assert!(has_news(), "the one above it");
        notify.take(true);
        fs::create_dir(&above).unwrap();
        assert!(has_news(), "that it is there again");
        drop(held);
    }
}
