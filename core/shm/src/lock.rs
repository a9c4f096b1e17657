use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holders cannot panic halfway through a change, so that a panic elsewhere in their thread says nothing
/// about what it guards.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
