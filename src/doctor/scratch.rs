//! Directories of a trial's own, which a later trial removes when theirs was killed.
//!
//! A file in the directory is locked ([`flock(2)`](https://man7.org/linux/man-pages/man2/flock.2.html) on Linux) by who
//! owns it. The system gives the lock up with the process, whatever ended it: what is not locked belongs to nobody.
//! A directory without the file is left alone: it is somebody else's, or being made.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

/// The file that is locked.
const OWNER: &str = "owner";

/// A directory is owned as long as this lives.
#[derive(Debug)]
pub struct Owned {
    _lock: File,
}

/// Makes a new, empty directory one's own, before anything is put into it. `None` when a [`sweep`] was faster: make
/// another one.
///
/// # Errors
/// The file cannot be made, or not be locked.
pub fn own(dir: &Path) -> io::Result<Option<Owned>> {
    let owner = dir.join(OWNER);
    let lock = match File::create_new(&owner) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lock => lock?,
    };
    match lock.try_lock() {
        // A sweep holds it, or has had it and removed the file.
        Err(TryLockError::WouldBlock) => Ok(None),
        Ok(()) => Ok(owner.exists().then_some(Owned { _lock: lock })),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the directories in `parent` whose names begin with `prefix` and that were somebody's own, and are no more.
/// What cannot be removed stays.
pub fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            remove_if_left(&entry.path());
        }
    }
}

fn remove_if_left(dir: &Path) {
    let owner = dir.join(OWNER);
    // Nothing that opening could wait for.
    if !fs::symlink_metadata(&owner).is_ok_and(|data| data.is_file()) {
        return;
    }
    let Ok(lock) = File::open(&owner) else { return };
    if lock.try_lock().is_ok() {
        // Still locked, so that two sweeps do not meet; where an open file keeps its directory, once more without.
        if fs::remove_dir_all(dir).is_err() {
            drop(lock);
            let _ = fs::remove_dir_all(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owned_stays_and_what_nobody_owns_any_more_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        };
        let [living, left, foreign, other] = ["a-1", "a-2", "a-3", "b-1"].map(make);
        let owned = own(&living).unwrap().unwrap();
        for dir in [&left, &other] {
            drop(own(dir).unwrap().unwrap());
            fs::create_dir(dir.join("inner")).unwrap();
        }
        sweep(parent.path(), "a-");
        assert_eq!(
            [&living, &left, &foreign, &other].map(|dir| dir.exists()),
            [true, false, true, true]
        );
        drop(owned);
        sweep(parent.path(), "a-");
        assert_eq!([&living, &foreign, &other].map(|dir| dir.exists()), [false, true, true]);
        assert!(own(&living).unwrap().is_none(), "it is gone");
    }

    #[test]
    fn what_a_sweep_is_removing_cannot_become_anybodys_own() {
        let dir = tempfile::tempdir().unwrap();
        let owner = dir.path().join(OWNER);
        let before = own(dir.path()).unwrap().unwrap();
        drop(before);
        let sweeper = File::open(&owner).unwrap();
        sweeper.try_lock().unwrap();
        // Made anew while the sweep holds the old one: there is one owner at a time.
        own(dir.path()).unwrap_err();
        drop(sweeper);
        fs::remove_dir_all(dir.path()).unwrap();
        assert!(own(dir.path()).unwrap().is_none());
    }
}
