//! Watches the names of the endpoints, and takes a name again when it was removed or replaced.

use std::sync::Arc;

use super::{Reactor, watch};
use crate::ServeError;
use crate::server::Listener;
use crate::server::incidents::IncidentCause;
use crate::server::source::Source;
use crate::transport::poll::{Poller, Trigger};
use crate::transport::{Os, prelude::*};

/// Watches the run dir, which all endpoints share, if this system supports it.
pub(super) fn notify(
    listeners: &[Listener],
    poller: &mut Poller,
) -> Option<<Os as Platform>::Notify> {
    let run_dir = listeners.first()?.run_dir.path();
    let notify = <Os as Platform>::Notify::watch(run_dir)?;
    if !listeners.iter().all(|listener| listener.endpoint.is_in_place()) {
        // A file system that identifies a file by other means than its descriptor reports no events.
        return None;
    }
    watch(poller, notify.changed(), Source::RunDir, Trigger::Level).ok()?;
    Some(notify)
}

impl Reactor {
    /// Handles a change in the run dir, or of it: takes each lost name again. If that fails, the next change triggers
    /// a retry.
    pub(super) fn recheck_endpoints(&mut self) {
        // Repeat after taking a name: the run dir may be a new one, which must be watched before it is checked.
        let _ = self.reclaim_names() && self.reclaim_names();
    }

    /// Takes lost names again; returns true if one was.
    fn reclaim_names(&mut self) -> bool {
        if let Some(notify) = &self.notify {
            let is_missing = !self.listeners.iter().all(|one| one.endpoint.is_in_place());
            notify.take(is_missing);
        }
        let mut any = false;
        for (at, listener) in self.listeners.iter_mut().enumerate() {
            if listener.endpoint.is_in_place() {
                listener.is_displaced = false;
                continue;
            }
            let _ = self.poller.delete(listener.endpoint.as_object());
            let taken = listener.endpoint.take_place();
            any |= taken.is_ok();
            // It can serve without its backlog, too.
            let _ = listener.endpoint.listen(self.config.backlog);
            // During an accept pause, the end of the pause resumes polling of all endpoints.
            if self.accept_after.is_none() {
                let source = Source::Listener(at);
                let _ =
                    watch(&mut self.poller, listener.endpoint.as_object(), source, Trigger::Level);
            }
            let service = listener.admission.service;
            let why = taken.err().map(|error| Arc::new(ServeError::unbound(service, error)));
            let was_displaced = std::mem::replace(&mut listener.is_displaced, why.is_some());
            if !was_displaced || why.is_none() {
                let cause = IncidentCause::Displaced { why };
                self.shared.stats().add(at, &cause.kind().one());
                self.shared.note(service, None, cause);
            }
        }
        any
    }
}
