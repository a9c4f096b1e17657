#![allow(unsafe_code, reason = "CreateEventW, SetEvent and ResetEvent")]
//! How to wake a parked peer: an event object.

use crate::Windows;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;

use bellwire_core::wire::Doorbell;
use bellwire_shm::platform;
use windows_sys::Win32::System::Threading::{
    CreateEventW, EVENT_MODIFY_STATE, ResetEvent, SetEvent,
};

use crate::handle::{Access, duplicate, made};
use crate::peer::Credentials;
use crate::section::VerifyError;
use crate::security::Descriptor;
use crate::{OsError, clock, poll};

/// A handle to the event gives its holder no further rights.
const NOBODY: &str = "D:P(A;;RC;;;OW)";

/// An [event object](https://learn.microsoft.com/en-us/windows/win32/sync/event-objects) without a name.
///
/// Ringing one never waits, whatever a peer that shares it does. A peer can reset a ring, which harms only itself, so never
/// share one event between two peers.
#[derive(Debug)]
pub struct Event(OwnedHandle);

/// The name that every transport uses for the object that a peer rings.
pub type WakeEvent = Event;

impl Event {
    /// Creates an event that is not set and that stays set until it is reset (manual-reset).
    ///
    /// # Errors
    /// At the limit of handles or memory.
    pub fn manual_reset() -> Result<Self, OsError> {
        Self::new(true)
    }

    /// Takes over an event handle of this process.
    pub(crate) const fn of(handle: OwnedHandle) -> Self {
        Self(handle)
    }

    /// Resets the event.
    pub fn reset(&self) {
        // SAFETY: the handle is open.
        let _ = unsafe { ResetEvent(self.0.as_raw_handle()) };
    }

    fn new(manual_reset: bool) -> Result<Self, OsError> {
        let rights = Descriptor::parse(NOBODY)?;
        let attributes = rights.attributes();
        // SAFETY: `rights` lives until the call is over; no name is given.
        let handle = unsafe { CreateEventW(&attributes, i32::from(manual_reset), 0, ptr::null()) };
        // SAFETY: made just now; nobody else knows it.
        unsafe { made(handle) }.map(Self)
    }
}

impl platform::WakeEvent<Windows> for Event {
    type Passed<'a> = OwnedHandle;

    /// A wait resets the event (auto-reset).
    fn create() -> Result<Self, OsError> {
        Self::new(false)
    }

    /// A handle of another type gets no rings: setting it fails and never waits.
    fn from_peer(handle: OwnedHandle) -> Result<Self, VerifyError> {
        Ok(Self::of(handle))
    }

    fn for_peer(&self) -> Result<OwnedHandle, OsError> {
        duplicate(&self.0, Access::Only(EVENT_MODIFY_STATE))
    }

    fn ring(&self) {
        // SAFETY: the handle is open; one of something else is an error, with nobody to tell.
        let _ = unsafe { SetEvent(self.0.as_raw_handle()) };
    }

    fn drain(&self) -> bool {
        matches!(poll::wait(&[self.as_handle()], Some(clock::now())), Ok(Some(0)))
    }

    /// Returns the doorbell that this end asks `peer` to ring: an event, whatever is `wanted`. It costs no more than another
    /// doorbell and harms nobody.
    fn choose(wanted: Doorbell, peer: &Credentials) -> Doorbell {
        let _ = (wanted, peer);
        Doorbell::Eventfd
    }

    /// Returns whether this end may ring an event of this peer: always, since ringing never waits.
    fn may_ring(peer: &Credentials) -> bool {
        let _ = peer;
        true
    }
}

impl AsHandle for Event {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.as_handle()
    }
}
