//! Notices that an endpoint begins to listen, without polling.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use bellwire_shm::{lock, platform};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

use crate::doorbell::Eventfd;
use crate::fork::OwnerProcess;
use crate::notify::{self, MAX_UPDATES, Notify};
use crate::prelude::*;
use crate::reaper;

/// The run directories that this process watches.
static WATCHED: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());
/// The inotify instance of the last wait that ended, for the next one.
static SPARE: Mutex<Option<(OwnerProcess, OwnedFd)>> = Mutex::new(None);

/// A wait for an endpoint to come up: readable when one may have. All waits of a process for a run directory share one
/// inotify instance, which later waits use again: a user has few (`fs.inotify.max_user_instances`), and a close takes some 20 ms.
#[derive(Debug)]
pub struct Arrivals {
    /// Both of the others.
    epoll: OwnedFd,
    bell: Arc<Eventfd>,
    watched: Arc<Watched>,
}

#[derive(Debug)]
struct Watched {
    owner_process: OwnerProcess,
    run_dir: PathBuf,
    notify: Notify,
    /// One for each wait: whoever consumes the events rings the others, which may not have seen them yet.
    bells: Mutex<Vec<Weak<Eventfd>>>,
}

/// Has those notice who wait for this endpoint, which listens now: sets the modification time of its socket.
pub(crate) fn touch(socket: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    // The file is this process's own. If that fails, a waiting client tries again at the next change.
    let _ = utimensat(CWD, socket, &times, AtFlags::SYMLINK_NOFOLLOW);
}

impl platform::Arrivals for Arrivals {
    /// Watches a run directory, which need not exist. Check for the endpoint after this call, and after each
    /// [`Arrivals::take`].
    ///
    /// # Errors
    /// `EMFILE` at the limit of open files, or of inotify instances of this user. [`io::ErrorKind::PermissionDenied`] of a
    /// run directory that this user may not read, and others of one that cannot be watched, with what to do.
    fn watch(run_dir: &Path) -> io::Result<Self> {
        let bell = Arc::new(Eventfd::create()?);
        let watched = Watched::of(run_dir)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in [bell.as_fd(), watched.notify.as_fd()] {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        let mut bells = lock(&watched.bells);
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(&bell));
        drop(bells);
        Ok(Self { epoll, bell, watched })
    }

    fn take(&self) -> io::Result<()> {
        // The lock is held while events are consumed and the others rung: none of them finds neither.
        let bells = lock(&self.watched.bells);
        for _ in 0..MAX_UPDATES {
            if self.watched.notify.drain() {
                bells.iter().filter_map(Weak::upgrade).for_each(|bell| bell.ring());
            }
            self.bell.drain();
            if !self.watched.notify.update(true)? {
                break;
            }
        }
        Ok(())
    }

    fn release() {
        // In a child of fork the lock may be held for ever.
        if let Ok(mut spare) = SPARE.try_lock() {
            spare.take().into_iter().for_each(|(_, fd)| reaper::reap(fd));
        }
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Watched {
    /// Returns what this process has for the run directory, or watches it.
    fn of(run_dir: &Path) -> io::Result<Arc<Self>> {
        let mut all = lock(&WATCHED);
        all.retain(|watched| watched.strong_count() > 0);
        // A child of fork shares the events of its parent's.
        let is_it = |watched: &Arc<Self>| {
            watched.owner_process.is_owner_process() && watched.run_dir == run_dir
        };
        if let Some(watched) = all.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(watched);
        }
        // In a child of fork the lock may be held for ever.
        let spare = SPARE.try_lock().ok().and_then(|mut spare| spare.take());
        let spare = spare.filter(|(owner_process, _)| owner_process.is_owner_process());
        let fd = spare.map_or_else(notify::create, |(_, fd)| Ok(fd))?;
        let notify = Notify::of_arrivals(fd, run_dir)?;
        let bells = Mutex::default();
        let run_dir = run_dir.to_owned();
        let watched =
            Arc::new(Self { owner_process: OwnerProcess::current(), run_dir, notify, bells });
        watched.notify.update(false)?;
        all.push(Arc::downgrade(&watched));
        Ok(watched)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // That of a child of fork is its parent's, too.
        let fd = if self.owner_process.is_owner_process() { self.notify.retire() } else { None };
        if let Some(other) = fd.and_then(|fd| lock(&SPARE).replace((self.owner_process, fd))) {
            reaper::reap(other.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;
    use crate::{clock, poll};

    fn is_readable(arrivals: &Arrivals) -> bool {
        poll::wait_readable(&[arrivals.as_fd()], Some(clock::now())).unwrap().any()
    }

    /// The test of all waits, in which two wait at once, does not run meanwhile.
    static ALONE: Mutex<()> = Mutex::new(());

    fn instance(arrivals: &Arrivals) -> i32 {
        arrivals.watched.notify.as_fd().as_raw_fd()
    }

    #[test]
    fn lone_waits_use_one_inotify_instance_until_it_is_released() {
        let _alone = lock(&ALONE);
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let socket = dirs[0].path().join("echo.sock");
        File::create(&socket).unwrap();
        let first = instance(&Arrivals::watch(dirs[1].path()).unwrap());
        for turn in 0..200 {
            let arrivals = Arrivals::watch(dirs[turn % 2].path()).unwrap();
            assert_eq!(instance(&arrivals), first, "wait {turn} made another");
            touch(&socket);
            assert_eq!(is_readable(&arrivals), turn % 2 == 0, "a wait sees its own run dir");
        }
        let events = lock(&SPARE).take().unwrap();
        assert_eq!(events.0, OwnerProcess::current());
        let is_readable =
            poll::wait_readable(&[events.1.as_fd()], Some(clock::now())).unwrap().any();
        assert!(!is_readable, "nothing piles up while nobody waits");
        touch(&socket);
        let is_readable =
            poll::wait_readable(&[events.1.as_fd()], Some(clock::now())).unwrap().any();
        assert!(!is_readable, "nothing is watched while nobody waits");
        *lock(&SPARE) = Some(events);
        Arrivals::release();
        assert!(lock(&SPARE).is_none());
    }

    #[test]
    fn the_removal_of_a_run_dir_with_open_files_is_noticed() {
        let _alone = lock(&ALONE);
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        std::fs::create_dir(&run_dir).unwrap();
        let socket = run_dir.join("echo.sock");
        let _held = File::create(&socket).unwrap();
        let arrivals = Arrivals::watch(&run_dir).unwrap();
        std::fs::remove_dir_all(&run_dir).unwrap();
        assert!(is_readable(&arrivals));
        arrivals.take().unwrap();
        std::fs::create_dir(&run_dir).unwrap();
        assert!(is_readable(&arrivals), "that it is there again");
        arrivals.take().unwrap();
        File::create(&socket).unwrap();
        touch(&socket);
        assert!(is_readable(&arrivals));
    }

    #[test]
    fn changes_above_a_run_dir_wake_a_waiter_only_if_it_may_come_or_go() {
        let _alone = lock(&ALONE);
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let parent = missing.join("too");
        let run_dir = parent.join("run");
        let arrivals = Arrivals::watch(&run_dir).unwrap();
        // Each time it is missing anew.
        for _ in 0..2 {
            File::create(dir.path().join("file")).unwrap();
            assert!(is_readable(&arrivals), "what happens above a missing one may be its coming");
            arrivals.take().unwrap();
            std::fs::remove_file(dir.path().join("file")).unwrap();
            assert!(!is_readable(&arrivals), "what goes there is not its coming");
            std::fs::create_dir_all(&run_dir).unwrap();
            assert!(is_readable(&arrivals), "it has come");
            arrivals.take().unwrap();
            let socket = run_dir.join("echo.sock");
            File::create(&socket).unwrap();
            touch(&socket);
            assert!(is_readable(&arrivals), "there is a provider");
            arrivals.take().unwrap();
            for above in [dir.path(), &missing, &parent] {
                File::create(above.join("other")).unwrap();
                std::fs::remove_file(above.join("other")).unwrap();
                assert!(!is_readable(&arrivals), "{above:?} is still watched");
            }
            std::fs::rename(&parent, missing.join("elsewhere")).unwrap();
            assert!(is_readable(&arrivals), "it was moved");
            arrivals.take().unwrap();
            std::fs::remove_dir_all(&missing).unwrap();
            assert!(is_readable(&arrivals), "it has gone");
            arrivals.take().unwrap();
        }
    }

    #[test]
    fn all_waits_share_one_watch_and_each_is_woken() {
        let _alone = lock(&ALONE);
        let dir = tempfile::tempdir().unwrap();
        // The directory above the nearest is watched, too: not the one that everybody has files in.
        let run_dir = dir.path().join("own/not/yet");
        std::fs::create_dir(dir.path().join("own")).unwrap();
        let [first, second] = [(); 2].map(|()| Arrivals::watch(&run_dir).unwrap());
        assert!(Arc::ptr_eq(&first.watched, &second.watched));
        assert!(!is_readable(&first) && !is_readable(&second));
        std::fs::create_dir_all(&run_dir).unwrap();
        // The directory above it was watched.
        first.take().unwrap();
        assert!(is_readable(&second), "whoever was first told the other");
        second.take().unwrap();
        assert!(!is_readable(&first) && !is_readable(&second));
        let socket = run_dir.join("echo.sock");
        File::create(&socket).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert!(!is_readable(&first), "it does not listen");
        touch(&socket);
        assert!(is_readable(&first) && is_readable(&second));
        second.take().unwrap();
        assert!(is_readable(&first));
        first.take().unwrap();
        assert!(
            !is_readable(&first) && !is_readable(&second),
            "they tell each other nothing twice"
        );
        drop(first);
        touch(&socket);
        assert!(is_readable(&second));
        let watched = Arc::downgrade(&second.watched);
        drop(second);
        assert_eq!(watched.strong_count(), 0);
    }
}
