//! Whether a provider lives.

use std::time::Duration;

use bellwire_core::Instant;

use crate::transport::LifeState;
use crate::transport::{Os, prelude::*};
use crate::{Service, Session};

/// How long a refresh may miss the death of a provider that has no life word.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// When the provider's process was last seen alive; only needed where the kernel does not report its death.
#[derive(Debug, Default)]
pub(crate) struct LivenessCheck(Option<Instant>);

impl LivenessCheck {
    /// Returns whether the provider's process lives, as far as is known without a system call each time.
    #[inline]
    pub(crate) fn is_alive<S: Service>(&mut self, session: &Session<S>) -> bool {
        session.link().life() == LifeState::Alive || self.check(session)
    }

    /// Checks the process with the kernel, at most once per `CHECK_EVERY` as long as it lives.
    #[cold]
    fn check<S: Service>(&mut self, session: &Session<S>) -> bool {
        if session.link().life() == LifeState::Died || !session.link().is_owner_process() {
            return false;
        }
        let now = Os::now();
        if self.0.is_some_and(|last| now.since(last) < CHECK_EVERY) {
            return true;
        }
        let is_open = session.is_open();
        self.0 = is_open.then_some(now);
        is_open
    }
}
