#![allow(unsafe_code, reason = "waits for handles, by this thread and by the system's thread pool")]
//! Waiting for handles.

use crate::Windows;
use crate::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwire_core::sync::{AtomicUsize, Ordering};
use bellwire_core::{Backend, BackendStatus, Instant};
use bellwire_shm::{lock, platform};
use windows_sys::Win32::Foundation::{
    ERROR_INVALID_PARAMETER, HANDLE, WAIT_FAILED, WAIT_OBJECT_0, WAIT_TIMEOUT,
};
use windows_sys::Win32::System::Threading::{
    CloseThreadpoolWait, CreateThreadpoolWait, PTP_CALLBACK_INSTANCE, PTP_WAIT, SetThreadpoolWait,
    Sleep, WaitForMultipleObjects, WaitForThreadpoolWaitCallbacks,
};

pub use bellwire_shm::{Interest, PollEvent, Trigger};

use crate::doorbell::Event as Bell;
use crate::handle::{Access, duplicate};
use crate::{OsError, clock};

/// The maximum number of handles for one [`wait`]: the system's limit, `MAXIMUM_WAIT_OBJECTS`.
pub const MAX_HANDLES: usize = 64;

/// Waits for any number of handles with the system's thread pool
/// ([`CreateThreadpoolWait`](https://learn.microsoft.com/en-us/windows/win32/api/threadpoolapiset/nf-threadpoolapiset-createthreadpoolwait)).
///
/// A ready handle costs one switch to a pool thread and one from there to the waiter. The pool has a thread for every 63
/// handles; on Windows 8 and newer, one for all of them.
#[derive(Debug)]
pub struct Poller {
    ready: Arc<Ready>,
    /// By handle number, which is not reused before the handle is closed.
    watched: HashMap<usize, Watch>,
    /// Reported by the last wait; not watched until the next one.
    resting: Vec<usize>,
}

/// Room for the events of one wait, reused from one to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    found: Vec<Found>,
}

/// Handles that the pool's threads have found ready.
#[derive(Debug)]
struct Ready {
    found: Mutex<Vec<Found>>,
    bell: Bell,
}

/// A handle found ready: its number and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    key: usize,
    token: u64,
}

/// One handle that the pool waits for.
#[derive(Debug)]
struct Watch {
    wait: PTP_WAIT,
    /// A duplicate: the owner may close its handle while the pool still waits.
    handle: OwnedHandle,
    /// Of its context in [`CONTEXTS`].
    id: usize,
}

/// Where a callback reports that its handle is ready.
#[derive(Clone, Debug)]
struct Context {
    found: Found,
    ready: Arc<Ready>,
}

/// The contexts of all watches of this process, by ids that are not used again.
///
/// The pool gives a callback an id, not a pointer. Windows starts no callback after `Watch::drop`, but Wine 8 may: its wait
/// thread can be woken before the wait is disarmed and queue the callback after the wait is drained.
static CONTEXTS: Mutex<BTreeMap<usize, Context>> = Mutex::new(BTreeMap::new());
static LAST_ID: AtomicUsize = AtomicUsize::new(0);

/// Sleeps until one of `handles` is ready or until `deadline`, and returns the position of the first ready one; `None` after
/// the deadline. An auto-reset event is reset only if it is that one.
///
/// [`WaitForMultipleObjects`](https://learn.microsoft.com/en-us/windows/win32/api/synchapi/nf-synchapi-waitformultipleobjects).
///
/// # Errors
/// More than [`MAX_HANDLES`] handles, or one that cannot be waited for.
pub fn wait(
    handles: &[BorrowedHandle<'_>],
    deadline: Option<Instant>,
) -> Result<Option<usize>, OsError> {
    let mut raw: [HANDLE; MAX_HANDLES] = [ptr::null_mut(); MAX_HANDLES];
    for (slot, handle) in raw.iter_mut().zip(handles) {
        *slot = handle.as_raw_handle();
    }
    if handles.len() > MAX_HANDLES {
        return Err(OsError::new(ERROR_INVALID_PARAMETER));
    }
    let count = u32::try_from(handles.len()).unwrap_or(u32::MAX);
    loop {
        let left = clock::left(deadline);
        let woke = if count > 0 {
            // SAFETY: `raw` holds `count` handles, which are borrowed.
            unsafe { WaitForMultipleObjects(count, raw.as_ptr(), 0, left) }
        } else {
            // SAFETY: nothing but time passes.
            unsafe { Sleep(left) };
            WAIT_TIMEOUT
        };
        if woke == WAIT_FAILED {
            return Err(OsError::last());
        }
        if woke.wrapping_sub(WAIT_OBJECT_0) < count {
            return Ok(usize::try_from(woke - WAIT_OBJECT_0).ok());
        }
        // A wait of some milliseconds may end slightly early.
        if clock::is_over(deadline) {
            return Ok(None);
        }
    }
}

impl Poller {
    /// Creates an empty poller.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn create() -> Result<Self, OsError> {
        Bell::create().map(Self::ringing)
    }

    /// Creates a poller that rings `bell` when a handle is ready.
    pub(crate) fn ringing(bell: Bell) -> Self {
        let ready = Ready { found: Mutex::default(), bell };
        Self { ready: Arc::new(ready), watched: HashMap::new(), resting: Vec::new() }
    }

    /// Forgets which handles were ready and makes the pool check again.
    pub(crate) fn recheck(&mut self) {
        self.resting.extend(lock(&self.ready.found).drain(..).map(|found| found.key));
        self.arm();
    }

    fn arm(&mut self) {
        for key in self.resting.drain(..) {
            if let Some(watch) = self.watched.get(&key) {
                watch.arm();
            }
        }
    }
}

impl platform::Poller<Windows> for Poller {
    type Events = Events;

    const REPORTS_HANGUP: bool = false;

    fn choose(wanted: Backend) -> Result<(Self, BackendStatus), OsError> {
        let backend = Backend::ThreadPool;
        let why_not = match wanted {
            Backend::Auto | Backend::ThreadPool => None,
            _ => Some("Windows has its thread pool only"),
        };
        Ok((Self::create()?, BackendStatus { backend, why_not }))
    }

    fn add(
        &mut self,
        handle: BorrowedHandle<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), OsError> {
        let key = number(&handle);
        if !interest.readable {
            self.delete(handle);
            return Ok(());
        }
        let handle = duplicate(handle, Access::Same)?;
        let context = Context { found: Found { key, token }, ready: Arc::clone(&self.ready) };
        self.watched.insert(key, Watch::create(handle, context)?);
        self.resting.push(key);
        Ok(())
    }

    fn modify(
        &mut self,
        handle: BorrowedHandle<'_>,
        token: u64,
        interest: Interest,
    ) -> Result<(), OsError> {
        self.delete(handle);
        self.add(handle, token, interest)
    }

    fn delete(&mut self, handle: BorrowedHandle<'_>) -> bool {
        let key = number(&handle);
        let was_there = self.watched.remove(&key).is_some();
        if was_there {
            lock(&self.ready.found).retain(|found| found.key != key);
            self.resting.retain(|resting| *resting != key);
        }
        was_there
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, OsError> {
        events.found.clear();
        self.arm();
        let until = timeout.map(|timeout| clock::now().after(timeout));
        loop {
            std::mem::swap(&mut *lock(&self.ready.found), &mut events.found);
            if !events.found.is_empty() {
                break;
            }
            if wait(&[self.ready.bell.as_handle()], until)?.is_none() {
                break;
            }
        }
        self.resting.extend(events.found.iter().map(|found| found.key));
        Ok(events.found.len())
    }
}

impl Events {
    /// Creates room for `most` events without further allocation.
    pub fn with_capacity(most: usize) -> Self {
        Self { found: Vec::with_capacity(most) }
    }

    /// Returns the events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = PollEvent> + '_ {
        let event = |found: &Found| PollEvent {
            token: found.token,
            readable: true,
            writable: false,
            hung_up: false,
        };
        self.found.iter().map(event)
    }
}

impl Watch {
    fn create(handle: OwnedHandle, context: Context) -> Result<Self, OsError> {
        // Relaxed: it guards no other memory.
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed);
        lock(&CONTEXTS).insert(id, context);
        let argument = ptr::without_provenance_mut(id);
        // SAFETY: the callback follows no pointer: its argument is a number.
        let wait = unsafe { CreateThreadpoolWait(Some(on_ready), argument, ptr::null()) };
        if wait == 0 {
            let error = OsError::last();
            lock(&CONTEXTS).remove(&id);
            return Err(error);
        }
        Ok(Self { wait, handle, id })
    }

    /// Makes the pool wait for the handle once.
    fn arm(&self) {
        // SAFETY: the wait is open, and the handle stays open longer.
        unsafe { SetThreadpoolWait(self.wait, self.handle.as_raw_handle(), ptr::null()) };
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A callback that starts from here on reports nothing.
        lock(&CONTEXTS).remove(&self.id);
        // SAFETY: the wait is open. This only keeps it from starting anew.
        unsafe { SetThreadpoolWait(self.wait, ptr::null_mut(), ptr::null()) };
        // A callback that started before may still report.
        // SAFETY: the wait is open. The callback takes two short locks, which this thread does not hold.
        unsafe { WaitForThreadpoolWaitCallbacks(self.wait, 1) };
        // SAFETY: closed once, here. Its handle is closed later.
        unsafe { CloseThreadpoolWait(self.wait) };
    }
}

extern "system" fn on_ready(
    _instance: PTP_CALLBACK_INSTANCE,
    id: *mut c_void,
    _wait: PTP_WAIT,
    _result: u32,
) {
    let context = lock(&CONTEXTS).get(&id.addr()).cloned();
    let Some(Context { found, ready }) = context else { return };
    lock(&ready.found).push(found);
    ready.bell.ring();
}

/// Returns the number of a handle in this process.
fn number(handle: &impl AsHandle) -> usize {
    handle.as_handle().as_raw_handle().addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_that_starts_after_its_watch_has_ended_reports_nothing() {
        let event = Bell::create().unwrap();
        let mut poller = Poller::create().unwrap();
        poller.add(event.as_handle(), 7, Interest::readable(Trigger::Edge)).unwrap();
        let id = poller.watched[&number(&event)].id;
        let call_back = || on_ready(0, ptr::without_provenance_mut(id), 0, 0);
        let mut reported = || {
            let mut events = Events::default();
            poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
            let tokens: Vec<_> = events.iter().map(|event| event.token).collect();
            poller.delete(event.as_handle());
            tokens
        };
        call_back();
        assert_eq!(reported(), [7]);
        call_back();
        assert_eq!(reported(), []);
    }
}
