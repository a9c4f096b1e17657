//! How a client comes to a session, and loses it: attempts to connect, and the pauses between them.

use std::sync::Arc;

use bellwire_core::wire::CloseReason;
use bellwire_core::{Executed, Instant};

use super::{Client, Phase};
use crate::connect::{Connecting, Progress};
use crate::transport::arrivals::Arrivals;
use crate::transport::{Os, prelude::*};
use crate::{CallError, ConnectError, Contract, Service, Session};

impl<S: Service> Client<S> {
    /// Takes one step towards a session and hands it out; returns `None` while one is being opened.
    #[cfg(feature = "tokio")]
    pub(crate) fn step(&mut self) -> Result<Option<Session<S>>, CallError> {
        self.check_owner()?;
        self.advance(Os::now());
        match std::mem::replace(&mut self.phase, Phase::Without(None)) {
            Phase::Ready(session) => return Ok(Some(*session)),
            phase => self.phase = phase,
        }
        match &self.phase {
            Phase::Without(error) => Err(self.no_session(error.as_ref())),
            _ => Ok(None),
        }
    }

    /// Returns which session, of those there were, is open.
    #[cfg(feature = "tokio")]
    pub(crate) fn watched_session(&self) -> Option<u64> {
        self.open_session().map(|_| self.left)
    }

    /// Drops a session that failed so, if it is over or its provider declined: that is stopping or overloaded, and nothing on
    /// the board will signal when to retry.
    ///
    /// # Errors
    /// Returns any other error.
    pub(crate) fn leave_after(&mut self, error: CallError) -> Result<(), CallError> {
        match error {
            CallError::Declined { .. } => {
                let deferrals = self.deferrals.saturating_add(1);
                self.lost();
                self.deferrals = deferrals;
                self.backoff.failed(Os::now());
            }
            CallError::PeerGone { .. } | CallError::Closed { .. } => self.lost(),
            CallError::ProtocolViolation(_) => {
                self.lost();
                return Err(error);
            }
            error => return Err(error),
        }
        Ok(())
    }

    /// Returns whether the pause before the next attempt has to pass. A provider that declined once may have stopped, and its
    /// successor listen already.
    pub(super) fn is_paused(&self) -> bool {
        self.deferrals > 1
    }

    /// Closes a session whose provider has taken nothing for longer than configured.
    pub(super) fn close_if_stalled(&mut self) {
        if let Phase::Ready(session) = &mut self.phase {
            if session.is_peer_stalled() {
                session.close = CloseReason::Stalled;
                self.lost();
            }
        }
    }

    /// Drops a session that is over.
    pub(crate) fn lost(&mut self) {
        self.left += 1;
        self.deferrals = 0;
        self.cancel.lock().session = None;
        self.phase = Phase::Without(None);
    }

    /// Takes one step. Blocks only while the provider's backlog is full, at most until then.
    pub(super) fn advance(&mut self, until: Instant) {
        let now = Os::now();
        match self.phase {
            Phase::Ready(_) => return,
            Phase::Without(_) if !self.backoff.is_due(now) => return,
            _ => {}
        }
        let progress = match std::mem::replace(&mut self.phase, Phase::Without(None)) {
            Phase::Connecting(connecting) => connecting.advance(),
            _ => self.dial(until).and_then(Connecting::advance),
        };
        let progress = match progress {
            // Whoever listened stops, or was killed: its successor may listen already.
            Err(error)
                if error.is_provider_leaving()
                    && !std::mem::replace(&mut self.immediate_retry_used, true) =>
            {
                self.dial(until).and_then(Connecting::advance)
            }
            progress => progress,
        };
        self.apply(progress, now, until);
    }

    /// Connects to the provider and sends it the first message.
    pub(super) fn dial(&self, until: Instant) -> Result<Connecting, ConnectError> {
        let Contract { service, version, schema, .. } = self.contract;
        Connecting::start(&self.run_dir, service, (version, schema), &self.config, until)
    }

    /// Takes note of how a step went, which was taken at `now`.
    pub(super) fn apply(
        &mut self,
        progress: Result<Progress, ConnectError>,
        now: Instant,
        until: Instant,
    ) {
        match progress {
            Ok(Progress::Waiting(connecting)) => self.phase = Phase::Connecting(connecting),
            Ok(Progress::Open(opened)) => {
                match self.deferrals {
                    0 => self.backoff.succeeded(),
                    _ => self.backoff.retried(),
                }
                self.immediate_retry_used = false;
                let session = Session::new(*opened, &self.config);
                self.cancel.join(&session);
                self.arrivals = None;
                Arrivals::release();
                self.phase = Phase::Ready(Box::new(session));
            }
            Err(error) => {
                let is_full = matches!(error, ConnectError::Busy);
                // A call goes on waiting for room in the backlog.
                if !is_full || until <= now {
                    self.backoff.failed(now);
                }
                self.backlog_rejections += u64::from(is_full);
                let is_absent = matches!(error, ConnectError::Absent);
                self.phase = Phase::Without((!is_absent).then(|| Arc::new(error)));
            }
        }
    }

    /// Steps until a session is open, waiting for the provider's answers.
    pub(crate) fn connect_until(&mut self, deadline: Instant) -> Result<(), CallError> {
        self.check_owner()?;
        loop {
            self.advance(deadline);
            let connecting = match &self.phase {
                Phase::Ready(_) => return Ok(()),
                // The provider's backlog is full, and the kernel has had it wait for room.
                Phase::Without(Some(error))
                    if matches!(**error, ConnectError::Busy) && Os::now() < deadline =>
                {
                    self.check_cancel()?;
                    continue;
                }
                Phase::Without(error) => return Err(self.no_session(error.as_ref())),
                Phase::Connecting(connecting) => connecting,
            };
            if Os::now() >= deadline {
                return Err(CallError::Deadline { executed: Executed::No });
            }
            let bell = self.cancel.bell.get();
            let waited = connecting.wait(Some(deadline), bell.map(AsObject::as_object));
            self.check_cancel()?;
            if let Err(error) = waited {
                self.backoff.failed(Os::now());
                self.phase = Phase::Without(Some(Arc::new(error)));
            }
        }
    }

    fn no_session(&self, error: Option<&Arc<ConnectError>>) -> CallError {
        let service = self.contract.service;
        let Some(error) = error else { return CallError::Absent { service } };
        match &**error {
            ConnectError::Refused { code, reason } => {
                CallError::Refused { service, code: *code, reason: reason.clone() }
            }
            ConnectError::Incompatible { ours, theirs } => {
                CallError::Incompatible { ours: *ours, theirs: *theirs }
            }
            _ => CallError::Connect { service, source: Arc::clone(error) },
        }
    }
}
