#![allow(unsafe_code, reason = "waits for handles, by this thread and by the system's thread pool")]
//! Waiting for handles.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwire_core::Instant;
use windows_sys::Win32::Foundation::{ERROR_INVALID_PARAMETER, HANDLE, WAIT_FAILED, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{
    CloseThreadpoolWait, CreateThreadpoolWait, PTP_CALLBACK_INSTANCE, PTP_WAIT, SetThreadpoolWait,
    WaitForMultipleObjects, WaitForThreadpoolWaitCallbacks,
};

use crate::doorbell::Event as Bell;
use crate::handle::{Access, duplicate};
use crate::{OsError, clock};

/// The most handles that one [`wait`] takes: the system's limit, `MAXIMUM_WAIT_OBJECTS`.
pub const MAX_HANDLES: usize = 64;

/// Any number of handles, waited for by the system's thread pool
/// ([`CreateThreadpoolWait`](https://learn.microsoft.com/en-us/windows/win32/api/threadpoolapiset/nf-threadpoolapiset-createthreadpoolwait)).
///
/// A handle that is ready costs one switch to a thread of the pool and one from there to the waiter. The pool
/// has a thread for every 63 handles, on Windows 8 and newer one for all of them.
#[derive(Debug)]
pub struct Poller {
    ready: Arc<Ready>,
    watched: HashMap<u64, Watch>,
    /// Reported by the last wait, and not watched until the next one.
    resting: Vec<u64>,
}

/// Room for the tokens of one wait, reused from one to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    tokens: Vec<u64>,
}

/// What the pool's threads have found ready.
#[derive(Debug)]
struct Ready {
    tokens: Mutex<Vec<u64>>,
    bell: Bell,
}

/// One handle that the pool waits for.
struct Watch {
    wait: PTP_WAIT,
    /// A duplicate: the owner may close his while the pool still waits.
    handle: OwnedHandle,
    // What the callback looks at. Freed after the wait is closed.
    context: Box<Context>,
}

struct Context {
    token: u64,
    ready: Arc<Ready>,
}

// SAFETY: any thread may change or close a wait of the pool.
unsafe impl Send for Watch {}
// SAFETY: a shared reference to it gives nothing away.
unsafe impl Sync for Watch {}

/// Sleeps until one of `handles` is ready or `deadline`, and says which: the first one that is, by its place.
/// `None` after the deadline. An event that takes its ring away does so for this one only.
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
    if handles.is_empty() {
        sleep_until(deadline);
        return Ok(None);
    }
    let count = u32::try_from(handles.len()).unwrap_or(u32::MAX);
    loop {
        // SAFETY: `raw` holds `count` handles, which are borrowed.
        let woke = unsafe { WaitForMultipleObjects(count, raw.as_ptr(), 0, clock::left(deadline)) };
        if woke == WAIT_FAILED {
            return Err(OsError::last());
        }
        if woke.wrapping_sub(WAIT_OBJECT_0) < count {
            return Ok(usize::try_from(woke - WAIT_OBJECT_0).ok());
        }
        // A wait of some milliseconds may end a little early.
        if clock::is_over(deadline) {
            return Ok(None);
        }
    }
}

impl Poller {
    /// A new one, empty.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn create() -> Result<Self, OsError> {
        let ready = Ready { tokens: Mutex::default(), bell: Bell::create()? };
        Ok(Self { ready: Arc::new(ready), watched: HashMap::new(), resting: Vec::new() })
    }

    /// Watches `handle` from the next wait on; `token`, under which it is reported, must be free. What stays
    /// ready is reported by each wait; an event that takes its ring away, once for each ring or several.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn add(&mut self, handle: impl AsHandle, token: u64) -> Result<(), OsError> {
        let handle = duplicate(handle, Access::Same)?;
        let context = Box::new(Context { token, ready: Arc::clone(&self.ready) });
        let at: *const Context = &*context;
        // SAFETY: the context outlives the wait: `Watch` closes that first.
        let wait =
            unsafe { CreateThreadpoolWait(Some(on_ready), at.cast_mut().cast(), ptr::null()) };
        if wait == 0 {
            return Err(OsError::last());
        }
        self.watched.insert(token, Watch { wait, handle, context });
        self.resting.push(token);
        Ok(())
    }

    /// Stops watching what was added as `token`, and says whether something was. It is not reported after
    /// this.
    pub fn delete(&mut self, token: u64) -> bool {
        let was_there = self.watched.remove(&token).is_some();
        self.ready.tokens().retain(|ready| *ready != token);
        self.resting.retain(|resting| *resting != token);
        was_there
    }

    /// Waits until something is ready or `timeout` is over (`None`: for ever), and says how many tokens there
    /// are.
    ///
    /// # Errors
    /// None that a correct program sees.
    pub fn wait(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> Result<usize, OsError> {
        events.tokens.clear();
        for token in self.resting.drain(..) {
            if let Some(watch) = self.watched.get(&token) {
                watch.arm();
            }
        }
        let until = timeout.map(|timeout| clock::now().after(timeout));
        loop {
            std::mem::swap(&mut *self.ready.tokens(), &mut events.tokens);
            if !events.tokens.is_empty() {
                break;
            }
            if poll_one(&self.ready.bell, until)?.is_none() {
                break;
            }
        }
        self.resting.extend(&events.tokens);
        Ok(events.tokens.len())
    }
}

impl Events {
    /// Room for `most` tokens without allocating.
    pub fn with_capacity(most: usize) -> Self {
        Self { tokens: Vec::with_capacity(most) }
    }

    /// The tokens of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.tokens.iter().copied()
    }
}

impl Ready {
    fn tokens(&self) -> MutexGuard<'_, Vec<u64>> {
        // A list of numbers is whole whatever happened to another thread.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Has the pool wait for the handle, once.
    fn arm(&self) {
        // SAFETY: the wait is open, and the handle stays open longer.
        unsafe { SetThreadpoolWait(self.wait, self.handle.as_raw_handle(), ptr::null()) };
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the wait is open. This only keeps it from starting anew.
        unsafe { SetThreadpoolWait(self.wait, ptr::null_mut(), ptr::null()) };
        // SAFETY: the wait is open. The callback takes one short lock, which this thread does not hold.
        unsafe { WaitForThreadpoolWaitCallbacks(self.wait, 1) };
        // SAFETY: closed once, here; no callback runs and none will, so that the context may be freed.
        unsafe { CloseThreadpoolWait(self.wait) };
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("token", &self.context.token).finish_non_exhaustive()
    }
}

unsafe extern "system" fn on_ready(
    _instance: PTP_CALLBACK_INSTANCE,
    context: *mut c_void,
    _wait: PTP_WAIT,
    _result: u32,
) {
    // SAFETY: the context given to CreateThreadpoolWait, which lives until its wait is closed.
    let Context { token, ready } = unsafe { &*context.cast::<Context>() };
    ready.tokens().push(*token);
    ready.bell.ring();
}

fn poll_one(bell: &Bell, until: Option<Instant>) -> Result<Option<usize>, OsError> {
    wait(&[bell.as_handle()], until)
}

fn sleep_until(deadline: Option<Instant>) {
    loop {
        match deadline {
            Some(_) if clock::is_over(deadline) => return,
            Some(at) => std::thread::sleep(at.since(clock::now())),
            None => std::thread::park(),
        }
    }
}
