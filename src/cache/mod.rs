mod fetch;
mod held;
mod liveness;

use std::time::Duration;

use bellwire_core::{ErrorKind, Fault, Instant};

use crate::publication::limits_for;
use crate::publisher::{Snapshot, longest};
use crate::trace::delivery::ReaderTrace;
use crate::transport::object::Borrowed;
use crate::transport::{Os, prelude::*};
use crate::{CallError, Canceller, Client, ClientConfig, Contract, Dynamic, ProviderState, RunDir};
pub use held::CurrentSnapshot;
use held::HeldSnapshot;
pub(crate) use liveness::LivenessCheck;

/// The newest snapshot of `T`, in immutable memory, validated once, and kept when its provider is gone.
///
/// When nothing changed, [`SnapshotCache::refresh`] costs two loads. A changed snapshot of up to 256 KiB costs loads and a
/// copy out of the provider's broadcast ring, and neither a system call nor anything that the provider does; where the provider
/// publishes deltas ([`Snapshot::PUBLISHES_DELTAS`]), whatever its length, only its delta is copied and checked. A longer one
/// otherwise, or the first one, costs one message, one descriptor and one `mmap`. A refresh never blocks.
///
/// ```
/// use bellwire::{Refreshed, SnapshotCache};
/// # use std::time::Duration;
#[doc = include_str!("../doc/load.txt")]
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
    pub(crate) client: Client<Dynamic>,
    held: Option<HeldSnapshot<T>>,
    /// For the next snapshot that is copied; the buffer of the one before last.
    spare: Vec<u8>,
    /// The last board generation that was handled; `None` on a new session.
    seen: Option<u64>,
    /// The same, since arming has found that the session is over: the next refresh says so, unless something newer came before.
    seen_at_end: Option<u64>,
    /// Whether the provider was present at the last refresh.
    is_there: bool,
    timeout: Duration,
    liveness: LivenessCheck,
    trace: ReaderTrace,
}

/// The outcome of a refresh.
///
/// ```
/// use bellwire::Refreshed;
/// # use bellwire::SnapshotCache;
/// # use std::time::Duration;
#[doc = include_str!("../doc/load.txt")]
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
#[doc = include_str!("../doc/load.txt")]
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

impl<E: std::error::Error + 'static> RefreshError<E> {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        if let Self::Call(error) = self { error.kind() } else { ErrorKind::Malformed }
    }

    /// Returns who has to act to fix the failure.
    pub fn fault(&self) -> Fault {
        if let Self::Call(error) = self { error.fault() } else { self.kind().fault() }
    }
}

impl SnapshotCache<Dynamic> {
    /// Creates a cache of snapshots that are known only at run time.
    pub fn with_contract(run_dir: &RunDir, contract: Contract, config: ClientConfig) -> Self {
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
        Self::of_contract(run_dir, Contract::of_snapshot::<T>(), config)
    }

    fn of_contract(run_dir: &RunDir, contract: Contract, mut config: ClientConfig) -> Self {
        let timeout = config.timeout;
        config.lane.limits = limits_for(longest::<T>(), config.lane.limits);
        Self {
            client: Client::of_contract(run_dir, contract, config),
            held: None,
            spare: Vec::new(),
            seen: None,
            seen_at_end: None,
            is_there: false,
            timeout,
            liveness: LivenessCheck::default(),
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
            if session.board().generation() == seen && self.liveness.is_alive(session) {
                return Ok(if self.held.is_some() {
                    Refreshed::Unchanged
                } else {
                    Refreshed::Empty
                });
            }
        }
        self.refresh_changed()
    }

    /// Refreshes like [`SnapshotCache::refresh`], but waits up to `max_wait` for the provider to open a session and
    /// to pass the newest snapshot. Does not wait for the next publication, nor for an absent provider.
    ///
    /// # Errors
    /// [`RefreshError`]; it contains [`CallError::Cancelled`] when another thread cancelled.
    #[inline]
    pub fn refresh_within(
        &mut self,
        max_wait: Duration,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        match self.refresh()? {
            found @ (Refreshed::Unchanged | Refreshed::Empty) => Ok(found),
            found => self.refresh_waiting(found, max_wait),
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
        let until = timeout.map(|timeout| Os::now().after(timeout));
        loop {
            let (found, is_new) = self.refresh_for_change()?;
            let is_over = until.is_some_and(|until| Os::now() >= until);
            if is_new || is_over {
                return Ok(found);
            }
            // Report that the provider stopped answering when its answer is overdue.
            let overdue = self.overdue_at().filter(|_| found == Refreshed::Pending);
            self.client.sleep_until_news(self.seen, earlier(overdue, until))?;
        }
    }

    /// Refreshes, and returns whether [`SnapshotCache::wait_for_change`] has something to report: a newer snapshot, or a provider
    /// that went away.
    pub(crate) fn refresh_for_change(
        &mut self,
    ) -> Result<(Refreshed, bool), RefreshError<T::Error>> {
        let was_there = self.is_there;
        let found = self.refresh()?;
        let went_away = was_there && found == Refreshed::Unavailable;
        Ok((found, found == Refreshed::Changed || went_away))
    }

    /// Makes the descriptor of [`SnapshotCache::pollable`] readable when a refresh has something to do. Call it after a refresh,
    /// before each sleep in an event loop. Returns true if there may be something already, or the provider is gone: refresh
    /// again, and do not sleep.
    ///
    /// # Errors
    /// [`RefreshError`].
    pub fn arm(&mut self) -> Result<bool, RefreshError<T::Error>> {
        let armed = self.arm_session();
        if armed.as_ref().is_err_and(CallError::is_provider_gone) {
            self.seen_at_end = self.seen.take();
            return Ok(true);
        }
        if armed.as_ref().is_err_and(CallError::is_session_fatal) {
            self.client.lost();
        }
        Ok(armed?)
    }

    /// Returns the descriptor for an event loop: readable when a refresh may find a newer snapshot, or an absent provider may
    /// have come up. Ask for it before each sleep, after [`SnapshotCache::arm`]: the descriptor changes with the client's
    /// state. Refresh also once [`SnapshotCache::poll_timeout`] has passed.
    ///
    /// # Errors
    /// `Unsupported` unless [`ClientConfig::doorbell`] is an eventfd or the socket; `EMFILE` at the limit of open files. Else as
    /// [`Client::pollable_arrival`].
    pub fn pollable(&mut self) -> std::io::Result<Borrowed<'_>> {
        self.client.pollable()
    }

    /// Returns after how long to refresh even if nothing is readable, because an answer is overdue then, an attempt to open a
    /// session is due, or the provider declined to ring; `None`: never.
    pub fn poll_timeout(&self) -> Option<Duration> {
        Some(self.due()?.since(Os::now()))
    }

    /// Returns the held snapshot.
    pub fn current(&self) -> Option<CurrentSnapshot<'_, T>> {
        self.held.as_ref().map(CurrentSnapshot)
    }

    /// Returns the provider's state as last observed.
    pub fn state(&self) -> ProviderState {
        if let (Some(since), true) = (self.client.asked_since(), self.is_overdue()) {
            return ProviderState::Unresponsive { waited: Os::now().since(since) };
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
    fn refresh_waiting(
        &mut self,
        mut found: Refreshed,
        max_wait: Duration,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        let until = Os::now().after(max_wait);
        let mut changed = None;
        loop {
            changed = changed.or(Some(found).filter(|found| *found == Refreshed::Changed));
            if Os::now() >= until || !self.should_refresh_again(found) {
                return Ok(changed.unwrap_or(found));
            }
            if self.client.has_pending_reply() {
                self.client.wait_pending_reply(Some(until))?;
            }
            found = self.refresh()?;
        }
    }

    fn arm_session(&mut self) -> Result<bool, CallError> {
        let seen = self.seen;
        let Some(session) = self.client.session() else { return Ok(false) };
        if session.asked_since().is_none() {
            let Some(seen) = seen else { return Ok(true) };
            let is_over = session.board().is_stopped() || !self.liveness.is_alive(session);
            // What was published since is there; what comes later is rung for.
            if is_over || session.board().generation() != seen {
                return Ok(true);
            }
            session.request_update(seen)?;
        }
        session.arm()
    }

    /// Returns when to refresh in any case.
    pub(crate) fn due(&self) -> Option<Instant> {
        // Once it is overdue, only its answer changes anything.
        let overdue = self.overdue_at().filter(|due| Os::now() < *due);
        earlier(overdue, self.client.due())
    }

    /// Returns whether a waiting caller refreshes again after this outcome: an answer is pending, or the provider has published a
    /// newer snapshot than the one that arrived.
    pub(crate) fn should_refresh_again(&self, found: Refreshed) -> bool {
        let newest = self.client.open_session().map(|session| session.board().generation());
        (found == Refreshed::Changed && newest != self.seen) || self.client.has_pending_reply()
    }

    fn overdue_at(&self) -> Option<Instant> {
        Some(self.client.asked_since()?.after(self.timeout))
    }

    fn is_overdue(&self) -> bool {
        self.overdue_at().is_some_and(|due| Os::now() >= due)
    }
}

/// Returns the earlier of two points in time; `None` is never.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
