#![allow(unsafe_code, reason = "CreateEventW, SetEvent and ResetEvent")]
//! What wakes a parked peer: an event object.

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::{Arc, OnceLock};

use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::Doorbell;
use windows_sys::Win32::System::Threading::{
    CreateEventW, EVENT_MODIFY_STATE, ResetEvent, SetEvent,
};

use crate::handle::{Access, duplicate};
use crate::peer::Credentials;
use crate::section::VerifyError;
use crate::security::Descriptor;
use crate::{OsError, clock, poll};

/// Nobody may have more of it than the handle that was given to him.
const NOBODY: &str = "D:P(A;;RC;;;OW)";

/// An [event object](https://learn.microsoft.com/en-us/windows/win32/sync/event-objects) without a name.
///
/// Ringing one never waits, whatever a peer that shares it does. A peer can take a ring back, which it owes
/// to itself: never share one event between two peers.
#[derive(Debug)]
pub struct Event(OwnedHandle);

/// On which one thread of this process tells another to stop waiting. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Cancelling>);

#[derive(Debug, Default)]
struct Cancelling {
    set: AtomicBool,
    // Made when somebody asks for a canceller.
    event: OnceLock<Event>,
}

/// The doorbell that this end asks `peer` to ring when the program wants `wanted`: an event, whatever that is. It costs no
/// more than another one would, and harms nobody.
pub fn choose(wanted: Doorbell, peer: &Credentials) -> Doorbell {
    let _ = (wanted, peer);
    Doorbell::Eventfd
}

/// Whether an event of this peer's may be rung: always, since ringing never waits.
pub fn may_ring(peer: &Credentials) -> bool {
    let _ = peer;
    true
}

impl Event {
    /// A new one, with nothing rung yet. A wait takes the ring away (auto-reset).
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn create() -> Result<Self, OsError> {
        Self::new(false)
    }

    /// A new one, not set, that stays set until it is reset (manual-reset).
    pub(crate) fn lasting() -> Result<Self, OsError> {
        Self::new(true)
    }

    /// Takes over a handle that a peer sent, to ring it. A peer that sends something else rings itself in
    /// vain: setting what is no event fails, and never waits.
    ///
    /// # Errors
    /// None.
    pub fn from_peer(handle: OwnedHandle) -> Result<Self, VerifyError> {
        Ok(Self::of(handle))
    }

    /// Takes over a handle of this process's own.
    pub(crate) const fn of(handle: OwnedHandle) -> Self {
        Self(handle)
    }

    /// A handle for the peer: it rings and can do nothing else.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn for_peer(&self) -> Result<OwnedHandle, OsError> {
        duplicate(&self.0, Access::Only(EVENT_MODIFY_STATE))
    }

    /// Rings. One that is rung already stays so.
    pub fn ring(&self) {
        // SAFETY: the handle is open; one of something else is an error, with nobody to tell.
        let _ = unsafe { SetEvent(self.0.as_raw_handle()) };
    }

    /// Takes back what was rung, and says whether there was something. Does not wait.
    pub fn drain(&self) -> bool {
        matches!(poll::wait(&[self.as_handle()], Some(clock::now())), Ok(Some(0)))
    }

    pub(crate) fn reset(&self) {
        // SAFETY: the handle is open.
        let _ = unsafe { ResetEvent(self.0.as_raw_handle()) };
    }

    fn new(lasting: bool) -> Result<Self, OsError> {
        let rights = Descriptor::parse(NOBODY)?;
        let attributes = rights.attributes();
        // SAFETY: `rights` lives until the call is over; no name is given.
        let handle = unsafe { CreateEventW(&attributes, i32::from(lasting), 0, ptr::null()) };
        if handle.is_null() {
            return Err(OsError::last());
        }
        // SAFETY: made just now; nobody else knows it.
        Ok(Self(unsafe { OwnedHandle::from_raw_handle(handle) }))
    }
}

impl AsHandle for Event {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.as_handle()
    }
}

impl Cancel {
    /// One that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The event that ends waits, from now on.
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn arm(&self) -> Result<&Event, OsError> {
        if let Some(event) = self.0.event.get() {
            return Ok(event);
        }
        let event = Event::lasting()?;
        Ok(self.0.event.get_or_init(|| event))
    }

    /// The event that ends waits, if somebody has asked for it.
    pub fn event(&self) -> Option<&Event> {
        self.0.event.get()
    }

    /// Sets it and wakes who waits for its event.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::Release);
        if let Some(event) = self.0.event.get() {
            event.ring();
        }
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Acquire)
    }

    /// Resets it, and says whether it was set.
    pub fn take(&self) -> bool {
        let was_set = self.0.set.swap(false, Ordering::AcqRel);
        self.settle();
        was_set
    }

    /// Resets the event. Whoever waits for it looks at [`Cancel::is_set`] between this and the wait: a set
    /// that this overtakes has stored its word before.
    pub(crate) fn settle(&self) {
        if let Some(event) = self.0.event.get() {
            event.reset();
        }
    }
}
