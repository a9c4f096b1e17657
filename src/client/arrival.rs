//! Waiting for a provider that is not there yet.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::wire::RefuseCode;
use bellwire_core::{Executed, Instant, ServiceName};

use super::{Client, Phase};
use crate::cache::earlier;
use crate::connect::{Progress, system};
use crate::transport::arrivals::Arrivals;
use crate::transport::object::Borrowed;
use crate::transport::{Os, prelude::*};
use crate::{CallError, ConnectError, Service, Session};

impl<S: Service> Client<S> {
    /// Waits until there is a provider, and opens a session: at once if there is one, else as soon as one listens, at most
    /// for `timeout`. Polls nothing: on Linux, [inotify] reports a provider that comes up.
    ///
    /// ```
    /// # use bellwire::Client;
    /// # use std::time::Duration;
    #[doc = include_str!("../doc/increment.txt")]
    /// let mut client = Client::<Increment>::new(&run_dir);
    /// # let mut builder = Server::builder(&run_dir);
    /// # builder.serve::<Increment>(|_, number| Ok(number + 1))?;
    /// # let server = builder.start()?;
    /// let session = client.wait_available(Duration::from_secs(60))?;
    /// assert_eq!(session.call(&41)?, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [inotify]: https://man7.org/linux/man-pages/man7/inotify.7.html
    ///
    /// # Errors
    /// [`CallError::Deadline`] when none came in time. [`CallError`] of a provider that is there and refuses: waiting would
    /// not help. [`CallError::Connect`] when there is none and the run dir cannot be watched: this user may not read it, for
    /// instance.
    pub fn wait_available(&mut self, timeout: Duration) -> Result<&mut Session<S>, CallError> {
        let deadline = Os::now().after(timeout);
        // A provider that is there needs no inotify instance.
        let mut watches = self.arrivals.is_some();
        loop {
            let watched = if watches { self.watch_arrivals() } else { Ok(()) };
            watches = true;
            let error = match self.connect_until(deadline) {
                Ok(()) => break,
                Err(error) => error,
            };
            if !is_absent(&error) {
                self.arrivals = None;
                return Err(error);
            }
            watched?;
            if Os::now() >= deadline {
                return Err(CallError::Deadline { executed: Executed::No });
            }
            let Some(arrivals) = &self.arrivals else { continue };
            let until = self.retry_due().map_or(deadline, |due| due.min(deadline));
            let waited = self.cancel.wait_or_bell(Some(arrivals.as_object()), Some(until));
            self.check_cancel()?;
            waited.map_err(unwatched(self.contract.service))?;
        }
        self.ready()
    }

    /// Returns a descriptor for an event loop that waits for an absent provider: readable when one may have come up, or
    /// when the handshake with it can go on. Call [`Client::refresh`] then, which does not wait for its retry to be due.
    /// Ask for it, and register it anew, before each sleep: it may be another one each time, and there is none with a session.
    ///
    /// # Errors
    /// `EMFILE` at the limit of open files or, on Linux, of inotify instances of this user
    /// (`fs.inotify.max_user_instances`); `PermissionDenied` of a run dir that this user may not read; `NotConnected` with a
    /// session.
    pub fn pollable_arrival(&mut self) -> io::Result<Borrowed<'_>> {
        if matches!(self.phase, Phase::Without(_)) && self.arrivals.is_none() {
            self.arrivals = Some(Arrivals::watch(self.run_dir.path())?);
            // It may have come up before the watch. No further than the first message: with a session, this would have nothing
            // to return, although there was none when the caller looked.
            let now = Os::now();
            if !self.is_paused() {
                self.backoff.succeeded();
            }
            if self.backoff.is_due(now) {
                let dialled =
                    self.dial(now).map(|connecting| Progress::Waiting(Box::new(connecting)));
                self.apply(dialled, now, now);
            }
        }
        match (&self.phase, &self.arrivals) {
            (Phase::Connecting(connecting), _) => Ok(connecting.arrived()),
            (Phase::Without(_), Some(arrivals)) => Ok(arrivals.as_object()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the descriptor of the session, or else that of [`Client::pollable_arrival`].
    pub(crate) fn pollable(&mut self) -> io::Result<Borrowed<'_>> {
        if matches!(self.phase, Phase::Ready(_)) {
            return self.open_session().ok_or(io::ErrorKind::NotConnected)?.pollable();
        }
        self.pollable_arrival()
    }

    /// Watches the run dir, and consumes what happened there since it is watched.
    pub(crate) fn watch_arrivals(&mut self) -> Result<(), CallError> {
        if self.arrivals.is_none() {
            let arrivals = Arrivals::watch(self.run_dir.path());
            self.arrivals = Some(arrivals.map_err(unwatched(self.contract.service))?);
            self.backoff.succeeded();
        }
        self.take_arrivals().map_err(unwatched(self.contract.service))
    }

    /// Sleeps until a provider may have come up, until a retry is due that no arrival need precede, or until `until`. Fails when
    /// another thread cancelled. Where the run dir cannot be watched, retries are due from time to time.
    pub(super) fn sleep_until_arrival(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let is_new = self.arrivals.is_none();
        if is_new {
            self.arrivals = Arrivals::watch(self.run_dir.path()).ok();
        }
        // It may have come up before the watch: one more attempt, when that is due.
        let retry = if is_new { self.backoff.due() } else { self.retry_due() };
        if is_new && retry.is_none() {
            return self.check_cancel();
        }
        let until = earlier(retry, until);
        let Some(arrivals) = &self.arrivals else { return self.sleep(until) };
        let _ = self.cancel.wait_or_bell(Some(arrivals.as_object()), until);
        self.check_cancel()
    }

    /// Returns when to try again even if nothing arrives: a provider that closed during the handshake, or is stopping,
    /// may listen still.
    pub(crate) fn retry_due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Without(None) if !self.is_paused() => None,
            _ => self.backoff.due(),
        }
    }

    /// Returns when [`Client::refresh`] has something to do even if nothing arrives; `None` with a session.
    fn step_due(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Ready(_) => None,
            Phase::Connecting(connecting) => Some(connecting.due()),
            Phase::Without(_) => self.retry_due(),
        }
    }

    /// Returns when to poll what the provider publishes even if nothing arrives.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.open_session().map_or_else(|| self.step_due(), Session::update_due)
    }

    /// Makes a retry due if a provider may have come up.
    pub(super) fn take_arrivals(&mut self) -> io::Result<()> {
        let Some(arrivals) = &self.arrivals else { return Ok(()) };
        if !Os::wait_any(&[arrivals.as_object()], Some(Instant::default())).unwrap_or(true) {
            return Ok(());
        }
        let taken = arrivals.take();
        self.backoff.succeeded();
        if taken.is_err() {
            self.arrivals = None;
        }
        taken
    }
}

/// Returns whether a provider that comes up would make a difference: there is none, or it is leaving.
pub(crate) fn is_absent(error: &CallError) -> bool {
    match error {
        CallError::Absent { .. } | CallError::Refused { code: RefuseCode::Stopping, .. } => true,
        CallError::Connect { source, .. } => matches!(**source, ConnectError::Closed),
        _ => false,
    }
}

pub(crate) fn unwatched(service: ServiceName) -> impl Fn(io::Error) -> CallError {
    let failed = system("cannot wait for the provider");
    move |error| CallError::Connect { service, source: Arc::new(failed(error)) }
}
