use std::marker::PhantomData;
use std::time::Duration;

use bellwire_core::{Instant, Woken};

use crate::publisher::{Snapshot, limits_for};
use crate::session::{Attached, Fetched};
use crate::transport::clock;
use crate::transport::life::LifeState;
use crate::transport::snapshot::SnapshotMap;
use crate::{CallError, Canceller, Client, ClientConfig, RunDir, Service, Session, State};

/// How long a refresh may miss the death of a provider that has no life word.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The newest snapshot of `T`, in immutable memory, validated once, and kept when its provider is gone.
///
/// When nothing changed, [`SnapshotCache::refresh`] costs two loads and no system call. A changed snapshot costs one
/// message, one descriptor and, up to 256 KiB, one `pread`, above that one `mmap` and no copy. A reader that took
/// each of the last two generations prefetches the next one: the provider passes it at publication, and the refresh
/// sends no request. A refresh never blocks.
#[derive(Debug)]
pub struct SnapshotCache<T: Snapshot> {
    client: Client<Fetch<T>>,
    held: Option<Held<T>>,
    /// The last board generation that was handled; `None` on a new session.
    seen: Option<u64>,
    /// Whether the provider was present at the last refresh.
    is_there: bool,
    timeout: Duration,
    look: Look,
}

/// When the provider's process was last checked; only needed where the kernel does not report its death.
#[derive(Debug, Default)]
struct Look(Option<Instant>);

impl Look {
    /// Checks the process with the kernel, at most once per `LOOK_EVERY`.
    #[cold]
    fn is_alive<S: Service>(&mut self, session: &Session<S>) -> bool {
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
    map: SnapshotMap,
    index: T::Index,
    generation: u64,
    taken: Instant,
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

impl<T: Snapshot> SnapshotCache<T> {
    /// Creates a cache that looks for its provider in `run_dir`. It connects at the first refresh.
    pub fn new(run_dir: &RunDir) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// Creates a cache with a configuration other than the default.
    pub fn with_config(run_dir: &RunDir, mut config: ClientConfig) -> Self {
        let timeout = config.timeout;
        config.lane.limits = limits_for::<T>(config.lane.limits);
        Self {
            client: Client::with_config(run_dir, config),
            held: None,
            seen: None,
            is_there: false,
            timeout,
            look: Look::default(),
        }
    }

    /// Checks for a newer snapshot and takes it if it has arrived. Never blocks.
    ///
    /// The first refreshes open a session ([`Refreshed::Pending`]). A refresh that sees a newer generation requests
    /// it, and a later one takes it. A reader that took each of the last two generations prefetches the next one. A
    /// provider that is absent or does not answer is [`Refreshed::Unavailable`], not an error.
    ///
    /// If you refresh rarely, or need the newest snapshot now, use [`SnapshotCache::refresh_within`].
    ///
    /// # Errors
    /// [`RefreshError`]; the cache keeps the last good snapshot.
    #[inline]
    pub fn refresh(&mut self) -> Result<Refreshed, RefreshError<T::Error>> {
        if let (Some(seen), Some(session)) = (self.seen, self.client.session())
            && session.board().generation() == seen
            && (session.link().life() == LifeState::Alive || self.look.is_alive(session))
        {
            return Ok(if self.held.is_some() { Refreshed::Unchanged } else { Refreshed::Empty });
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
    /// While the provider is absent, the cache retries from time to time.
    ///
    /// # Errors
    /// [`RefreshError`], immediately; it contains [`CallError::Cancelled`] when another thread cancelled.
    pub fn wait_for_change(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        let until = timeout.map(|timeout| clock::now().after(timeout));
        loop {
            let was_there = self.is_there;
            let found = self.refresh()?;
            let went_away = was_there && found == Refreshed::Unavailable;
            let is_over = until.is_some_and(|until| clock::now() >= until);
            if found == Refreshed::Changed || went_away || is_over {
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
                _ => self.client.sleep(earlier(self.client.next_try(), until)),
            };
            if cancelled {
                let executed = bellwire_core::Executed::No;
                return Err(RefreshError::Call(CallError::Cancelled { executed }));
            }
        }
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
            // The snapshot that arrived may be an older one; request the newest next.
            let newest = self.client.open_session().map(|session| session.board().generation());
            let is_outdated = found == Refreshed::Changed && newest != self.seen;
            let is_over = clock::now() >= until;
            if is_over || !(is_outdated || self.is_awaiting()) {
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
        let is_here = self.client.session().is_some_and(|session| session.has_prefetched());
        let state = if is_here { State::Ready } else { self.client.refresh() };
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
        match session.try_fetch(T::MAX_LEN) {
            Ok(Fetched::Attached(attached)) => self.take(attached),
            Ok(Fetched::Nothing) => {
                self.seen = Some(generation);
                Ok(Refreshed::Empty)
            }
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

    /// Returns whether the provider owes an answer: a session or a snapshot.
    fn is_awaiting(&self) -> bool {
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

    fn take(&mut self, attached: Attached) -> Result<Refreshed, RefreshError<T::Error>> {
        let Attached { generation, map } = attached;
        let keeps_up = self.seen.is_some_and(|seen| generation.checked_sub(seen) == Some(1));
        self.seen = Some(generation);
        // A prefetch by a reader that skips generations would return an outdated one.
        if keeps_up && let Some(session) = self.client.session() {
            session.prefetch(generation);
        }
        let malformed = |source| RefreshError::Malformed { generation, source };
        let taken = clock::now();
        if let Some(held) = &mut self.held {
            T::update(&mut held.index, &map).map_err(malformed)?;
            (held.map, held.generation, held.taken) = (map, generation, taken);
        } else {
            let index = T::validate(&map).map_err(malformed)?;
            self.held = Some(Held { map, index, generation, taken });
        }
        Ok(Refreshed::Changed)
    }
}

/// Returns the earlier of two points in time; `None` is never.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A snapshot held by a cache.
#[derive(Debug)]
pub struct Current<'a, T: Snapshot>(&'a Held<T>);

impl<T: Snapshot> Clone for Current<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Snapshot> Copy for Current<'_, T> {}

impl<'a, T: Snapshot> Current<'a, T> {
    /// Returns its bytes, in immutable memory.
    pub fn bytes(self) -> &'a [u8] {
        &self.0.map
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
