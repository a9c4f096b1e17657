pub(crate) mod arrival;
mod cancel;
mod opening;
mod raw;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::wire::{RefuseCode, Versions};
use bellwire_core::{Deadline, ErrorKind, Executed, Instant, ServiceName, Woken};

use crate::backoff::BackoffTimer;
use crate::cache::earlier;
use crate::connect::Connecting;
use crate::transport::arrivals::Arrivals;
use crate::transport::doorbell::WakeEvent;
use crate::transport::fork::OwnerProcess;
use crate::transport::{Os, prelude::*};
use crate::{
    BatchReplies, CallError, ClientConfig, ConnectError, Contract, Dynamic, RunDir, Service,
    Session,
};
use cancel::Cancel;
pub use cancel::Canceller;
pub use raw::RawClient;

/// A client of service `S` whose provider may be absent, late or restarted.
///
/// It starts no thread. [`Client::refresh`] drives it and never blocks: call it as often as you like, for instance
/// once per collection. [`Client::call`] connects by itself if it has to.
///
/// ```
/// use bellwire::{Client, ProviderState};
#[doc = include_str!("../doc/increment_served.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// assert_eq!(client.call(&41)?, 42);
/// server.stop();
/// assert!(client.call(&41).is_err());
/// assert_ne!(client.refresh(), ProviderState::Ready);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client<S: Service> {
    run_dir: RunDir,
    contract: Contract,
    config: ClientConfig,
    phase: Phase<S>,
    backoff: BackoffTimer,
    /// The number of sessions in a row that were deferred.
    deferrals: u32,
    /// Whether the immediate retry after the last session is used up.
    immediate_retry_used: bool,
    backlog_rejections: u64,
    /// The number of sessions that ended.
    left: u64,
    /// While a thread waits for an absent provider.
    arrivals: Option<Arrivals>,
    cancel: Arc<Cancel>,
    owner_process: OwnerProcess,
}

/// What a client knows about its provider.
///
/// ```
/// use bellwire::{Client, ProviderState};
#[doc = include_str!("../doc/increment_served.txt")]
/// let mut client = Client::<Increment>::new(&run_dir);
/// match client.refresh() {
///     ProviderState::Ready => println!("{}", client.call(&41)?),
///     ProviderState::Absent | ProviderState::Connecting => println!("later"),
///     ProviderState::Refused { reason, .. } => println!("not us: {reason}"),
///     other => println!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderState {
    /// No provider listens now.
    Absent,
    /// A session is being opened.
    Connecting,
    /// A session is open.
    Ready,
    /// The provider refused; the client retries with growing intervals.
    Refused {
        /// Why, as a code.
        code: RefuseCode,
        /// Why, as a message for the operator.
        reason: Box<str>,
    },
    /// The two ends have no protocol version in common; the client retries with growing intervals.
    Incompatible {
        /// The versions that this end speaks.
        ours: Versions,
        /// The versions that the provider speaks.
        theirs: Versions,
    },
    /// A session is open, but the provider has not passed what a [`SnapshotCache`](crate::SnapshotCache) requested
    /// within [`ClientConfig::timeout`]: it is stopped, hangs or is overloaded. The request stays in flight.
    Unresponsive {
        /// How long the request has been waiting.
        waited: Duration,
    },
    /// Opening a session failed for another reason; the client retries with growing intervals.
    Failed {
        /// The kind of failure.
        kind: ErrorKind,
        /// What happened, as a message for the operator.
        reason: Box<str>,
    },
}

#[derive(Debug)]
enum Phase<S: Service> {
    /// No session; `None`: nobody provides the service.
    Without(Option<Arc<ConnectError>>),
    Connecting(Box<Connecting>),
    Ready(Box<Session<S>>),
}

impl Client<Dynamic> {
    /// Creates a client of a service that is known only at run time.
    pub fn with_contract(run_dir: &RunDir, contract: Contract, config: ClientConfig) -> Self {
        Self::of_contract(run_dir, contract, config)
    }
}

impl<S: Service> Client<S> {
    /// The service's name, checked at compile time.
    pub const SERVICE: ServiceName = ServiceName::constant(S::NAME);

    /// Creates a client that looks for its provider in `run_dir`. It connects at the first [`Client::refresh`] or
    /// [`Client::call`].
    pub fn new(run_dir: &RunDir) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// Creates a client with a configuration other than the default.
    pub fn with_config(run_dir: &RunDir, config: ClientConfig) -> Self {
        Self::of_contract(run_dir, Contract::of::<S>(), config)
    }

    /// Returns the service's name.
    pub fn service(&self) -> ServiceName {
        self.contract.service
    }

    pub(crate) fn of_contract(run_dir: &RunDir, contract: Contract, config: ClientConfig) -> Self {
        Self {
            run_dir: run_dir.clone(),
            contract,
            phase: Phase::Without(None),
            backoff: BackoffTimer::of(config.backoff),
            deferrals: 0,
            immediate_retry_used: false,
            config,
            backlog_rejections: 0,
            left: 0,
            arrivals: None,
            cancel: Arc::default(),
            owner_process: OwnerProcess::current(),
        }
    }

    /// Advances the client as far as possible without blocking: connects if a retry is due, handles the provider's
    /// next handshake message, or notices that the provider is gone. An absent service is a state, not an error.
    pub fn refresh(&mut self) -> ProviderState {
        if !self.is_owner_process() {
            return self.state();
        }
        if let Phase::Ready(session) = &self.phase {
            if !session.is_open() {
                self.lost();
            }
        }
        self.close_if_stalled();
        // If the run dir can no longer be watched, the next request for the descriptor says so.
        let _ = self.take_arrivals();
        // Does not block.
        self.advance(Os::now());
        self.state()
    }

    /// Returns the state after the last step.
    pub fn state(&self) -> ProviderState {
        if !self.is_owner_process() {
            let (kind, reason) = (ErrorKind::Forked, CallError::Forked.to_string().into());
            return ProviderState::Failed { kind, reason };
        }
        match &self.phase {
            Phase::Ready(_) => ProviderState::Ready,
            Phase::Connecting(_) => ProviderState::Connecting,
            Phase::Without(error) => match error.as_deref() {
                // A provider that closes during the handshake is dying or stopping: the next listener is another process.
                None | Some(ConnectError::Closed) => ProviderState::Absent,
                Some(ConnectError::Refused { code, reason }) => {
                    ProviderState::Refused { code: *code, reason: reason.clone() }
                }
                Some(ConnectError::Incompatible { ours, theirs }) => {
                    ProviderState::Incompatible { ours: *ours, theirs: *theirs }
                }
                Some(error) => {
                    ProviderState::Failed { kind: error.kind(), reason: error.to_string().into() }
                }
            },
        }
    }

    /// Calls and waits for the answer, at most for the configured time. First opens a session if there is none and a
    /// retry is due.
    ///
    /// When the provider goes away, the request is sent once more, to its successor, if the handler cannot have run
    /// or the service is [idempotent](Service::IDEMPOTENT).
    ///
    /// # Errors
    /// [`CallError`] reports who is at fault and whether the handler may have run. The client stays usable.
    pub fn call(&mut self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.config.timeout)
    }

    /// Calls and waits for the answer, at most for `timeout`, which includes connecting.
    ///
    /// # Errors
    /// Like [`Client::call`].
    pub fn call_within(
        &mut self,
        request: &S::Request,
        timeout: Duration,
    ) -> Result<S::Response, CallError> {
        self.call_by(timeout, |session, until| session.call_until(request, until))
    }

    /// Calls with many requests in one message, like [`Session::call_batch`], at most for the configured time, which
    /// includes connecting. When the provider goes away, the batch is sent once more, like the request of
    /// [`Client::call`].
    ///
    /// # Errors
    /// Like [`Client::call`], for the whole batch; [`CallError::TooManyItems`] before anything is sent.
    pub fn call_batch<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request> + Clone,
    ) -> Result<BatchReplies<'_, S>, CallError> {
        self.call_batch_within(requests, self.config.timeout)
    }

    /// Calls like [`Client::call_batch`], but waits at most for `timeout`.
    ///
    /// # Errors
    /// Like [`Client::call_batch`].
    pub fn call_batch_within<'r>(
        &mut self,
        requests: impl IntoIterator<Item = &'r S::Request> + Clone,
        timeout: Duration,
    ) -> Result<BatchReplies<'_, S>, CallError> {
        let answered = self.call_by(timeout, move |session, until| {
            session.call_batch_until(requests.clone(), until)
        })?;
        self.ready()?.open_batch(Ok(answered))
    }

    /// Returns the open session, for pipelined calls; `None` unless the state is [`ProviderState::Ready`].
    pub fn session(&mut self) -> Option<&mut Session<S>> {
        match &mut self.phase {
            Phase::Ready(session) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn open_session(&self) -> Option<&Session<S>> {
        match &self.phase {
            Phase::Ready(session) => Some(session),
            _ => None,
        }
    }

    /// Returns the session, once it is open.
    #[inline]
    fn ready(&mut self) -> Result<&mut Session<S>, CallError> {
        match &mut self.phase {
            Phase::Ready(session) => Ok(session),
            _ => Err(CallError::Absent { service: self.contract.service }),
        }
    }

    /// Returns how often connecting failed because the provider's backlog was full.
    pub fn backlog_rejections(&self) -> u64 {
        self.backlog_rejections
    }

    /// Opens a session. Waits for the provider's answers and for room in its backlog, but not for an absent provider.
    ///
    /// # Errors
    /// [`CallError`] with the reason why there is none.
    pub fn connect(&mut self) -> Result<&mut Session<S>, CallError> {
        // With a session, the clock would cost more than a one-way request.
        if !self.is_owner_process() || !matches!(self.phase, Phase::Ready(_)) {
            self.connect_until(Os::now().after(self.config.connect_timeout))?;
        }
        self.ready()
    }

    /// Returns a handle that cancels this client's waits from another thread.
    ///
    /// # Errors
    /// The first canceller needs a descriptor: `EMFILE` at the limit.
    pub fn canceller(&self) -> io::Result<Canceller> {
        if self.cancel.bell.get().is_none() {
            let _ = self.cancel.bell.set(WakeEvent::create()?);
        }
        if let Phase::Ready(session) = &self.phase {
            self.cancel.lock().session = Some(session.link().canceller()?);
        }
        Ok(Canceller(Arc::clone(&self.cancel)))
    }

    /// Sleeps until `until`. Fails when another thread cancelled.
    fn sleep(&self, until: Option<Instant>) -> Result<(), CallError> {
        let _ = self.cancel.wait_or_bell(None, until);
        self.check_cancel()
    }

    /// Takes a cancellation, and reports it.
    fn check_cancel(&self) -> Result<(), CallError> {
        match self.cancel.take() {
            true => Err(CallError::Cancelled { executed: Executed::No }),
            false => Ok(()),
        }
    }

    /// Returns whether an answer of the provider is pending: a session, or what was asked for of what it publishes.
    pub(crate) fn has_pending_reply(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_)) || self.asked_since().is_some()
    }

    /// Returns since when the answer to what was asked for is pending.
    pub(crate) fn asked_since(&self) -> Option<Instant> {
        self.open_session()?.asked_since()
    }

    /// Waits for the pending answer, until `until` at most; the next step takes it. Fails when another thread
    /// cancelled: the next step finds other failures.
    pub(crate) fn wait_pending_reply(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let waited = match self.session() {
            Some(session) => session.wait_answer(until),
            // The handshake has its own deadline.
            None => self.connect_until(until.unwrap_or(Instant::from_nanos(u64::MAX))),
        };
        match waited {
            Err(error @ CallError::Cancelled { .. }) => Err(self.uncancel(error)),
            _ => Ok(()),
        }
    }

    /// Sleeps until there may be something to read after the generation `seen`: until the provider answers if an answer is
    /// pending, publishes, or ends; without a session, until one may have come up; `until` at most. Returns whether the provider woke
    /// this thread at its board. Fails when another thread cancelled.
    pub(crate) fn sleep_until_news(
        &mut self,
        seen: Option<u64>,
        until: Option<Instant>,
    ) -> Result<bool, CallError> {
        if self.has_pending_reply() {
            return self.wait_pending_reply(until).map(|()| false);
        }
        let Some(session) = self.open_session() else {
            return self.sleep_until_arrival(until).map(|()| false);
        };
        let Some(seen) = seen else {
            return self.sleep(earlier(self.backoff.due(), until)).map(|()| false);
        };
        let woken = session.board().watch(session.link(), seen, until);
        if woken == Woken::Cancelled {
            session.link().cancel.take();
            return Err(self.uncancel(CallError::Cancelled { executed: Executed::No }));
        }
        Ok(woken == Woken::Rung)
    }

    /// Returns the session to call in; opens one, until `until` at most, if there is none.
    fn session_by(&mut self, until: &mut Deadline) -> Result<&mut Session<S>, CallError> {
        // The fast path, with a session, does not read the clock.
        if !matches!(self.phase, Phase::Ready(_)) {
            let now = Os::now();
            self.connect_until(until.resolve(now).unwrap_or(now))?;
        }
        self.ready()
    }

    /// Calls in a session, and once more in its successor's if that is allowed: see [`Client::call`].
    #[inline]
    fn call_by<T>(
        &mut self,
        timeout: Duration,
        call: impl Fn(&mut Session<S>, &mut Deadline) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut until = Deadline::within(timeout);
        match call(self.session_by(&mut until)?, &mut until) {
            Err(error) => self.call_again(error, &mut until, call),
            answer => answer,
        }
    }

    /// Handles a failed call: if the provider went away and a second execution is harmless or impossible, sends the
    /// request again, to the successor. The deadline covers both attempts.
    #[cold]
    fn call_again<T>(
        &mut self,
        error: CallError,
        until: &mut Deadline,
        call: impl FnOnce(&mut Session<S>, &mut Deadline) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.check_owner()?;
        if !error.is_session_fatal() {
            if matches!(error, CallError::Deadline { .. }) {
                self.close_if_stalled();
            }
            return Err(self.uncancel(error));
        }
        self.lost();
        if !self.contract.may_repeat(&error) {
            return Err(error);
        }
        let Ok(session) = self.session_by(until) else { return Err(error) };
        let answer = call(session, until);
        if answer.as_ref().is_err_and(CallError::is_session_fatal) {
            self.lost();
        }
        answer.map_err(|error| self.uncancel(error))
    }

    /// Consumes a cancellation together with the wait that it ended, so that it does not end the next one.
    fn uncancel(&self, error: CallError) -> CallError {
        if matches!(error, CallError::Cancelled { .. }) {
            self.cancel.take();
        }
        error
    }

    /// Returns whether this is the process that created the client, not a forked child.
    fn is_owner_process(&self) -> bool {
        self.owner_process.is_owner_process()
    }

    pub(crate) fn check_owner(&self) -> Result<(), CallError> {
        if self.is_owner_process() { Ok(()) } else { Err(CallError::Forked) }
    }
}
