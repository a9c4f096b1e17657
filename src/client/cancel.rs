//! Cancels the waits of a client, or of one session.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bellwire_core::Instant;

use crate::transport::doorbell::WakeEvent;
use crate::transport::link;
use crate::transport::object::Borrowed;
use crate::transport::{Os, prelude::*};
use crate::{Service, Session};

/// Cancels the current wait of the object that it was created from, or else its next one, from another thread: of a
/// [`Client`](crate::Client), [`Session`](crate::Session), [`SnapshotCache`](crate::SnapshotCache) or
/// [`Subscriber`](crate::Subscriber).
///
/// ```
/// use bellwire::{CallError, Client};
/// # use std::time::Duration;
#[doc = include_str!("../doc/increment.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// let canceller = client.canceller()?;
/// std::thread::spawn(move || canceller.cancel()).join().unwrap();
/// let waited = client.wait_available(Duration::from_secs(60));
/// assert!(matches!(waited, Err(CallError::Cancelled { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Canceller(pub(super) Arc<Cancel>);

#[derive(Debug, Default)]
pub(super) struct Cancel {
    inner: Mutex<Cancelling>,
    /// Ends waits for a connection; created with the first canceller.
    pub(super) bell: OnceLock<WakeEvent>,
}

#[derive(Debug, Default)]
pub(super) struct Cancelling {
    pending: bool,
    pub(super) session: Option<link::Canceller>,
}

impl Canceller {
    /// Returns one that cancels the waits of a single session.
    pub(crate) fn of_session(session: link::Canceller) -> Self {
        let inner = Mutex::new(Cancelling { pending: false, session: Some(session) });
        Self(Arc::new(Cancel { inner, bell: OnceLock::new() }))
    }

    /// Cancels the current wait, or else the next one, with
    /// [`CallError::Cancelled`](crate::CallError::Cancelled).
    pub fn cancel(&self) {
        let mut inner = self.0.lock();
        inner.pending = true;
        if let Some(session) = &inner.session {
            session.cancel();
        }
        if let Some(bell) = self.0.bell.get() {
            bell.ring();
        }
    }
}

impl Cancel {
    /// Makes the existing handles cancel a new session too.
    pub(super) fn join<S: Service>(&self, session: &Session<S>) {
        if self.bell.get().is_none() {
            return;
        }
        let mut inner = self.lock();
        inner.session = session.link().canceller().ok();
        if let (true, Some(session)) = (inner.pending, &inner.session) {
            session.cancel();
        }
    }

    pub(super) fn take(&self) -> bool {
        let Some(bell) = self.bell.get() else { return false };
        let mut inner = self.lock();
        bell.drain();
        std::mem::take(&mut inner.pending)
    }

    /// Waits for this object or a cancellation.
    pub(super) fn wait_or_bell(
        &self,
        object: Option<Borrowed<'_>>,
        until: Option<Instant>,
    ) -> io::Result<bool> {
        Ok(match (object, self.bell.get().map(AsObject::as_object)) {
            (Some(object), Some(bell)) => Os::wait_any(&[object, bell], until)?,
            (object, bell) => Os::wait_any(object.or(bell).as_slice(), until)?,
        })
    }

    /// No code that holds this lock can panic during a change.
    pub(super) fn lock(&self) -> MutexGuard<'_, Cancelling> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
