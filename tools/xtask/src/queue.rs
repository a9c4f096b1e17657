//! Work that several threads take from one queue.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::Error;

/// How many threads share the work: as many as were asked for, else one for each processor.
pub(crate) fn threads(wanted: Option<usize>) -> usize {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    wanted.unwrap_or_else(processors).max(1)
}

/// Has each of so many threads do the next of `jobs` until there is none; after an error, none is begun. Returns what they came
/// to, in the order of the jobs.
pub(crate) fn share<J, T: Send>(
    threads: usize,
    jobs: impl Iterator<Item = J> + Send,
    work: impl Fn(J) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let (queue, done) = (Mutex::new(jobs.enumerate().fuse()), Mutex::new(Vec::new()));
    let run = || -> Result<(), Error> {
        while let Some((at, job)) = { lock(&queue).next() } {
            let result = work(job).inspect_err(|_| lock(&queue).by_ref().for_each(drop))?;
            lock(&done).push((at, result));
        }
        Ok(())
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().try_for_each(|handle| handle.join().map_err(|_| Error::Worker)?)
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// A worker that panics ends its campaign; what it had locked is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
