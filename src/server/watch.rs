//! Whether anybody will get the answer of a handler that runs.

use std::sync::Arc;

use bellwire_core::Instant;
use bellwire_core::sync::{AtomicBool, AtomicU64, Ordering};

use crate::transport::clock;

/// When a server that was told to stop has waited for its handlers long enough: nanoseconds, 0 until it is told.
#[derive(Debug, Default)]
pub(super) struct StopBy(AtomicU64);

/// What a handler can see of its caller while it runs.
#[derive(Clone, Debug, Default)]
pub(super) enum Watch {
    /// No handler runs for it.
    #[default]
    Nothing,
    /// The handler runs on the reactor thread, which sees nothing of the client meanwhile.
    Server(Arc<StopBy>),
    /// The handler runs in a worker; the reactor stores whether it is abandoned.
    Job(Arc<AtomicBool>),
}

impl StopBy {
    pub(super) fn tell(&self, by: Instant) {
        // Release: pairs with the Acquire load of whoever is told.
        self.0.store(by.as_nanos().max(1), Ordering::Release);
    }

    /// `None` until it is told.
    #[inline]
    pub(super) fn told(&self) -> Option<Instant> {
        let by = self.0.load(Ordering::Acquire);
        (by > 0).then(|| Instant::from_nanos(by))
    }
}

impl Watch {
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Server(stop) => stop.told().is_some_and(|by| clock::now() >= by),
            Self::Job(is_abandoned) => is_abandoned.load(Ordering::Relaxed),
        }
    }
}

/// Who calls is the same, whatever becomes of the call.
impl PartialEq for Watch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Watch {}
