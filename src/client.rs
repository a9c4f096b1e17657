use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bellwire_core::wire::{CloseReason, RefuseCode, Versions};
use bellwire_core::{Deadline, ErrorKind, Executed, Instant, ServiceName};

use crate::backoff::Backoff;
use crate::connect::{Connecting, Progress};
use crate::transport::doorbell::Event;
use crate::transport::fork::Home;
use crate::transport::object::AsObject;
#[cfg(feature = "tokio")]
use crate::transport::object::Borrowed;
use crate::transport::{clock, link, poll};
use crate::{CallError, ClientConfig, ConnectError, RunDir, Service, Session};

/// A client of service `S`, whoever provides it: absent, late or restarted.
///
/// It starts no thread. [`Client::refresh`] drives it: call it as often as the embedding program likes, for
/// instance once per collection; it never waits. [`Client::call`] connects by itself if it has to.
#[derive(Debug)]
pub struct Client<S: Service> {
    run_dir: RunDir,
    config: ClientConfig,
    phase: Phase<S>,
    backoff: Backoff,
    crowded: u64,
    cancel: Arc<Cancel>,
    home: Home,
}

/// What a client knows of its service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Nobody provides the service now, or not yet.
    Absent,
    /// A session is being opened.
    Connecting,
    /// A session is open.
    Ready,
    /// The provider refused; it is asked again, ever more rarely.
    Refused {
        /// Why, for a program.
        code: RefuseCode,
        /// Why, for an operator.
        reason: Box<str>,
    },
    /// The provider speaks no protocol version that this end speaks; it is asked again, ever more rarely.
    Incompatible {
        /// What this end speaks.
        ours: Versions,
        /// What the provider speaks.
        theirs: Versions,
    },
    /// A session is open, and the provider has not passed what a [`SnapshotCache`](crate::SnapshotCache) asked it for within
    /// [`ClientConfig::timeout`]: it is stopped, hangs, or has no time. The request stays in flight.
    Unresponsive {
        /// For how long.
        waited: Duration,
    },
    /// Opening a session failed in another way; it is tried again, ever more rarely.
    Failed {
        /// What kind of failure it was.
        kind: ErrorKind,
        /// What happened, for an operator.
        reason: Box<str>,
    },
}

/// Ends, from another thread, what a [`Client`] waits for now, or else its next wait.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Cancel>);

#[derive(Debug, Default)]
struct Cancel {
    inner: Mutex<Cancelling>,
    /// Ends waits for a connection; made with the first canceller.
    bell: OnceLock<Event>,
}

#[derive(Debug, Default)]
struct Cancelling {
    pending: bool,
    session: Option<link::Canceller>,
}

#[derive(Debug)]
enum Phase<S: Service> {
    /// No session, and why.
    Without(ConnectError),
    Connecting(Box<Connecting>),
    Ready(Box<Session<S>>),
}

struct NameOf<S>(PhantomData<S>);

impl<S: Service> NameOf<S> {
    const NAME: ServiceName = ServiceName::constant(S::NAME);
}

impl<S: Service> Client<S> {
    /// The service's name, checked when the program is compiled.
    pub const SERVICE: ServiceName = NameOf::<S>::NAME;

    /// A client that meets its provider in `run_dir`. Connects at the first [`Client::refresh`] or
    /// [`Client::call`].
    pub fn new(run_dir: &RunDir) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// A client with another configuration than the default.
    pub fn with_config(run_dir: &RunDir, config: ClientConfig) -> Self {
        let (first, longest) = config.backoff;
        // Jitter has to differ between clients that start together; a clock and a process id do.
        let seed = clock::now().as_nanos() ^ u64::from(std::process::id()).rotate_left(40);
        Self {
            run_dir: run_dir.clone(),
            config,
            phase: Phase::Without(ConnectError::Absent),
            backoff: Backoff::new(first, longest, seed),
            crowded: 0,
            cancel: Arc::default(),
            home: Home::here(),
        }
    }

    /// Goes on as far as it can without waiting: connects if it is time to, takes the provider's next step, or
    /// notices that it is gone. An absent service is a state, not an error.
    pub fn refresh(&mut self) -> State {
        if !self.is_here() {
            return self.state();
        }
        if let Phase::Ready(session) = &self.phase
            && !session.is_alive()
        {
            self.lost();
        }
        self.leave_unread();
        // Never waits.
        self.advance(clock::now());
        self.state()
    }

    /// What the last step found.
    pub fn state(&self) -> State {
        if !self.is_here() {
            let (kind, reason) = (ErrorKind::Forked, CallError::Forked.to_string().into());
            return State::Failed { kind, reason };
        }
        match &self.phase {
            Phase::Ready(_) => State::Ready,
            Phase::Connecting(_) => State::Connecting,
            // A provider that closes during the handshake dies or stops: who listens next is another one.
            Phase::Without(ConnectError::Absent | ConnectError::Closed) => State::Absent,
            Phase::Without(ConnectError::Refused { code, reason }) => {
                State::Refused { code: *code, reason: reason.clone() }
            }
            Phase::Without(ConnectError::Incompatible { ours, theirs }) => {
                State::Incompatible { ours: *ours, theirs: *theirs }
            }
            Phase::Without(error) => {
                State::Failed { kind: error.kind(), reason: error.to_string().into() }
            }
        }
    }

    /// Calls and waits for the answer, at most for the configured time. Opens a session first if there is none
    /// and it is time to try.
    ///
    /// When the provider goes away, the request is sent again once, to its successor, if the handler cannot
    /// have run or the service is [idempotent](Service::IDEMPOTENT).
    ///
    /// # Errors
    /// [`CallError`] says who is at fault and whether the handler may have run. The client stays usable.
    pub fn call(&mut self, request: &S::Request) -> Result<S::Response, CallError> {
        self.call_within(request, self.config.timeout)
    }

    /// Calls and waits for the answer, at most for `timeout`, connecting included.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_within(
        &mut self,
        request: &S::Request,
        timeout: Duration,
    ) -> Result<S::Response, CallError> {
        let mut until = Deadline::within(timeout);
        let answer = self.session_by(&mut until)?.call_until(request, &mut until);
        match answer {
            Err(error) => self.call_again(request, &mut until, error),
            answer => answer,
        }
    }

    /// The open session, for calls in flight together; `None` unless the state is [`State::Ready`].
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

    /// How often the provider had no room for another client that waits to be accepted.
    pub fn crowded(&self) -> u64 {
        self.crowded
    }

    /// Opens a session, waiting for the provider's answers, and its room, but not for an absent provider.
    ///
    /// # Errors
    /// [`CallError`] that says why there is none.
    pub fn connect(&mut self) -> Result<&mut Session<S>, CallError> {
        self.connect_until(clock::now().after(self.config.connect_timeout))?;
        match &mut self.phase {
            Phase::Ready(session) => Ok(session),
            _ => Err(CallError::Absent { service: Self::SERVICE }),
        }
    }

    /// Ends, from another thread, what this client waits for.
    ///
    /// # Errors
    /// A first canceller takes one descriptor: `EMFILE` at the limit.
    pub fn canceller(&self) -> io::Result<Canceller> {
        if self.cancel.bell.get().is_none() {
            let _ = self.cancel.bell.set(Event::create()?);
        }
        if let Phase::Ready(session) = &self.phase {
            self.cancel.lock().session = Some(session.canceller()?);
        }
        Ok(Canceller(Arc::clone(&self.cancel)))
    }

    /// When the next try to connect is due; `None` when it is due now, or a session is open.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.backoff.due()
    }

    /// Sleeps until `until`, or until cancelled; true when cancelled.
    pub(crate) fn sleep(&self, until: Option<Instant>) -> bool {
        let _ = match self.cancel.bell.get() {
            Some(bell) => poll::wait_any(&[bell.as_object()], until),
            None => poll::wait_any(&[], until),
        };
        self.cancel.take()
    }

    /// The session to call in; opens one, at most until `until`, if there is none.
    fn session_by(&mut self, until: &mut Deadline) -> Result<&mut Session<S>, CallError> {
        // The fast path, with a session, takes no look at the clock.
        if !matches!(self.phase, Phase::Ready(_)) {
            let now = clock::now();
            self.connect_until(until.resolve(now).unwrap_or(now))?;
        }
        match &mut self.phase {
            Phase::Ready(session) => Ok(session),
            _ => Err(CallError::Absent { service: Self::SERVICE }),
        }
    }

    /// A call failed: sends it again, to a successor, if the provider went away and that does no harm. One deadline holds
    /// for all of it.
    #[cold]
    fn call_again(
        &mut self,
        request: &S::Request,
        until: &mut Deadline,
        error: CallError,
    ) -> Result<S::Response, CallError> {
        if !self.is_here() {
            return Err(CallError::Forked);
        }
        if !error.is_of_session() {
            if matches!(error, CallError::Deadline { .. }) {
                self.leave_unread();
            }
            return Err(self.uncancel(error));
        }
        self.lost();
        // Who lied is not asked again, nor is its successor on its behalf.
        let lied = matches!(error, CallError::PeerLied(_));
        if lied || (error.executed() == Executed::Maybe && !S::IDEMPOTENT) {
            return Err(error);
        }
        let Ok(session) = self.session_by(until) else { return Err(error) };
        let answer = session.call_until(request, until);
        if answer.as_ref().is_err_and(CallError::is_of_session) {
            self.lost();
        }
        answer.map_err(|error| self.uncancel(error))
    }

    /// A cancellation is spent on the call that it ended.
    fn uncancel(&self, error: CallError) -> CallError {
        if matches!(error, CallError::Cancelled { .. }) {
            self.spend_cancel();
        }
        error
    }

    /// The wait that it ended is over: the next one is not ended by it, too.
    pub(crate) fn spend_cancel(&self) {
        self.cancel.take();
    }

    /// One step towards a session, which is given away; `None` while one is being opened.
    #[cfg(feature = "tokio")]
    pub(crate) fn step(&mut self) -> Result<Option<Session<S>>, CallError> {
        if !self.is_here() {
            return Err(CallError::Forked);
        }
        self.advance(clock::now());
        match std::mem::replace(&mut self.phase, Phase::Without(ConnectError::Absent)) {
            Phase::Ready(session) => Ok(Some(*session)),
            Phase::Without(error) => {
                let why = self.no_session(&error);
                self.phase = Phase::Without(error);
                Err(why)
            }
            connecting => {
                self.phase = connecting;
                Ok(None)
            }
        }
    }

    /// What tells that the next step is due, and when it is due anyway.
    #[cfg(feature = "tokio")]
    pub(crate) fn waits_for(&self) -> Option<(Borrowed<'_>, Instant)> {
        match &self.phase {
            Phase::Connecting(connecting) => Some(connecting.waits_for()),
            _ => None,
        }
    }

    /// Gives up a session with a provider that has no time now, and tries anew later.
    pub(crate) fn put_off(&mut self) {
        self.lost();
        self.backoff.failed(clock::now());
    }

    /// Closes a session whose provider has taken nothing for longer than configured.
    fn leave_unread(&mut self) {
        if let Phase::Ready(session) = &mut self.phase
            && session.is_left_unread()
        {
            session.leave(CloseReason::Unread);
            self.lost();
        }
    }

    /// Forgets a session that is over.
    pub(crate) fn lost(&mut self) {
        self.cancel.lock().session = None;
        self.phase = Phase::Without(ConnectError::Absent);
    }

    /// One step. Waits only where a provider has no room for another client yet, until `patience` is over.
    fn advance(&mut self, patience: Instant) {
        let now = clock::now();
        let progress =
            match std::mem::replace(&mut self.phase, Phase::Without(ConnectError::Absent)) {
                Phase::Ready(session) => {
                    self.phase = Phase::Ready(session);
                    return;
                }
                Phase::Without(error) if !self.backoff.is_due(now) => {
                    self.phase = Phase::Without(error);
                    return;
                }
                Phase::Connecting(connecting) => connecting.advance(),
                Phase::Without(_) => Connecting::start(
                    &self.run_dir,
                    Self::SERVICE,
                    S::METHOD,
                    &self.config,
                    patience,
                )
                .and_then(Connecting::advance),
            };
        match progress {
            Ok(Progress::Waiting(connecting)) => self.phase = Phase::Connecting(connecting),
            Ok(Progress::Open(opened)) => {
                self.backoff.succeeded();
                let session = Session::new(*opened, &self.config);
                self.cancel.join(&session);
                self.phase = Phase::Ready(Box::new(session));
            }
            Err(error) => {
                self.backoff.failed(now);
                self.crowded += u64::from(matches!(error, ConnectError::Busy));
                self.phase = Phase::Without(error);
            }
        }
    }

    /// Whether this is the process that made the client, and no child of it.
    pub(crate) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Steps until a session is open, waiting for the provider's answers.
    pub(crate) fn connect_until(&mut self, deadline: Instant) -> Result<(), CallError> {
        if !self.is_here() {
            return Err(CallError::Forked);
        }
        loop {
            self.advance(deadline);
            let connecting = match &self.phase {
                Phase::Ready(_) => return Ok(()),
                // It is there, and many want to be let in: not all of them at the same time.
                Phase::Without(ConnectError::Busy) if clock::now() < deadline => {
                    let next = self.next_try().unwrap_or(deadline).min(deadline);
                    if self.sleep(Some(next)) {
                        return Err(CallError::Cancelled { executed: Executed::No });
                    }
                    continue;
                }
                Phase::Without(error) => return Err(self.no_session(error)),
                Phase::Connecting(connecting) => connecting,
            };
            if clock::now() >= deadline {
                return Err(CallError::Deadline { executed: Executed::No });
            }
            let bell = self.cancel.bell.get();
            let waited = connecting.wait(Some(deadline), bell.map(AsObject::as_object));
            if self.cancel.take() {
                return Err(CallError::Cancelled { executed: Executed::No });
            }
            if let Err(error) = waited {
                self.backoff.failed(clock::now());
                self.phase = Phase::Without(error);
            }
        }
    }

    fn no_session(&self, error: &ConnectError) -> CallError {
        let service = Self::SERVICE;
        match error {
            ConnectError::Absent => CallError::Absent { service },
            ConnectError::Refused { code, reason } => {
                CallError::Refused { service, code: *code, reason: reason.clone() }
            }
            ConnectError::Incompatible { ours, theirs } => {
                CallError::Incompatible { ours: *ours, theirs: *theirs }
            }
            error => {
                CallError::Connect { service, kind: error.kind(), reason: error.to_string().into() }
            }
        }
    }
}

impl Canceller {
    /// Ends what the client waits for now, or else its next wait, with [`CallError::Cancelled`].
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
    /// A new session is cancelled by the same handles.
    fn join<S: Service>(&self, session: &Session<S>) {
        if self.bell.get().is_none() {
            return;
        }
        let mut inner = self.lock();
        inner.session = session.canceller().ok();
        if let (true, Some(session)) = (inner.pending, &inner.session) {
            session.cancel();
        }
    }

    fn take(&self) -> bool {
        let Some(bell) = self.bell.get() else { return false };
        let mut inner = self.lock();
        bell.drain();
        std::mem::take(&mut inner.pending)
    }

    /// No code that holds this lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, Cancelling> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
