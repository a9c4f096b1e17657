//! Work that several threads take from one queue.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::Error;

/// Has each worker, in a thread of its own, do the next of `jobs` until there is none; after an error, none is begun.
pub(crate) fn share<W: Sync, J>(
    workers: &[W],
    jobs: impl Iterator<Item = J> + Send,
    work: impl Fn(&W, J) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let queue = Mutex::new(jobs.fuse());
    let run = |worker: &W| {
        while let Some(job) = { lock(&queue).next() } {
            work(worker, job).inspect_err(|_| lock(&queue).by_ref().for_each(drop))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> =
            workers.iter().map(|worker| scope.spawn(move || run(worker))).collect();
        handles.into_iter().try_for_each(|handle| handle.join().map_err(|_| Error::Worker)?)
    })
}

/// A worker that panics ends its campaign; what it had locked is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
