#![allow(unsafe_code, reason = "waits for handles, by this thread and by the system's thread pool")]
//! Waiting for handles.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwire_core::{Backend, InUse, Instant};
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
    /// By the number of the handle, which is another one's only once this is closed.
    watched: HashMap<usize, Watch>,
    /// Reported by the last wait, and not watched until the next one.
    resting: Vec<usize>,
}

/// When a handle that stays ready is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// At each wait.
    Level,
    /// Once for each thing that happens: what takes its ring away, as an [event](Bell) does.
    Edge,
}

/// What to hear about a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interest {
    /// Report when it is ready. Without this nothing is heard of it.
    pub readable: bool,
    /// How often. The handle itself decides: this says what is expected of it.
    pub trigger: Trigger,
}

/// A handle that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What it was added with.
    pub token: u64,
    /// It is ready: there is something to read, or the end.
    pub readable: bool,
    /// That a peer has hung up is told by what is read.
    pub hung_up: bool,
}

/// Room for the events of one wait, reused from one to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    found: Vec<Found>,
}

/// What the pool's threads have found ready.
#[derive(Debug)]
struct Ready {
    found: Mutex<Vec<Found>>,
    bell: Bell,
}

/// What was found ready: the number of its handle, and what it was added with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    key: usize,
    token: u64,
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
    found: Found,
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

/// The same for who only wants to know whether any is ready: by the name that every transport has.
///
/// # Errors
/// As [`wait`].
pub fn wait_any(
    handles: &[BorrowedHandle<'_>],
    deadline: Option<Instant>,
) -> Result<bool, OsError> {
    wait(handles, deadline).map(|ready| ready.is_some())
}

impl Interest {
    /// Ready, with this trigger.
    pub const fn readable(trigger: Trigger) -> Self {
        Self { readable: true, trigger }
    }
}

impl Poller {
    /// Whether it tells that a peer has hung up also while nothing else of its channel is asked for.
    pub const HEARS_END: bool = false;

    /// A new one, empty.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn create() -> Result<Self, OsError> {
        Bell::create().map(Self::ringing)
    }

    /// A new one, empty, and what it waits with: there is nothing to choose here.
    ///
    /// # Errors
    /// As [`Poller::create`].
    pub fn choose(wanted: Backend) -> Result<(Self, InUse), OsError> {
        let backend = Backend::ThreadPool;
        let why_not = match wanted {
            Backend::Auto | Backend::ThreadPool => None,
            _ => Some("Windows has its thread pool only"),
        };
        Ok((Self::create()?, InUse { backend, why_not }))
    }

    /// A new one that rings `bell` when something is ready.
    pub(crate) fn ringing(bell: Bell) -> Self {
        let ready = Ready { found: Mutex::default(), bell };
        Self { ready: Arc::new(ready), watched: HashMap::new(), resting: Vec::new() }
    }

    /// Watches `handle` from the next wait on. What stays ready is reported by each wait; an event that takes its
    /// ring away, once for each ring or several. Delete it before it is closed: this has a duplicate.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn add(
        &mut self,
        handle: impl AsHandle,
        token: u64,
        interest: Interest,
    ) -> Result<(), OsError> {
        let key = number(&handle);
        if !interest.readable {
            self.delete(handle);
            return Ok(());
        }
        let handle = duplicate(handle, Access::Same)?;
        let found = Found { key, token };
        let context = Box::new(Context { found, ready: Arc::clone(&self.ready) });
        let at: *const Context = &*context;
        // SAFETY: the context outlives the wait: `Watch` closes that first.
        let wait =
            unsafe { CreateThreadpoolWait(Some(on_ready), at.cast_mut().cast(), ptr::null()) };
        if wait == 0 {
            return Err(OsError::last());
        }
        self.watched.insert(key, Watch { wait, handle, context });
        self.resting.push(key);
        Ok(())
    }

    /// Watches `handle`, which is watched already or not, for something else.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn modify(
        &mut self,
        handle: impl AsHandle,
        token: u64,
        interest: Interest,
    ) -> Result<(), OsError> {
        self.delete(&handle);
        self.add(handle, token, interest)
    }

    /// Stops watching `handle`, and says whether it was watched. It is not reported after this.
    pub fn delete(&mut self, handle: impl AsHandle) -> bool {
        let key = number(&handle);
        let was_there = self.watched.remove(&key).is_some();
        if was_there {
            self.ready.found().retain(|found| found.key != key);
            self.resting.retain(|resting| *resting != key);
        }
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
        events.found.clear();
        self.arm();
        let until = timeout.map(|timeout| clock::now().after(timeout));
        loop {
            std::mem::swap(&mut *self.ready.found(), &mut events.found);
            if !events.found.is_empty() {
                break;
            }
            if poll_one(&self.ready.bell, until)?.is_none() {
                break;
            }
        }
        self.resting.extend(events.found.iter().map(|found| found.key));
        Ok(events.found.len())
    }

    /// Waits until something is ready or, now that it is `now`, `until` is over (`None`: for ever), and says how many events
    /// there are. It may end earlier with none.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    pub fn sleep(
        &mut self,
        events: &mut Events,
        now: Instant,
        until: Option<Instant>,
    ) -> Result<usize, OsError> {
        self.wait(events, until.map(|until| until.since(now)))
    }

    /// Forgets what was ready, and has the pool look again.
    pub(crate) fn look_again(&mut self) {
        self.resting.extend(self.ready.found().drain(..).map(|found| found.key));
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

impl Events {
    /// Room for `most` events without allocating.
    pub fn with_capacity(most: usize) -> Self {
        Self { found: Vec::with_capacity(most) }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        let event = |found: &Found| Event { token: found.token, readable: true, hung_up: false };
        self.found.iter().map(event)
    }
}

impl Ready {
    fn found(&self) -> MutexGuard<'_, Vec<Found>> {
        // A list of numbers is whole whatever happened to another thread.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
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
        f.debug_struct("Watch").field("found", &self.context.found).finish_non_exhaustive()
    }
}

unsafe extern "system" fn on_ready(
    _instance: PTP_CALLBACK_INSTANCE,
    context: *mut c_void,
    _wait: PTP_WAIT,
    _result: u32,
) {
    // SAFETY: the context given to CreateThreadpoolWait, which lives until its wait is closed.
    let Context { found, ready } = unsafe { &*context.cast::<Context>() };
    ready.found().push(*found);
    ready.bell.ring();
}

/// The number of a handle in this process.
fn number(handle: &impl AsHandle) -> usize {
    handle.as_handle().as_raw_handle().addr()
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
