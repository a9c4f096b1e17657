//! Temporary directories of trials; a later trial removes those of killed ones.
//!
//! The owner locks a file in the directory ([`flock(2)`](https://man7.org/linux/man-pages/man2/flock.2.html) on
//! Linux). The system releases the lock when the process ends for whatever reason, so an unlocked directory has no
//! owner. A directory without the file is left alone: it belongs to another program, or is being created.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

/// The file that is locked.
const OWNER: &str = "owner";

/// Owns a directory for as long as it lives.
#[derive(Debug)]
pub struct Owned {
    _lock: File,
}

/// Takes ownership of a new, empty directory before it is filled. Returns `None` when a [`sweep`] was faster: create
/// another one.
///
/// # Errors
/// The file cannot be created or locked.
pub fn own(dir: &Path) -> io::Result<Option<Owned>> {
    let owner = dir.join(OWNER);
    let lock = match File::create_new(&owner) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lock => lock?,
    };
    match lock.try_lock() {
        // A sweep holds the lock, or has already removed the file.
        Err(TryLockError::WouldBlock) => Ok(None),
        Ok(()) => Ok(owner.exists().then_some(Owned { _lock: lock })),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the directories in `parent` whose names begin with `prefix` and whose owners are gone. Keeps what cannot
/// be removed.
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
    // Opening a regular file cannot block.
    if !fs::symlink_metadata(&owner).is_ok_and(|data| data.is_file()) {
        return;
    }
    let Ok(lock) = File::open(&owner) else { return };
    if lock.try_lock().is_ok() {
        // Still locked, so that two sweeps do not meet; retried unlocked where an open file keeps its directory.
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
    fn owned_folders_stay_and_abandoned_ones_are_removed() {
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
        // A child that another test forked has the lock until it executes a program.
        for _ in 0..1000 {
            sweep(parent.path(), "a-");
            if !living.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!([&living, &foreign, &other].map(|dir| dir.exists()), [false, true, true]);
        assert!(own(&living).unwrap().is_none(), "it is gone");
    }

    #[test]
    fn a_folder_that_a_sweep_removes_cannot_be_owned() {
        let dir = tempfile::tempdir().unwrap();
        let owner = dir.path().join(OWNER);
        let before = own(dir.path()).unwrap().unwrap();
        drop(before);
        let sweeper = File::open(&owner).unwrap();
        sweeper.try_lock().unwrap();
        // Created again while the sweep holds the old file: there is one owner at a time.
        own(dir.path()).unwrap_err();
        drop(sweeper);
        fs::remove_dir_all(dir.path()).unwrap();
        assert!(own(dir.path()).unwrap().is_none());
    }
}
