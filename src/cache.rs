use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use bellwire_core::{Instant, Woken};

use crate::publisher::{Snapshot, limits_for};
use crate::session::Fetched;
use crate::trace::delivery::{How, ReaderTrace};
use crate::transport::clock;
use crate::transport::life::LifeState;
use crate::transport::object::Borrowed;
use crate::transport::snapshot::SnapshotMap;
use crate::{
    CallError, Canceller, Client, ClientConfig, Contract, Dynamic, Malformed, RunDir, Service,
    Session, State,
};

/// A reader that is further behind takes the newest snapshot as a whole.
const MOST_FOLLOWED: u64 = 16;

/// How long a refresh may miss the death of a provider that has no life word.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The newest snapshot of `T`, in immutable memory, validated once, and kept when its provider is gone.
///
/// When nothing changed, [`SnapshotCache::refresh`] costs two loads. A changed snapshot of up to 256 KiB costs loads and a
/// copy out of the provider's broadcast ring, and neither a system call nor anything that the provider does; where the provider
/// tells what changed ([`Snapshot::TELLS_CHANGES`]), whatever its length, only this is copied and checked. A longer one
/// otherwise, or the first one, costs one message, one descriptor and one `mmap`. A refresh never blocks.
///
/// ```
/// use bellwire::{Refreshed, SnapshotCache};
/// # use std::time::Duration;
#[doc = include_str!("doc/load.txt")]
/// let mut cache = SnapshotCache::<Load>::new(&run_dir);
/// publisher.publish(&0.5_f64.to_le_bytes())?;
/// assert_eq!(cache.refresh_within(Duration::from_secs(5))?, Refreshed::Changed);
/// assert_eq!(cache.refresh()?, Refreshed::Unchanged);
/// assert_eq!(cache.current().map(|snapshot| *snapshot.index()), Some(0.5));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SnapshotCache<T: Snapshot> {
    client: Client<Fetch<T>>,
    held: Option<Held<T>>,
    /// For the next snapshot that is copied; the buffer of the one before last.
    spare: Vec<u8>,
    /// The last board generation that was handled; `None` on a new session.
    seen: Option<u64>,
    /// Whether the provider was present at the last refresh.
    is_there: bool,
    timeout: Duration,
    look: Look,
    trace: ReaderTrace,
}

/// When the provider's process was last checked; only needed where the kernel does not report its death.
#[derive(Debug, Default)]
pub(crate) struct Look(Option<Instant>);

impl Look {
    /// Returns whether the provider's process lives, as far as is known without a system call each time.
    #[inline]
    pub(crate) fn is_alive<S: Service>(&mut self, session: &Session<S>) -> bool {
        session.link().life() == LifeState::Alive || self.check(session)
    }

    /// Checks the process with the kernel, at most once per `LOOK_EVERY`.
    #[cold]
    fn check<S: Service>(&mut self, session: &Session<S>) -> bool {
        if session.link().life() == LifeState::Died || !session.link().is_here() {
            return false;
        }
        let now = clock::now();
        if self.0.is_some_and(|last| now.since(last) < LOOK_EVERY) {
            return true;
        }
        self.0 = Some(now);
        session.is_alive()
    }
}

/// The outcome of a refresh.
///
/// ```
/// use bellwire::Refreshed;
/// # use bellwire::SnapshotCache;
/// # use std::time::Duration;
#[doc = include_str!("doc/load.txt")]
/// let mut cache = SnapshotCache::<Load>::new(&run_dir);
/// assert_eq!(cache.refresh_within(Duration::from_secs(5))?, Refreshed::Empty);
/// server.stop();
/// assert_eq!(cache.refresh()?, Refreshed::Unavailable);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The snapshot held is the newest.
    Unchanged,
    /// A newer snapshot is held now.
    Changed,
    /// The cache has requested a session or a newer snapshot and has no answer yet. It still holds the last good
    /// snapshot, if any.
    Pending,
    /// The provider is present but has not published anything yet.
    Empty,
    /// The provider is absent, or has not answered for longer than [`ClientConfig::timeout`]. The cache still holds
    /// the last good snapshot, if any. [`SnapshotCache::state`] has the reason.
    Unavailable,
}

/// Why a refresh failed. The cache still holds the last good snapshot.
///
/// ```
/// use bellwire::RefreshError;
/// # use bellwire::SnapshotCache;
/// # use std::time::Duration;
#[doc = include_str!("doc/load.txt")]
/// let mut cache = SnapshotCache::<Load>::new(&run_dir);
/// publisher.publish(b"no f64")?;
/// let error = cache.refresh_within(Duration::from_secs(5)).unwrap_err();
/// assert!(matches!(error, RefreshError::Malformed { generation: 1, .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshError<E: std::error::Error + 'static> {
    /// The provider's newest snapshot is malformed. The cache does not fetch it again, but will fetch the next
    /// generation.
    #[error("generation {generation} is malformed, the last good one stays: {source}")]
    Malformed {
        /// The generation.
        generation: u64,
        /// The error of validation.
        source: E,
    },
    /// The snapshot could not be fetched.
    #[error("cannot fetch the newest snapshot, the last good one stays: {0}")]
    Call(#[from] CallError),
}

/// A held snapshot and its index.
#[derive(Debug)]
struct Held<T: Snapshot> {
    bytes: Source,
    index: T::Index,
    generation: u64,
    taken: Instant,
}

/// The bytes of a snapshot.
#[derive(Debug)]
enum Bytes {
    Mapped(SnapshotMap),
    /// A copy, and its length: the buffer may be longer.
    Copied(Vec<u8>, usize),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Copied(bytes, len) => bytes.get(..*len).unwrap_or_default(),
        }
    }
}

/// The bytes of the snapshot held: as they came, or made from the index when somebody asks for them.
#[derive(Debug)]
enum Source {
    Came(Bytes),
    Made(OnceLock<Vec<u8>>),
}

/// The call behind a snapshot service. ClientTrace twice does no harm.
#[derive(Debug)]
pub(crate) struct Fetch<T>(PhantomData<fn(&T)>);

impl<T: Snapshot> Service for Fetch<T> {
    const NAME: &'static str = T::NAME;
    const METHOD: u32 = T::METHOD;
    const SCHEMA: u64 = T::SCHEMA;
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Response = ();
}

impl SnapshotCache<Dynamic> {
    /// Creates a cache of snapshots that are known only at run time.
    pub fn of(run_dir: &RunDir, contract: Contract, config: ClientConfig) -> Self {
        Self::of_contract(run_dir, contract.idempotent(true), config)
    }
}

impl<T: Snapshot> SnapshotCache<T> {
    /// Creates a cache that looks for its provider in `run_dir`. It connects at the first refresh.
    pub fn new(run_dir: &RunDir) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// Creates a cache with a configuration other than the default.
    pub fn with_config(run_dir: &RunDir, config: ClientConfig) -> Self {
        Self::of_contract(run_dir, Contract::of::<Fetch<T>>(), config)
    }

    fn of_contract(run_dir: &RunDir, contract: Contract, mut config: ClientConfig) -> Self {
        let timeout = config.timeout;
        config.lane.limits = limits_for::<T>(config.lane.limits);
        Self {
            client: Client::of_contract(run_dir, contract, config),
            held: None,
            spare: Vec::new(),
            seen: None,
            is_there: false,
            timeout,
            look: Look::default(),
            trace: ReaderTrace::default(),
        }
    }

    /// Checks for a newer snapshot and takes it if it has arrived. Never blocks.
    ///
    /// The first refreshes open a session ([`Refreshed::Pending`]). A refresh that sees a newer generation requests
    /// it, and a later one takes it; one that is in the provider's broadcast ring it takes at once. A
    /// provider that is absent or does not answer is [`Refreshed::Unavailable`], not an error.
    ///
    /// If you refresh rarely, or need the newest snapshot now, use [`SnapshotCache::refresh_within`].
    ///
    /// # Errors
    /// [`RefreshError`]; the cache keeps the last good snapshot.
    #[inline]
    pub fn refresh(&mut self) -> Result<Refreshed, RefreshError<T::Error>> {
        if let (Some(seen), Some(session)) = (self.seen, self.client.session()) {
            if session.board().generation() == seen && self.look.is_alive(session) {
                return Ok(if self.held.is_some() {
                    Refreshed::Unchanged
                } else {
                    Refreshed::Empty
                });
            }
        }
        self.refresh_changed()
    }

    /// Refreshes like [`SnapshotCache::refresh`], but waits up to `patience` for the provider to open a session and
    /// to pass the newest snapshot. Does not wait for the next publication, nor for an absent provider.
    ///
    /// # Errors
    /// [`RefreshError`]; it contains [`CallError::Cancelled`] when another thread cancelled.
    #[inline]
    pub fn refresh_within(
        &mut self,
        patience: Duration,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        match self.refresh()? {
            found @ (Refreshed::Unchanged | Refreshed::Empty) => Ok(found),
            found => self.refresh_patiently(found, patience),
        }
    }

    /// Waits until there is a newer snapshot, and takes it. Parks on the board: one system call of the provider wakes
    /// all watchers, and nothing is polled. When the provider goes away or stops answering, this returns
    /// [`Refreshed::Unavailable`] once; the next wait lasts until it, or its successor, is back. After `timeout`, it
    /// returns the outcome of the last refresh; `None` waits for ever.
    ///
    /// While the provider is absent, it sleeps until one may have come up.
    ///
    /// # Errors
    /// [`RefreshError`], immediately; it contains [`CallError::Cancelled`] when another thread cancelled.
    pub fn wait_for_change(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        let until = timeout.map(|timeout| clock::now().after(timeout));
        loop {
            let (found, is_new) = self.refresh_for_change()?;
            let is_over = until.is_some_and(|until| clock::now() >= until);
            if is_new || is_over {
                return Ok(found);
            }
            if self.is_awaiting() {
                // Report that the provider stopped answering when its answer is overdue.
                let overdue = self.overdue_at().filter(|_| found == Refreshed::Pending);
                self.wait_for_answer(earlier(overdue, until))?;
                continue;
            }
            let cancelled = match (self.seen, self.client.session()) {
                (Some(seen), Some(session)) => {
                    let woken = session.board().watch(session.link(), seen, until);
                    if woken == Woken::Cancelled {
                        session.link().take_cancel();
                        self.client.spend_cancel();
                    }
                    woken == Woken::Cancelled
                }
                (None, Some(_)) => self.client.sleep(earlier(self.client.next_try(), until)),
                (_, None) => self.client.sleep_until_arrival(until),
            };
            if cancelled {
                let executed = bellwire_core::Executed::No;
                return Err(RefreshError::Call(CallError::Cancelled { executed }));
            }
        }
    }

    /// Refreshes, and returns whether [`SnapshotCache::wait_for_change`] has something to tell: a newer snapshot, or a provider
    /// that went away.
    pub(crate) fn refresh_for_change(
        &mut self,
    ) -> Result<(Refreshed, bool), RefreshError<T::Error>> {
        let was_there = self.is_there;
        let found = self.refresh()?;
        let went_away = was_there && found == Refreshed::Unavailable;
        Ok((found, found == Refreshed::Changed || went_away))
    }

    /// Makes [`SnapshotCache::as_fd`] readable when a refresh has something to do. Call it after a refresh, before each sleep
    /// in an event loop. Returns true if there may be something already: refresh again, and do not sleep.
    ///
    /// # Errors
    /// [`RefreshError`].
    pub fn arm(&mut self) -> Result<bool, RefreshError<T::Error>> {
        match self.arm_session() {
            // The next refresh says that the provider is gone.
            Err(CallError::PeerGone { .. } | CallError::Unread { .. }) => Ok(true),
            Err(error) => {
                if error.is_of_session() {
                    self.client.lost();
                }
                Err(error.into())
            }
            armed => Ok(armed?),
        }
    }

    /// Returns the descriptor for an event loop: readable when a refresh may find a newer snapshot, or an absent provider may
    /// have come up. Ask for it before each sleep, after [`SnapshotCache::arm`]: it is another one in another state. Refresh
    /// also once [`SnapshotCache::refresh_due`] has passed.
    ///
    /// # Errors
    /// `Unsupported` unless [`ClientConfig::doorbell`] is an eventfd or the socket; `EMFILE` at the limit of open files. Else as
    /// [`Client::as_arrival_fd`].
    pub fn as_fd(&mut self) -> std::io::Result<Borrowed<'_>> {
        self.client.as_fd()
    }

    /// Returns after how long to refresh even if nothing is readable, because an answer is overdue then, or an attempt to
    /// open a session is due; `None`: never.
    pub fn refresh_due(&self) -> Option<Duration> {
        Some(self.due()?.since(clock::now()))
    }

    /// Returns the held snapshot.
    pub fn current(&self) -> Option<Current<'_, T>> {
        self.held.as_ref().map(Current)
    }

    /// Returns the provider's state as last observed.
    pub fn state(&self) -> State {
        if let (Some(since), true) = (self.asked_since(), self.is_overdue()) {
            return State::Unresponsive { waited: clock::now().since(since) };
        }
        self.client.state()
    }

    /// Returns a handle that cancels this cache's waits from another thread.
    ///
    /// # Errors
    /// The first canceller needs a descriptor: `EMFILE` at the limit.
    pub fn canceller(&self) -> std::io::Result<Canceller> {
        self.client.canceller()
    }

    #[cold]
    fn refresh_changed(&mut self) -> Result<Refreshed, RefreshError<T::Error>> {
        let found = match self.fetch() {
            Ok(Refreshed::Pending) if self.is_overdue() => Ok(Refreshed::Unavailable),
            found => found,
        };
        if !matches!(found, Ok(Refreshed::Pending)) {
            self.is_there = !matches!(found, Ok(Refreshed::Unavailable));
        }
        found
    }

    /// Continues after a refresh with this outcome.
    #[cold]
    fn refresh_patiently(
        &mut self,
        mut found: Refreshed,
        patience: Duration,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        let until = clock::now().after(patience);
        let mut changed = None;
        loop {
            changed = changed.or(Some(found).filter(|found| *found == Refreshed::Changed));
            if clock::now() >= until || !self.is_unsettled(found) {
                return Ok(changed.unwrap_or(found));
            }
            if self.is_awaiting() {
                self.wait_for_answer(Some(until))?;
            }
            found = self.refresh()?;
        }
    }

    fn fetch(&mut self) -> Result<Refreshed, RefreshError<T::Error>> {
        if !self.client.is_here() {
            return Err(CallError::Forked.into());
        }
        if self.client.session().is_some_and(|session| session.board().is_stopped()) {
            self.client.lost();
        }
        let had_session = self.client.session().is_some();
        if !had_session {
            self.seen = None;
        }
        // Take what the provider published before it died; the next refresh notices its death.
        if let Some(taken) = self.take_from_ring().transpose() {
            return taken;
        }
        let has_answer = self.client.session().is_some_and(|session| session.has_answer());
        let state = if has_answer { State::Ready } else { self.client.refresh() };
        if had_session && state != State::Ready {
            // The provider died. Report it now: a process that dies slowly still accepts connections but never
            // answers.
            self.seen = None;
            if state == State::Connecting {
                // A query of the state must now report the death, too, not a dying process that still accepts.
                self.client.lost();
            }
            return Ok(Refreshed::Unavailable);
        }
        let Some(session) = self.client.session() else {
            self.seen = None;
            let is_connecting = state == State::Connecting;
            return Ok(if is_connecting { Refreshed::Pending } else { Refreshed::Unavailable });
        };
        let generation = session.board().generation();
        if generation == 0 {
            self.seen = Some(0);
            return Ok(Refreshed::Empty);
        }
        // The first time, and when there is another one.
        let fetched = match self.map_ring() {
            Ok(Fetched::Awaited) => Ok(Fetched::Awaited),
            Ok(found) => {
                if let (Fetched::Found(()), Some(taken)) =
                    (found, self.take_from_ring().transpose())
                {
                    return taken;
                }
                self.fetch_otherwise()
            }
            Err(error) => Err(error),
        };
        if let Ok(Fetched::Nothing) = fetched {
            self.seen = Some(generation);
        }
        self.settle(fetched)
    }

    /// Takes what has changed, or else the newest snapshot, out of the ring, if it is mapped and has it.
    fn take_from_ring(&mut self) -> Result<Option<Refreshed>, RefreshError<T::Error>> {
        let copied = match self.follow() {
            Ok(true) => return Ok(Some(Refreshed::Changed)),
            Ok(false) => self.copy_newest(),
            Err(error) => Err(error),
        };
        copied.transpose().map(|copied| self.settle(copied.map(Fetched::Found))).transpose()
    }

    /// Takes what was fetched, or handles why nothing was.
    fn settle(
        &mut self,
        fetched: Result<Fetched<(u64, Bytes)>, CallError>,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        match fetched {
            Ok(Fetched::Found(found)) => self.take(found),
            Ok(Fetched::Nothing) => Ok(Refreshed::Empty),
            Ok(Fetched::Awaited) => Ok(Refreshed::Pending),
            Err(CallError::PeerGone { .. } | CallError::Unread { .. }) => {
                self.client.lost();
                self.seen = None;
                Ok(Refreshed::Unavailable)
            }
            Err(CallError::Declined { .. }) => {
                // The provider is stopping or overloaded: nothing on the board will signal when to retry.
                self.client.put_off();
                self.seen = None;
                Ok(Refreshed::Unavailable)
            }
            Err(error) => {
                if error.is_of_session() {
                    self.client.lost();
                }
                Err(error.into())
            }
        }
    }

    /// Updates the index by what the provider tells of each generation since the one held. Returns whether it is the newest now.
    fn follow(&mut self) -> Result<bool, CallError> {
        let (Some(held), Some(session)) = (&mut self.held, self.client.session()) else {
            return Ok(false);
        };
        let newest = session.board().generation();
        let is_near = newest.checked_sub(held.generation).is_some_and(|behind| {
            // Nothing new: the provider may have died.
            behind > 0 && behind <= MOST_FOLLOWED
        });
        let is_asked = session.asked_since().is_some();
        // What is held from another session has other generations.
        if !T::TELLS_CHANGES || self.seen != Some(held.generation) || !is_near || is_asked {
            return Ok(false);
        }
        while held.generation < newest {
            let next = held.generation + 1;
            self.trace.notices();
            let Some(len) = session.change_in_ring(next, &mut self.spare)? else { break };
            self.trace.takes(next, How::Copied);
            let taken = clock::now();
            if !T::update_by(&mut held.index, self.spare.get(..len).unwrap_or_default()) {
                break;
            }
            self.trace.validated(|| Some(session.traced()));
            held.bytes = Source::Made(OnceLock::new());
            (held.generation, held.taken) = (next, taken);
            self.seen = Some(next);
        }
        Ok(held.generation == newest)
    }

    /// Copies a newer snapshot out of the ring, if it is mapped and has one.
    fn copy_newest(&mut self) -> Result<Option<(u64, Bytes)>, CallError> {
        let Some(session) = self.client.session() else { return Ok(None) };
        let generation = session.board().generation();
        if Some(generation) != self.seen && generation > 0 {
            self.trace.notices();
        }
        // A copy of the last good snapshot is kept while the next one is checked.
        let Some((generation, len)) = session.newest_in_ring(generation, &mut self.spare)? else {
            return Ok(None);
        };
        if len > T::MAX_LEN {
            let why = "longer than a snapshot is";
            return Err(CallError::Malformed(Malformed::new(0, len, why)));
        }
        self.trace.takes(generation, How::Copied);
        Ok(Some((generation, Bytes::Copied(std::mem::take(&mut self.spare), len))))
    }

    /// Has the ring mapped that the board names.
    fn map_ring(&mut self) -> Result<Fetched<()>, CallError> {
        let Some(session) = self.client.session() else { return Ok(Fetched::Awaited) };
        let named = session.board().ring();
        Ok(match named.map_or(Ok(Fetched::Nothing), |ring| session.try_ring(ring.number))? {
            Fetched::Awaited => Fetched::Awaited,
            Fetched::Nothing => Fetched::Nothing,
            Fetched::Found(_) => Fetched::Found(()),
        })
    }

    /// Takes the newest snapshot in memory of its own.
    fn fetch_otherwise(&mut self) -> Result<Fetched<(u64, Bytes)>, CallError> {
        let Some(session) = self.client.session() else { return Ok(Fetched::Awaited) };
        Ok(match session.try_fetch(T::MAX_LEN)? {
            Fetched::Found(found) => {
                self.trace.takes(found.generation, How::Mapped);
                Fetched::Found((found.generation, Bytes::Mapped(found.map)))
            }
            Fetched::Nothing => Fetched::Nothing,
            Fetched::Awaited => Fetched::Awaited,
        })
    }

    fn arm_session(&mut self) -> Result<bool, CallError> {
        let seen = self.seen;
        let Some(session) = self.client.session() else { return Ok(false) };
        if session.asked_since().is_none() {
            let Some(seen) = seen else { return Ok(true) };
            let is_over = session.board().is_stopped() || !self.look.is_alive(session);
            // What was published since is there; what comes later is rung for.
            if is_over || session.board().generation() != seen || !session.ask_for_news(seen)? {
                return Ok(true);
            }
        }
        session.arm()
    }

    /// Returns when to refresh in any case.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.client.open_session().is_some() {
            // Once it is overdue, only its answer changes anything.
            return self.overdue_at().filter(|due| clock::now() < *due);
        }
        self.client.step_due()
    }

    /// Returns which session, of those there were, [`SnapshotCache::as_fd`] is of; `None` without one.
    #[cfg(feature = "tokio")]
    pub(crate) fn watched_session(&self) -> Option<u64> {
        self.client.watched_session()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn service(&self) -> bellwire_core::ServiceName {
        self.client.service()
    }

    /// Returns whether a patient caller refreshes again after this outcome: the provider owes an answer, or has published a
    /// newer snapshot than the one that arrived.
    pub(crate) fn is_unsettled(&self, found: Refreshed) -> bool {
        let newest = self.client.open_session().map(|session| session.board().generation());
        (found == Refreshed::Changed && newest != self.seen) || self.is_awaiting()
    }

    /// Returns whether the provider owes an answer: a session or a snapshot.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.asked_since().is_some() || self.client.state() == State::Connecting
    }

    fn asked_since(&self) -> Option<Instant> {
        self.client.open_session()?.asked_since()
    }

    fn overdue_at(&self) -> Option<Instant> {
        Some(self.asked_since()?.after(self.timeout))
    }

    fn is_overdue(&self) -> bool {
        self.overdue_at().is_some_and(|due| clock::now() >= due)
    }

    /// Waits for the answer that the provider owes, until `until` at most. The next refresh takes it.
    fn wait_for_answer(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let waited = match self.client.session() {
            Some(session) => session.wait_answer(until),
            // The handshake has its own deadline.
            None => self.client.connect_until(until.unwrap_or(Instant::from_nanos(u64::MAX))),
        };
        match waited {
            Err(error @ CallError::Cancelled { .. }) => {
                self.client.spend_cancel();
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        (generation, bytes): (u64, Bytes),
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        self.seen = Some(generation);
        let taken = clock::now();
        self.trace.validates();
        let taken = self.validate(generation, bytes, taken);
        self.trace.validated(|| self.client.open_session().map(Session::traced));
        taken
    }

    /// Checks what was taken, and holds it if it is good.
    fn validate(
        &mut self,
        generation: u64,
        bytes: Bytes,
        taken: Instant,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        let Some(held) = &mut self.held else {
            let index = T::validate(&bytes)
                .map_err(|source| RefreshError::Malformed { generation, source })?;
            self.held = Some(Held { bytes: Source::Came(bytes), index, generation, taken });
            return Ok(Refreshed::Changed);
        };
        let updated = T::update(&mut held.index, &bytes);
        let unused = if updated.is_ok() {
            (held.generation, held.taken) = (generation, taken);
            std::mem::replace(&mut held.bytes, Source::Came(bytes))
        } else {
            Source::Came(bytes)
        };
        if let Source::Came(Bytes::Copied(buffer, _)) = unused {
            self.spare = buffer;
        }
        updated.map_err(|source| RefreshError::Malformed { generation, source })?;
        Ok(Refreshed::Changed)
    }
}

/// Returns the earlier of two points in time; `None` is never.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A snapshot held by a cache.
///
/// ```
/// use bellwire::Current;
/// # use bellwire::SnapshotCache;
/// # use std::time::Duration;
#[doc = include_str!("doc/load.txt")]
/// let mut cache = SnapshotCache::<Load>::new(&run_dir);
/// publisher.publish(&0.5_f64.to_le_bytes())?;
/// cache.refresh_within(Duration::from_secs(5))?;
/// let current: Current<'_, Load> = cache.current().ok_or("there is none")?;
/// assert_eq!((current.generation(), *current.index(), current.bytes().len()), (1, 0.5, 8));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Current<'a, T: Snapshot>(&'a Held<T>);

impl<T: Snapshot> Clone for Current<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Snapshot> Copy for Current<'_, T> {}

impl<'a, T: Snapshot> Current<'a, T> {
    /// Returns its bytes, which do not change. After an update by what the provider told, the first call makes them from the
    /// index.
    pub fn bytes(self) -> &'a [u8] {
        match &self.0.bytes {
            Source::Came(bytes) => bytes,
            Source::Made(bytes) => bytes.get_or_init(|| T::to_bytes(&self.0.index)),
        }
    }

    /// Returns the index that validation created.
    pub fn index(self) -> &'a T::Index {
        &self.0.index
    }

    /// Returns its number, counted by its provider from 1.
    pub fn generation(self) -> u64 {
        self.0.generation
    }

    /// Returns how long ago the cache took it.
    pub fn age(self) -> Duration {
        clock::now().since(self.0.taken)
    }
}
