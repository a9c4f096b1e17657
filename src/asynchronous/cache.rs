use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop::poll_proceed;
use tokio::time::timeout;

use super::wakeup::Wakeup;
use super::with_descriptor;
use crate::{
    ClientConfig, Contract, CurrentSnapshot, Dynamic, ProviderState, RefreshError, Refreshed,
    RunDir, Snapshot, SnapshotCache,
};

/// A [`SnapshotCache`] for a task of a tokio runtime.
///
/// ```no_run
/// # use bellwire::{AsyncSnapshotCache, Malformed, Message, RefreshError, RunDir, Snapshot};
/// # struct Load;
/// # impl Snapshot for Load {
/// #     const NAME: &'static str = "load";
/// #     type Index = u64;
/// #     type Error = Malformed;
/// #     fn validate(bytes: &[u8]) -> Result<u64, Malformed> {
/// #         u64::decode(bytes)
/// #     }
/// # }
/// # async fn follow(run_dir: &RunDir) -> Result<(), RefreshError<Malformed>> {
/// let mut cache = AsyncSnapshotCache::<Load>::new(run_dir);
/// loop {
///     let found = cache.wait_for_change().await?;
///     if let Some(load) = cache.current() {
///         println!("{found:?}: {} of generation {}", load.index(), load.generation());
///     }
/// }
/// # }
/// ```
///
/// While it waits, the provider sends it a message for the next snapshot, and the kernel wakes its runtime; a blocking
/// [`SnapshotCache`] costs the provider nothing. Every future may be dropped at any time.
#[derive(Debug)]
pub struct AsyncSnapshotCache<T: Snapshot> {
    cache: SnapshotCache<T>,
    wakeup: Wakeup,
}

impl AsyncSnapshotCache<Dynamic> {
    /// Creates a cache of snapshots that are known only at run time.
    pub fn with_contract(run_dir: &RunDir, contract: Contract, config: ClientConfig) -> Self {
        let cache = SnapshotCache::with_contract(run_dir, contract, with_descriptor(config));
        Self { cache, wakeup: Wakeup::default() }
    }
}

impl<T: Snapshot> AsyncSnapshotCache<T> {
    /// Creates a cache that looks for its provider in `run_dir`. It connects at the first refresh.
    pub fn new(run_dir: &RunDir) -> Self {
        Self::with_config(run_dir, ClientConfig::default())
    }

    /// Creates a cache with a configuration other than the default. It replaces a futex doorbell with an eventfd.
    pub fn with_config(run_dir: &RunDir, config: ClientConfig) -> Self {
        let cache = SnapshotCache::with_config(run_dir, with_descriptor(config));
        Self { cache, wakeup: Wakeup::default() }
    }

    /// Checks for a newer snapshot and takes it if it has arrived, like [`SnapshotCache::refresh`]. Never blocks.
    ///
    /// # Errors
    /// [`RefreshError`]; the cache keeps the last good snapshot.
    #[inline]
    pub fn refresh(&mut self) -> Result<Refreshed, RefreshError<T::Error>> {
        self.cache.refresh()
    }

    /// Refreshes, and waits up to `max_wait` for the provider to open a session and to pass the newest snapshot. Does not
    /// wait for the next publication, nor for an absent provider.
    ///
    /// # Errors
    /// [`RefreshError`].
    ///
    /// # Panics
    /// Outside of a runtime with I/O and time, if it has to wait.
    pub async fn refresh_within(
        &mut self,
        max_wait: Duration,
    ) -> Result<Refreshed, RefreshError<T::Error>> {
        let mut found = Refreshed::Pending;
        let settled = poll_fn(|context| self.poll_refreshed(&mut found, context));
        // When that time is over, what was found until then counts.
        timeout(max_wait, settled).await.unwrap_or(Ok(()))?;
        Ok(found)
    }

    /// Waits until there is a newer snapshot, and takes it. When the provider goes away or stops answering, this returns
    /// [`Refreshed::Unavailable`] once; the next wait lasts until it, or its successor, is back.
    ///
    /// # Errors
    /// [`RefreshError`]. The next wait goes on.
    ///
    /// # Panics
    /// Outside of a runtime with I/O and time.
    pub async fn wait_for_change(&mut self) -> Result<Refreshed, RefreshError<T::Error>> {
        poll_fn(|context| self.poll_change(context)).await
    }

    /// Returns the held snapshot.
    pub fn current(&self) -> Option<CurrentSnapshot<'_, T>> {
        self.cache.current()
    }

    /// Returns the provider's state as last observed.
    pub fn state(&self) -> ProviderState {
        self.cache.state()
    }

    /// Refreshes until no answer is missing, and leaves in `found` what that came to.
    fn poll_refreshed(
        &mut self,
        found: &mut Refreshed,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), RefreshError<T::Error>>> {
        loop {
            ready!(poll_proceed(context)).made_progress();
            let now = self.cache.refresh()?;
            if *found != Refreshed::Changed {
                *found = now;
            }
            if !self.cache.should_refresh_again(now) {
                return Poll::Ready(Ok(()));
            }
            if self.cache.client.has_pending_reply() {
                ready!(self.poll_rung(context))?;
            }
        }
    }

    fn poll_change(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Refreshed, RefreshError<T::Error>>> {
        loop {
            ready!(poll_proceed(context)).made_progress();
            let (found, is_new) = self.cache.refresh_for_change()?;
            if is_new {
                return Poll::Ready(Ok(found));
            }
            ready!(self.poll_rung(context))?;
        }
    }

    /// Becomes ready when a refresh may find something. Refresh before each call.
    fn poll_rung(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RefreshError<T::Error>>> {
        if self.cache.arm()? {
            return Poll::Ready(Ok(()));
        }
        let due = self.cache.due();
        self.wakeup.poll(&mut self.cache.client, due, context).map_err(Into::into)
    }
}
