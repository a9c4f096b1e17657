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

/// A service that publishes snapshots: its name, what its bytes mean, and how they are checked.
///
/// A reader validates each generation once, completely, and keeps what it learnt as an index beside the bytes.
pub trait Snapshot: 'static {
    /// The service's name, as for [`Service`](crate::Service).
    const NAME: &'static str;

    /// The number of this layout: give a new one when it changes.
    const METHOD: u32 = 1;

    /// The largest snapshot that a reader maps, in bytes. Default: 1 GiB.
    const MAX_LEN: usize = 1 << 30;

    /// What validation leaves behind: finds things in the bytes without checking them again.
    type Index: std::fmt::Debug + Send + Sync;

    /// Why bytes are not such a snapshot.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Checks all of `bytes`, which another process wrote and nobody can change any more.
    ///
    /// # Errors
    /// Says what is wrong, and where.
    fn validate(bytes: &[u8]) -> Result<Self::Index, Self::Error>;

    /// Checks all of `bytes` as [`Snapshot::validate`] does, and turns `index`, that of an earlier generation, into theirs.
    /// Default: validates them as if there had been none. One that reuses what it knows of what stayed the same refreshes
    /// faster.
    ///
    /// # Errors
    /// As [`Snapshot::validate`]; `index` must then be what it was.
    fn update(index: &mut Self::Index, bytes: &[u8]) -> Result<(), Self::Error> {
        *index = Self::validate(bytes)?;
        Ok(())
    }
}

/// Publishes snapshots of `T`: each is built once, sealed, and mapped by any number of readers.
///
/// May be used from any thread. Dropping it stops nothing: the last snapshot is served until the server stops.
#[derive(Debug)]
pub struct Publisher<T: Snapshot> {
    shelf: Arc<Shelf>,
    snapshot: PhantomData<fn(&T)>,
}

/// The board of one service, and the snapshot that it tells of.
#[derive(Debug)]
pub(crate) struct Shelf {
    name: ServiceName,
    /// Passed to every client.
    passed_board: Owned,
    watchers: Watchers,
    /// Sessions that are open. Counts only; publishes nothing.
    readers: AtomicUsize,
    /// Whether something was published since the reactor looked.
    has_news: AtomicBool,
    /// Wakes the reactor; set when it starts.
    bell: OnceLock<Arc<Event>>,
    inner: Mutex<Inner>,
    home: Home,
}

/// Counts one session among those that are open, while it is.
#[derive(Debug)]
pub(crate) struct Attendance(Arc<Shelf>);

impl Drop for Attendance {
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

/// A snapshot as it is passed to readers.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) generation: u64,
    pub(crate) sealed: Arc<Sealed>,
}

impl<T: Snapshot> Publisher<T> {
    pub(crate) fn new(shelf: Arc<Shelf>) -> Self {
        Self { shelf, snapshot: PhantomData }
    }

    /// Publishes a copy of `bytes` and returns its generation, counted from 1.
    ///
    /// # Errors
    /// [`PublishError`]: nothing changed for readers.
    pub fn publish(&self, bytes: &[u8]) -> Result<u64, PublishError> {
        self.shelf.publish(bytes.len(), |label| Sealed::copy_of(label, bytes))
    }

    /// Publishes `len` bytes that `build` writes in place, in the memory that readers will map; it comes
    /// zeroed. Returns the generation.
    ///
    /// Costs about 2 µs per 4 KiB for the memory, one system call for all watchers, on Windows one for each, and, if there are
    /// readers, one that wakes the server, which passes it to those who keep up.
    ///
    /// # Errors
    /// [`PublishError`]: nothing changed for readers.
    pub fn publish_with(
        &self,
        len: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<u64, PublishError> {
        self.shelf.publish(len, |label| {
            let mut builder = SnapshotBuilder::create(label, len)?;
            build(builder.bytes());
            builder.seal()
        })
    }

    /// The generation published last; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.shelf.lock().generation
    }
}

impl Shelf {
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

    /// The sessions whose clients may wait for the board.
    pub(crate) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Has the reactor woken by `bell` when something is published that a client may await.
    pub(crate) fn connect(&self, bell: &Arc<Event>) {
        // It is started once.
        let _ = self.bell.set(Arc::clone(bell));
    }

    /// Counts a session in, until what is returned is dropped.
    pub(crate) fn attend(self: &Arc<Self>) -> Attendance {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Attendance(Arc::clone(self))
    }

    /// Whether something was published since [`Shelf::take_news`]: one load.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// The same, and no more from now on. What was published before is the newest of whoever looks now, or older.
    pub(crate) fn take_news(&self) -> bool {
        // Acquire: pairs with the Release of who published. The mutex around the newest would do as well.
        self.has_news() && self.has_news.swap(false, Ordering::Acquire)
    }

    pub(crate) fn newest(&self) -> Option<Published> {
        self.lock().newest.clone()
    }

    /// Tells watchers that nothing more will be published.
    pub(crate) fn stop(&self) {
        let inner = self.lock();
        inner.board.store_u64(
            BoardWord::State.offset(),
            BoardState::Stopped as u64,
            Ordering::Release,
        );
        // The word that watchers park on has to move, or one that is about to sleep would miss this. Who
        // asks for a generation that never comes finds the session closed.
        let moved = inner.generation + 1;
        inner.board.store_u64(BoardWord::Generation.offset(), moved, Ordering::Release);
        self.wake_watchers(&inner.board);
    }

    /// Publishes what `make` makes under a label, of `len` bytes.
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
        // Release: who sees the generation will be passed this snapshot or a newer one.
        inner.board.store_u64(BoardWord::Generation.offset(), generation, Ordering::Release);
        // First of all who passes it, then those who look for it.
        self.tell_reactor();
        self.wake_watchers(&inner.board);
        Ok(generation)
    }

    /// Clients may await what was published, asked for in lanes that the reactor was not rung for.
    fn tell_reactor(&self) {
        // A session that is opened at this moment asks for the newest first.
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

    /// Nothing that holds this lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an end of a session for snapshots of `T` puts up with: any of them, and one more on its way.
pub(crate) fn limits_for<T: Snapshot>(limits: Limits) -> Limits {
    let len = T::MAX_LEN as u64;
    let shared = limits.max_shared_bytes_per_session.saturating_add(len.saturating_mul(2));
    Limits {
        max_message: limits.max_message.max(len),
        max_shared_bytes_per_session: shared,
        ..limits
    }
}
