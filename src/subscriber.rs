use std::io;
use std::marker::PhantomData;
use std::task::Poll;
use std::time::Duration;

use bellwire_core::broadcast::Received;
use bellwire_core::wire::Status;
use bellwire_core::{ErrorKind, Fault, Instant, PeerFault, Spin, nanos};

use crate::broadcast::PeerRing;
use crate::cache::LivenessCheck;
use crate::event::{Event, LONGEST};
use crate::publication::limits_for;
use crate::trace::delivery::{ReaderTrace, Transfer};
use crate::transport::object::Borrowed;
use crate::transport::{Os, prelude::*};
use crate::{
    CallError, Canceller, Client, ClientConfig, Contract, Dynamic, Malformed, Message,
    ProviderState, RunDir, Session,
};

/// Receives the events of `E`, each in order, or the exact count of those that it missed.
///
/// Taking an event costs loads and a copy, and no system call; the provider does nothing for it. A provider that is absent,
/// late or restarted is a state: [`Subscriber::state`]. Starts no thread.
///
/// ```
/// use bellwire::{Delivery, StartAt, Subscriber};
/// # use std::time::Duration;
#[doc = include_str!("doc/temperature.txt")]
/// let mut subscriber = Subscriber::<Temperature>::new(&run_dir, StartAt::Oldest);
/// publisher.send(&21)?;
/// let next = subscriber.next(Some(Duration::from_secs(5)))?;
/// assert_eq!(next, Some(Delivery::Event { sequence: 1, event: 21 }));
/// assert_eq!(subscriber.try_next()?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Subscriber<E: Event> {
    pub(crate) client: Client<Dynamic>,
    place: Place,
    /// Whether the ring that the session has mapped is the one at `place`.
    is_following: bool,
    /// The ring that follows the one that the session has mapped, which has ended.
    next_ring: Option<u32>,
    /// The last event that was copied.
    buffer: Vec<u8>,
    pending: Pending,
    liveness: LivenessCheck,
    spin: Spin,
    trace: ReaderTrace,
    event: PhantomData<fn(&E)>,
}

/// Where a new subscriber starts.
///
/// ```
/// use bellwire::{Delivery, StartAt, Subscriber};
/// # use std::time::Duration;
#[doc = include_str!("doc/temperature.txt")]
/// publisher.send_all(&[20, 21])?;
/// let mut all = Subscriber::<Temperature>::new(&run_dir, StartAt::Oldest);
/// let first = all.next(Some(Duration::from_secs(5)))?;
/// assert_eq!(first, Some(Delivery::Event { sequence: 1, event: 20 }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// With the first event that is published after it has found the provider.
    #[default]
    Now,
    /// With the oldest event that the provider keeps.
    Oldest,
}

/// What a subscriber gets.
///
/// ```
/// use bellwire::{Delivery, StartAt, Subscriber};
/// # use std::time::Duration;
#[doc = include_str!("doc/temperature.txt")]
/// # let mut subscriber = Subscriber::<Temperature>::new(&run_dir, StartAt::Oldest);
/// # publisher.send(&21)?;
/// match subscriber.next(Some(Duration::from_secs(5)))? {
///     Some(Delivery::Event { sequence, event }) => println!("{sequence}: {event} degrees"),
///     Some(Delivery::Missed { events }) => println!("{events} were overwritten before"),
///     Some(Delivery::Restarted) => println!("another publisher counts from 1"),
///     None => println!("nothing for 5 s"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery<M> {
    /// The next event.
    Event {
        /// Its number, counted by its publisher from 1.
        sequence: u64,
        /// Its contents.
        event: M,
    },
    /// This subscriber was too slow: events were overwritten. The next delivery goes on behind them.
    Missed {
        /// The number of overwritten events.
        events: u64,
    },
    /// Another publisher has taken over and counts from 1 again. The last events of its predecessor may be lost; their number
    /// is unknown. The next delivery is the oldest event that this one keeps.
    Restarted,
}

/// Why an event could not be taken. The next call goes on behind it.
///
/// ```
/// use bellwire::{CallError, StartAt, SubscribeError, Subscriber};
/// # use std::time::Duration;
#[doc = include_str!("doc/temperature.txt")]
/// let mut subscriber = Subscriber::<Temperature>::new(&run_dir, StartAt::Now);
/// subscriber.canceller()?.cancel();
/// let ended = subscriber.next(None).unwrap_err();
/// assert!(matches!(ended, SubscribeError::Call(CallError::Cancelled { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The event's bytes are not what its type says. Build both ends from one version of the service.
    #[error("event {sequence} is malformed: {source}")]
    Malformed {
        /// Its number.
        sequence: u64,
        /// What is wrong.
        source: Malformed,
    },
    /// The session with the provider failed.
    #[error("cannot follow the events: {0}")]
    Call(#[from] CallError),
}

impl SubscribeError {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        if let Self::Call(error) = self { error.kind() } else { ErrorKind::Malformed }
    }

    /// Returns who has to act to fix the failure.
    pub fn fault(&self) -> Fault {
        if let Self::Call(error) = self { error.fault() } else { self.kind().fault() }
    }
}

/// What was found and is still to be delivered, in this order.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    restarted: bool,
    missed: u64,
    /// The number and the length of the event in the buffer.
    event: Option<(u64, usize)>,
}

/// What a subscriber takes next.
#[derive(Clone, Copy, Debug)]
enum Place {
    Start(StartAt),
    /// The events of this publisher from this number on; `None`: from the oldest on.
    After {
        publisher: u64,
        next: Option<u64>,
    },
}

type Found<E> = Result<Option<Delivery<<E as Event>::Message>>, SubscribeError>;

impl Subscriber<Dynamic> {
    /// Creates a subscriber of events that are known only at run time.
    pub fn with_contract(
        run_dir: &RunDir,
        contract: Contract,
        start: StartAt,
        config: ClientConfig,
    ) -> Self {
        Self::of_contract(run_dir, contract.idempotent(true), start, config)
    }
}

impl<E: Event> Subscriber<E> {
    /// Creates a subscriber that looks for its provider in `run_dir`. It connects at the first [`Subscriber::try_next`] or
    /// [`Subscriber::next`].
    pub fn new(run_dir: &RunDir, start: StartAt) -> Self {
        Self::with_config(run_dir, start, ClientConfig::default())
    }

    /// Creates a subscriber with a configuration other than the default.
    pub fn with_config(run_dir: &RunDir, start: StartAt, config: ClientConfig) -> Self {
        Self::of_contract(run_dir, Contract::of_event::<E>(), start, config)
    }

    fn of_contract(
        run_dir: &RunDir,
        contract: Contract,
        start: StartAt,
        mut config: ClientConfig,
    ) -> Self {
        config.lane.limits = limits_for(LONGEST, config.lane.limits);
        let spin = Spin::new(config.spin);
        Self {
            client: Client::of_contract(run_dir, contract, config),
            place: Place::Start(start),
            is_following: false,
            next_ring: None,
            buffer: Vec::new(),
            pending: Pending::default(),
            liveness: LivenessCheck::default(),
            spin,
            trace: ReaderTrace::default(),
            event: PhantomData,
        }
    }

    /// Returns the next delivery if there is one. Never blocks. `None` also while the provider is absent or the session is
    /// being opened: each call goes one step further.
    ///
    /// # Errors
    /// [`SubscribeError`]; the next call goes on.
    #[inline]
    pub fn try_next(&mut self) -> Found<E> {
        if !self.poll()? {
            return Ok(None);
        }
        if std::mem::take(&mut self.pending.restarted) {
            return Ok(Some(Delivery::Restarted));
        }
        match std::mem::take(&mut self.pending.missed) {
            0 => self.pending.event.take().map(|event| self.open(event)).transpose(),
            events => Ok(Some(Delivery::Missed { events })),
        }
    }

    /// Waits for the next delivery, at most for `timeout`; `None` waits for ever. Returns `None` when there was none in time.
    /// Parks on the board, or until a provider comes up, and polls nothing.
    ///
    /// # Errors
    /// [`SubscribeError`]; it contains [`CallError::Cancelled`] when another thread cancelled.
    pub fn next(&mut self, timeout: Option<Duration>) -> Found<E> {
        if self.wait(timeout)? { self.try_next() } else { Ok(None) }
    }

    /// Waits until [`Subscriber::try_next`] has something, at most for `timeout`. Returns false when there was nothing in
    /// time. Takes nothing.
    ///
    /// # Errors
    /// Like [`Subscriber::next`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        let mut until = None;
        loop {
            if self.poll()? {
                return Ok(true);
            }
            if let Some(timeout) = timeout {
                let now = Os::now();
                if now >= *until.get_or_insert(now.after(timeout)) {
                    return Ok(false);
                }
            }
            if !self.spin() {
                self.sleep(until)?;
            }
        }
    }

    /// Makes the descriptor of [`Subscriber::pollable`] readable at the next event. Call it before each sleep in an event loop.
    /// Returns true if [`Subscriber::try_next`] may have something already, or the provider is gone: call it, and do not sleep.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub fn arm(&mut self) -> Result<bool, SubscribeError> {
        if self.pending.is_some() {
            return Ok(true);
        }
        let armed = self.arm_session();
        if armed.as_ref().is_err_and(CallError::is_provider_gone) {
            // What it published before comes first.
            return Ok(true);
        }
        if armed.as_ref().is_err_and(CallError::is_session_fatal) {
            self.leave();
        }
        Ok(armed?)
    }

    /// Returns the descriptor for an event loop: readable when there may be an event, or when a provider that was absent may
    /// have come up. Ask for it before each sleep, after [`Subscriber::arm`]: the descriptor changes with the client's state. Go
    /// on also once [`Subscriber::poll_timeout`] has passed.
    ///
    /// # Errors
    /// `Unsupported` unless [`ClientConfig::doorbell`] is an eventfd or the socket; `EMFILE` at the limit of open files. Else as
    /// [`Client::pollable_arrival`].
    pub fn pollable(&mut self) -> io::Result<Borrowed<'_>> {
        self.client.pollable()
    }

    /// Returns after how long to take the next even if nothing is readable, because an attempt to open a session is due then, or
    /// the provider declined to ring; `None`: never.
    pub fn poll_timeout(&self) -> Option<Duration> {
        Some(self.client.due()?.since(Os::now()))
    }

    /// Returns whether the provider was found, and its events are followed: those published from now on are taken or counted.
    pub fn is_following(&self) -> bool {
        self.is_following
    }

    /// Returns the provider's state as last observed.
    pub fn state(&self) -> ProviderState {
        self.client.state()
    }

    /// Returns a handle that cancels this subscriber's waits from another thread.
    ///
    /// # Errors
    /// The first canceller needs a descriptor: `EMFILE` at the limit.
    pub fn canceller(&self) -> io::Result<Canceller> {
        self.client.canceller()
    }

    /// Looks for the next delivery, and goes one step towards one if there is none. Returns whether there is.
    #[inline]
    fn poll(&mut self) -> Result<bool, SubscribeError> {
        if self.pending.is_some() || self.take()? {
            return Ok(true);
        }
        if self.is_caught_up() {
            return Ok(false);
        }
        self.advance()
    }

    /// Copies the next record of the ring that is followed. Returns whether there was one.
    #[inline]
    fn take(&mut self) -> Result<bool, SubscribeError> {
        if !self.is_following {
            return Ok(false);
        }
        let Some(session) = self.client.session() else { return Ok(false) };
        let Some(ring) = session.ring() else { return Ok(false) };
        if bellwire_probes::wants_deliveries() {
            self.trace.polls(ring.next_sequence(), ring.has_new_records());
        }
        match ring.try_next(&mut self.buffer) {
            Ok(Received::Record { sequence, len, missed }) => {
                self.trace.takes(sequence, Transfer::Copied);
                if missed > 0 {
                    bellwire_probes::missed(session.traced().0, sequence, missed);
                }
                if let Place::After { next, .. } = &mut self.place {
                    *next = Some(sequence + 1);
                }
                self.pending.missed = missed;
                self.pending.event = Some((sequence, len));
                return Ok(true);
            }
            Ok(Received::Next { number }) => self.next_ring = Some(number),
            Ok(Received::Nothing | Received::Overrun) => {}
            Err(fault) => {
                let error = session.unless_fault::<()>(Err(fault));
                self.leave();
                error?;
            }
        }
        Ok(false)
    }

    #[inline]
    fn open(
        &mut self,
        (sequence, len): (u64, usize),
    ) -> Result<Delivery<E::Message>, SubscribeError> {
        let bytes = self.buffer.get(..len).unwrap_or_default();
        self.trace.validates();
        let decoded = E::Message::decode(bytes);
        self.trace.validated(|| self.client.open_session().map(Session::traced));
        match decoded {
            Ok(event) => Ok(Delivery::Event { sequence, event }),
            Err(source) => Err(SubscribeError::Malformed { sequence, source }),
        }
    }

    /// Returns whether nothing but an event can change what there is: loads, or a system call now and then.
    #[inline]
    fn is_caught_up(&mut self) -> bool {
        if !self.is_following || self.next_ring.is_some() {
            return false;
        }
        let Some(session) = self.client.session() else { return false };
        !session.board().is_stopped() && !session.has_ended() && self.liveness.is_alive(session)
    }

    /// Opens a session, or has the next ring mapped, as far as possible without blocking.
    #[cold]
    fn advance(&mut self) -> Result<bool, SubscribeError> {
        self.client.check_owner()?;
        if self.is_following && self.next_ring.is_none() {
            // What it published before it ended comes first.
            if self.take()? {
                return Ok(true);
            }
            if self.next_ring.is_none() {
                self.leave();
            }
        }
        // An answer comes before the end of the session, and that it stopped is handled below.
        let is_to_follow = self
            .client
            .session()
            .is_some_and(|session| session.has_answer() || session.board().is_stopped());
        if !self.is_following && !is_to_follow {
            self.client.refresh();
        }
        if let Err(error) = self.follow() {
            let left = self.client.leave_after(error);
            if self.client.session().is_none() {
                self.unfollow();
            }
            left?;
        }
        Ok(self.take()? || self.pending.is_some())
    }

    /// Has the ring mapped that the board names, and goes to its place there.
    fn follow(&mut self) -> Result<(), CallError> {
        let Some(session) = self.client.session() else { return Ok(()) };
        if session.board().is_stopped() {
            return Err(CallError::Declined { status: Status::Stopping });
        }
        let publisher = session.board().publisher();
        let named = session.board().ring().map(|ring| ring.number);
        let Some(number) = self.next_ring.or(named) else { return Ok(()) };
        let ended = session.ring().filter(|_| self.next_ring.is_some()).map(|ring| ring.number());
        let ring = match session.try_ring(number)? {
            Poll::Ready(Some(ring)) => ring,
            Poll::Pending => return Ok(()),
            // The provider lacked something to pass it: in a session to come, it may not.
            Poll::Ready(None) => return Err(CallError::Declined { status: Status::Busy }),
        };
        if ended == Some(ring.number()) {
            let fault = PeerFault::Memory { what: "a ring", why: "it has ended" };
            return session.unless_fault(Err(fault));
        }
        match self.place {
            Place::Start(StartAt::Now) => {
                let placed = ring.skip_to_now();
                if !session.unless_fault(placed)? {
                    return Ok(());
                }
            }
            Place::After { publisher: before, next: Some(next) } if before == publisher => {
                ring.resume_at(next);
            }
            Place::Start(StartAt::Oldest) => ring.seek_oldest(),
            Place::After { publisher: before, .. } => {
                self.pending.restarted = before != publisher;
                ring.seek_oldest();
            }
        }
        let next = session.ring().and_then(|ring| PeerRing::next_sequence(ring));
        self.place = Place::After { publisher, next };
        self.is_following = true;
        self.next_ring = None;
        Ok(())
    }

    /// Drops the session, and keeps the place.
    fn leave(&mut self) {
        self.client.lost();
        self.unfollow();
    }

    fn unfollow(&mut self) {
        self.is_following = false;
        self.next_ring = None;
    }

    /// Spins for the next event, as long as it pays. Returns true if there may be one.
    fn spin(&mut self) -> bool {
        if !self.is_following || self.next_ring.is_some() {
            return false;
        }
        let Some(ring) = self.client.session().and_then(|session| session.ring()) else {
            return false;
        };
        self.spin.watch(Os::now, std::thread::yield_now, || ring.has_new_records())
    }

    /// Sleeps until there may be more to do. Fails when another thread cancelled.
    fn sleep(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let waits_for_ring = self.next_ring.is_some() || !self.is_following;
        let began = Os::now();
        let mut seen = None;
        if let Some(session) = self.client.session() {
            seen = Some(session.board().generation());
            // Published since: before the generation that was just loaded.
            if !waits_for_ring && session.ring().is_some_and(|ring| ring.has_new_records()) {
                return Ok(());
            }
        }
        if self.client.sleep_until_news(seen, until)? {
            self.spin.parked(Some(nanos(Os::now().since(began))), None);
        }
        Ok(())
    }

    fn arm_session(&mut self) -> Result<bool, CallError> {
        let (is_due, is_following) = (self.next_ring.is_some(), self.is_following);
        let is_over = is_following && !is_due && !self.is_caught_up();
        let Some(session) = self.client.session() else { return Ok(false) };
        if session.asked_since().is_none() {
            let seen = session.board().generation();
            if is_due || is_over {
                return Ok(true);
            }
            session.request_update(seen)?;
            // What was published after the generation was loaded is rung for; what before, is there.
            if is_following && session.ring().is_some_and(|ring| ring.has_new_records()) {
                return Ok(true);
            }
        }
        session.arm()
    }
}

impl Pending {
    #[inline]
    fn is_some(&self) -> bool {
        self.event.is_some() || self.restarted
    }
}
