use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bellwire_core::sync::{AtomicBool, AtomicUsize, Ordering};
use bellwire_core::wire::{BOARD_SIZE, BoardHeader, BoardState, BoardWord};
use bellwire_core::{Limits, ServiceName};
use zerocopy::IntoBytes;

use crate::PublishError;
use crate::transport::clock;
use crate::transport::doorbell::Event;
use crate::transport::fork::Home;
use crate::transport::object::Owned;
use crate::transport::region::{OwnRegion, RegionError};
use crate::transport::snapshot::{Snapshot as Sealed, SnapshotBuilder};
use crate::transport::watch::Watchers;

/// A service that publishes snapshots: its name, what its bytes mean, and how to check them.
///
/// A reader validates each generation once, completely, and keeps an index beside the bytes.
pub trait Snapshot: 'static {
    /// The service's name, as for [`Service`](crate::Service).
    const NAME: &'static str;

    /// The version of the layout: change it when the layout changes.
    const METHOD: u32 = 1;

    /// A fingerprint of the snapshot's layout: see [`Service::SCHEMA`](crate::Service::SCHEMA).
    const SCHEMA: u64 = 0;

    /// The largest snapshot that a reader maps, in bytes. Default: 1 GiB.
    const MAX_LEN: usize = 1 << 30;

    /// What validation derives from the bytes, to look things up without checking them again.
    type Index: std::fmt::Debug + Send + Sync;

    /// Why bytes are not a valid snapshot.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Checks all of `bytes`, which another process wrote and nobody can change any more.
    ///
    /// # Errors
    /// What is wrong, and where.
    fn validate(bytes: &[u8]) -> Result<Self::Index, Self::Error>;

    /// Checks all of `bytes` like [`Snapshot::validate`], and updates `index` from an earlier generation to this one.
    /// Default: validates them from scratch. An implementation that reuses the unchanged parts refreshes faster.
    ///
    /// # Errors
    /// Like [`Snapshot::validate`]; must leave `index` unchanged then.
    fn update(index: &mut Self::Index, bytes: &[u8]) -> Result<(), Self::Error> {
        *index = Self::validate(bytes)?;
        Ok(())
    }
}

/// Publishes snapshots of `T`: each is built once, sealed, and mapped by any number of readers.
///
/// Can be used from any thread. Dropping it stops nothing: the server serves the last snapshot until it stops.
#[derive(Debug)]
pub struct Publisher<T: Snapshot> {
    store: Arc<SnapshotStore>,
    snapshot: PhantomData<fn(&T)>,
}

/// The board of one service, and the snapshot that it announces.
#[derive(Debug)]
pub(crate) struct SnapshotStore {
    name: ServiceName,
    /// Passed to every client.
    passed_board: Owned,
    watchers: Watchers,
    /// The number of open sessions. A counter only; it publishes no other memory.
    readers: AtomicUsize,
    /// Whether something was published since the reactor last checked.
    has_news: AtomicBool,
    /// Wakes the reactor; set when it starts.
    bell: OnceLock<Arc<Event>>,
    inner: Mutex<Inner>,
    home: Home,
}

/// Counts one open session for as long as it exists.
#[derive(Debug)]
pub(crate) struct ReaderGuard(Arc<SnapshotStore>);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Inner {
    board: OwnRegion,
    generation: u64,
    newest: Option<Published>,
}

/// A snapshot as readers receive it.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) generation: u64,
    pub(crate) sealed: Arc<Sealed>,
}

impl<T: Snapshot> Publisher<T> {
    pub(crate) fn new(store: Arc<SnapshotStore>) -> Self {
        Self { store, snapshot: PhantomData }
    }

    /// Publishes a copy of `bytes` and returns its generation, counted from 1.
    ///
    /// # Errors
    /// [`PublishError`]: nothing changed for readers.
    pub fn publish(&self, bytes: &[u8]) -> Result<u64, PublishError> {
        self.store.publish(bytes.len(), |label| Sealed::copy_of(label, bytes))
    }

    /// Publishes `len` bytes that `build` writes in place, in zeroed memory that readers will map. Returns the
    /// generation.
    ///
    /// Costs about 2 µs per 4 KiB for the memory, one system call for all watchers (on Windows one each) and, if
    /// there are readers, one to wake the server, which passes the snapshot to prefetching readers.
    ///
    /// # Errors
    /// [`PublishError`]: nothing changed for readers.
    pub fn publish_with(
        &self,
        len: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<u64, PublishError> {
        self.store.publish(len, |label| {
            let mut builder = SnapshotBuilder::create(label, len)?;
            build(builder.bytes());
            builder.seal()
        })
    }

    /// Returns the last published generation; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.store.lock().generation
    }
}

impl SnapshotStore {
    pub(crate) fn create(name: ServiceName) -> Result<Self, RegionError> {
        let header = BoardHeader::new(std::process::id(), clock::wall_nanos(), name);
        let label = format!("bellwire-board-{name}");
        let (board, passed_board) = OwnRegion::create(&label, BOARD_SIZE, |board| {
            board.write(0, header.as_bytes());
            board.store_u64(
                BoardWord::State.offset(),
                BoardState::Serving as u64,
                Ordering::Relaxed,
            );
        })?;
        let inner = Mutex::new(Inner { board, generation: 0, newest: None });
        Ok(Self {
            name,
            passed_board,
            watchers: Watchers::default(),
            readers: AtomicUsize::new(0),
            has_news: AtomicBool::new(false),
            bell: OnceLock::new(),
            inner,
            home: Home::here(),
        })
    }

    pub(crate) fn passed_board(&self) -> &Owned {
        &self.passed_board
    }

    /// Returns the sessions whose clients may wait on the board.
    pub(crate) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Sets `bell` as the event that wakes the reactor when something is published that a client may await.
    pub(crate) fn connect(&self, bell: &Arc<Event>) {
        // The reactor starts only once.
        let _ = self.bell.set(Arc::clone(bell));
    }

    /// Counts a session as a reader until the returned guard is dropped.
    pub(crate) fn add_reader(self: &Arc<Self>) -> ReaderGuard {
        self.readers.fetch_add(1, Ordering::Relaxed);
        ReaderGuard(Arc::clone(self))
    }

    /// Returns whether something was published since [`SnapshotStore::take_news`]: one load.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// Like [`SnapshotStore::has_news`], but resets it. A caller that now loads the newest snapshot gets what was
    /// published before, or a newer one.
    pub(crate) fn take_news(&self) -> bool {
        // Acquire: pairs with the publisher's Release. The mutex around the newest snapshot would suffice as well.
        self.has_news() && self.has_news.swap(false, Ordering::Acquire)
    }

    pub(crate) fn newest(&self) -> Option<Published> {
        self.lock().newest.clone()
    }

    /// Notifies watchers that nothing more will be published.
    pub(crate) fn stop(&self) {
        let inner = self.lock();
        inner.board.store_u64(
            BoardWord::State.offset(),
            BoardState::Stopped as u64,
            Ordering::Release,
        );
        // The word on which watchers park must change, or a watcher that is about to sleep would miss this. One that
        // requests this generation finds the session closed.
        let moved = inner.generation + 1;
        inner.board.store_u64(BoardWord::Generation.offset(), moved, Ordering::Release);
        self.wake_watchers(&inner.board);
    }

    /// Publishes `len` bytes that `make` creates under a label.
    fn publish(
        &self,
        len: usize,
        make: impl FnOnce(&str) -> Result<Sealed, RegionError>,
    ) -> Result<u64, PublishError> {
        if !self.home.is_here() {
            return Err(PublishError::Forked);
        }
        let sealed = make(&format!("bellwire-snapshot-{}", self.name));
        let sealed = Arc::new(sealed.map_err(|error: RegionError| PublishError::System {
            len,
            source: std::io::Error::other(error),
        })?);
        let mut inner = self.lock();
        inner.generation += 1;
        let generation = inner.generation;
        inner.newest = Some(Published { generation, sealed });
        // Release: a reader that sees the generation is passed this snapshot or a newer one.
        inner.board.store_u64(BoardWord::Generation.offset(), generation, Ordering::Release);
        // Notify the reactor, which passes the snapshot, before the readers that look for it.
        self.tell_reactor();
        self.wake_watchers(&inner.board);
        Ok(generation)
    }

    /// Wakes the reactor for clients whose requests for the next snapshot did not ring it.
    fn tell_reactor(&self) {
        // A session that opens at this moment requests the newest snapshot first.
        if self.readers.load(Ordering::Relaxed) == 0 || self.has_news.swap(true, Ordering::Release)
        {
            return;
        }
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    fn wake_watchers(&self, board: &OwnRegion) {
        self.watchers.wake(board, BoardWord::Generation.offset());
    }

    /// No code that holds this lock can panic during a change.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the limits of a session for snapshots of `T`: one of any size, and one more in flight.
pub(crate) fn limits_for<T: Snapshot>(limits: Limits) -> Limits {
    let len = T::MAX_LEN as u64;
    let shared = limits.max_shared_bytes_per_session.saturating_add(len.saturating_mul(2));
    Limits {
        max_message: limits.max_message.max(len),
        max_shared_bytes_per_session: shared,
        ..limits
    }
}
