//! Work that several threads take from one queue.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::Error;

/// Has each of so many threads do the next of `jobs` until there is none; after an error, none is begun.
pub(crate) fn share<J>(
    threads: usize,
    jobs: impl Iterator<Item = J> + Send,
    work: impl Fn(J) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let queue = Mutex::new(jobs.fuse());
    let run = || {
        while let Some(job) = { lock(&queue).next() } {
            work(job).inspect_err(|_| lock(&queue).by_ref().for_each(drop))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().try_for_each(|handle| handle.join().map_err(|_| Error::Worker)?)
    })
}

/// A worker that panics ends its campaign; what it had locked is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
