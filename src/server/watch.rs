//! Whether the answer of a running handler is still wanted.

use std::sync::Arc;

use bellwire_core::Instant;
use bellwire_core::sync::{AtomicBool, AtomicU64, Ordering};

use crate::transport::{Os, prelude::*};

/// Until when a stopping server waits for its handlers, in nanoseconds; 0 while it is not stopping.
#[derive(Debug, Default)]
pub(super) struct StopBy(AtomicU64);

/// What a running handler can see of its caller.
#[derive(Clone, Debug, Default)]
pub(super) enum Watch {
    /// No handler runs for it.
    #[default]
    Nothing,
    /// The handler runs on the reactor thread, which does not observe the client meanwhile.
    Server(Arc<StopBy>),
    /// The handler runs in a worker; the reactor stores whether it is abandoned.
    Job(Arc<AtomicBool>),
}

impl StopBy {
    pub(super) fn set(&self, by: Instant) {
        // Release: pairs with the Acquire load in `get`.
        self.0.store(by.as_nanos().max(1), Ordering::Release);
    }

    /// Returns `None` while the server is not stopping.
    #[inline]
    pub(super) fn get(&self) -> Option<Instant> {
        let by = self.0.load(Ordering::Acquire);
        (by > 0).then(|| Instant::from_nanos(by))
    }
}

impl Watch {
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Server(stop) => stop.get().is_some_and(|by| Os::now() >= by),
            Self::Job(is_abandoned) => is_abandoned.load(Ordering::Relaxed),
        }
    }
}

/// Callers compare equal regardless of the state of their calls.
impl PartialEq for Watch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Watch {}
