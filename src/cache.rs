use std::marker::PhantomData;
use std::time::Duration;

use bellwire_core::{Instant, Woken};

use crate::publisher::{Snapshot, limits_for};
use crate::session::{Attached, Fetched};
use crate::transport::clock;
use crate::transport::life::LifeState;
use crate::transport::snapshot::SnapshotMap;
use crate::{CallError, Canceller, Client, ClientConfig, RunDir, Service, Session, State};

/// How long a refresh may overlook the death of a provider that has no life word.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The newest snapshot of `T`, in memory that nobody can change, validated once, kept when its provider is gone.
///
/// [`SnapshotCache::refresh`] costs two loads when nothing changed, and no system call. A changed snapshot
/// costs one message, one descriptor and, up to 256 KiB, one `pread`, else one `mmap` and no copy. A reader that has taken each
/// of the last two generations is passed the next one when it is published: its refresh asks nobody. No refresh waits for anybody.
#[derive(Debug)]
pub struct SnapshotCache<T: Snapshot> {
    client: Client<Fetch<T>>,
    held: Option<Held<T>>,
    /// The board's generation that was dealt with last; `None` on a new session.
    seen: Option<u64>,
    /// Whether the provider was there at the last refresh.
    is_there: bool,
    timeout: Duration,
    look: Look,
}

/// When the provider's process was looked at last; only of use where the kernel does not note its death.
#[derive(Debug, Default)]
struct Look(Option<Instant>);

impl Look {
    /// Asks the kernel, at most once per `LOOK_EVERY`.
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

/// What a refresh found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The snapshot held is the newest.
    Unchanged,
    /// A newer snapshot is held now.
    Changed,
    /// The provider was asked, for a session or for a newer snapshot, and has not answered yet: the last good snapshot is
    /// still held, if there ever was one.
    Pending,
    /// The provider is there and has published nothing yet.
    Empty,
    /// The provider is not there now, or has not answered for longer than [`ClientConfig::timeout`]: the last good snapshot
    /// is still held, if there ever was one. [`SnapshotCache::state`] says why.
    Unavailable,
}

/// Why a refresh failed. The last good snapshot is still held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshError<E: std::error::Error + 'static> {
    /// The provider's newest snapshot is malformed. It is not fetched again: the next generation is.
    #[error("generation {generation} is malformed, the last good one stays: {source}")]
    Malformed {
        /// The generation.
        generation: u64,
        /// What is wrong with it, and where.
        source: E,
    },
    /// It could not be fetched.
    #[error("cannot fetch the newest snapshot, the last good one stays: {0}")]
    Call(#[from] CallError),
}

/// A snapshot that is held, and its index.
#[derive(Debug)]
struct Held<T: Snapshot> {
    map: SnapshotMap,
    index: T::Index,
    generation: u64,
    taken: Instant,
}

/// The call behind a snapshot service. Asking twice does no harm.
#[derive(Debug)]
pub(crate) struct Fetch<T>(PhantomData<fn(&T)>);

impl<T: Snapshot> Service for Fetch<T> {
    const NAME: &'static str = T::NAME;
    const METHOD: u32 = T::METHOD;
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Response = ();
}

impl<T: Snapshot> SnapshotCache<T> {
    /// A cache that meets its provider in `run_dir`. Connects at the first refresh.
    pub fn new(run_dir: &RunDir) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// A cache with another configuration than the default.
    pub fn with_config(run_dir: &RunDir, config: ClientConfig) -> Self {
        let timeout = config.timeout;
        let config = ClientConfig { limits: limits_for::<T>(config.limits), ..config };
        Self {
            client: Client::with_config(run_dir, config),
            held: None,
            seen: None,
            is_there: false,
            timeout,
            look: Look::default(),
        }
    }

    /// Looks for a newer snapshot and takes it if it is here. Never waits for anybody.
    ///
    /// The first refreshes open a session ([`Refreshed::Pending`]); one that finds that there is a newer snapshot asks for
    /// it, and a later one takes it. A reader that has taken each of the last two generations is passed the next one before
    /// it asks. An absent provider is [`Refreshed::Unavailable`], not an error, and so is one that does not answer.
    ///
    /// Whoever comes seldom, or wants the newest now, waits a little: [`SnapshotCache::refresh_within`].
    ///
    /// # Errors
    /// [`RefreshError`]; the last good snapshot stays.
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

    /// Looks for a newer snapshot, and waits at most for `patience` until the provider has answered: for a session, and for
    /// the newest snapshot if it is not held. Not for one that is not published yet, and not for an absent provider.
    ///
    /// # Errors
    /// [`RefreshError`]; [`CallError::Cancelled`] in it when another thread cancelled.
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

    /// Waits until there is a newer snapshot, and takes it. Parks on the board: one system call of the
    /// provider wakes every watcher, and nothing is polled. Returns [`Refreshed::Unavailable`] when the provider
    /// goes away, or stops answering, once: the next wait lasts until it, or its successor, is back. Returns at the end of
    /// `timeout` too, with what the last look found; `None` waits for ever.
    ///
    /// While the provider is away it is tried again by and by.
    ///
    /// # Errors
    /// [`RefreshError`], at once; [`CallError::Cancelled`] in it when another thread cancelled.
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
                // That it stopped answering is told when it has.
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

    /// The snapshot held.
    pub fn current(&self) -> Option<Current<'_, T>> {
        self.held.as_ref().map(Current)
    }

    /// What is known of the provider.
    pub fn state(&self) -> State {
        if let (Some(since), true) = (self.asked_since(), self.is_overdue()) {
            return State::Unresponsive { waited: clock::now().since(since) };
        }
        self.client.state()
    }

    /// Ends, from another thread, what this cache waits for.
    ///
    /// # Errors
    /// A first canceller takes one descriptor: `EMFILE` at the limit.
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

    /// Goes on after a refresh that found this.
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
            // What was here may have been an older one: the newest comes next.
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
        // What was published before its provider died is taken: that it is dead is the next look's to find out.
        let is_here = self.client.session().is_some_and(|session| session.has_ahead());
        let state = if is_here { State::Ready } else { self.client.refresh() };
        if had_session && state != State::Ready {
            // It died. Told now: one that dies slowly still accepts who looks for its successor, and never answers.
            self.seen = None;
            if state == State::Connecting {
                // Whoever asks for the state now hears of a death, too, and not of the dead that still accepts.
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
                // It stops, or has no time: nothing on the board will tell when to come again.
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

    /// Whether the provider owes an answer: a session, or a snapshot.
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

    /// Waits for what the provider owes, at most until `until`. What has come of it is the next refresh's to find out.
    fn wait_for_answer(&mut self, until: Option<Instant>) -> Result<(), CallError> {
        let waited = match self.client.session() {
            Some(session) => session.wait_answer(until),
            // The handshake has a deadline of its own.
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
        // Who misses some would find an old one.
        if keeps_up && let Some(session) = self.client.session() {
            session.ask_ahead(generation);
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

/// The earlier of two points in time; `None` is never.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A snapshot that a cache holds.
#[derive(Debug)]
pub struct Current<'a, T: Snapshot>(&'a Held<T>);

impl<T: Snapshot> Clone for Current<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Snapshot> Copy for Current<'_, T> {}

impl<'a, T: Snapshot> Current<'a, T> {
    /// Its bytes, in memory that nobody can change any more.
    pub fn bytes(self) -> &'a [u8] {
        &self.0.map
    }

    /// What validation left behind.
    pub fn index(self) -> &'a T::Index {
        &self.0.index
    }

    /// Its number, counted by its provider from 1.
    pub fn generation(self) -> u64 {
        self.0.generation
    }

    /// How long ago it was taken.
    pub fn age(self) -> Duration {
        clock::now().since(self.0.taken)
    }
}
