//! What one service has published: its board, its broadcast ring, and the newest snapshot.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::{BOARD_SIZE, BoardHeader, BoardState, BoardWord, BroadcastRing, Role};
use bellwire_core::{Geometry, Limits, ServiceName};
use bellwire_shm::lock;
use zerocopy::IntoBytes;

use crate::broadcast::{OwnRing, PassedRing};
use crate::error::of_transport;
use crate::trace;
use crate::trace::delivery::{PublisherTrace, begins};
use crate::transport::doorbell::WakeEvent;
use crate::transport::fork::OwnerProcess;
use crate::transport::object::Owned;
use crate::transport::region::{OwnRegion, RegionError};
use crate::transport::snapshot::Snapshot as Sealed;
use crate::transport::watch::Watchers;
use crate::transport::{Os, prelude::*};
use crate::{Message, PublishError};

/// The board of one service, and what it announces. Sessions of services that only answer calls have a board, too.
#[derive(Debug)]
pub(crate) struct Publication {
    name: ServiceName,
    /// Passed to every client.
    passed_board: Owned,
    watchers: Watchers,
    /// Whether something was published since the reactor last checked, and a session awaits it.
    has_published: AtomicBool,
    /// Wakes the reactor; set when it starts.
    bell: OnceLock<Arc<WakeEvent>>,
    /// Nothing that holds the lock can panic during a change: an event's `encode` comes before it.
    inner: Mutex<Inner>,
    owner_process: OwnerProcess,
}

#[derive(Debug)]
struct Inner {
    board: OwnRegion,
    generation: u64,
    ring: Option<OwnRing>,
    /// The rings before it that subscribers may not have come to the end of yet: together smaller than it.
    earlier: Vec<PassedRing>,
    newest: Newest,
    /// How many sessions have requested notification of the next generation.
    awaiting: usize,
    /// The event being encoded.
    encoded: Vec<u8>,
    trace: PublisherTrace,
}

/// Where the newest snapshot is.
#[derive(Debug)]
enum Newest {
    Nowhere,
    /// The newest record of the ring.
    InRing,
    Sealed(Arc<Sealed>),
}

/// Counts one session that awaits the next generation for as long as it exists.
#[derive(Debug)]
pub(crate) struct AwaitGuard(Arc<Publication>);

/// Announces the events that were published since a generation, also where the next one's `encode` panics.
struct Sending<'a> {
    publication: &'a Publication,
    before: u64,
    inner: MutexGuard<'a, Inner>,
}

impl Drop for Sending<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.inner.generation > self.before {
            self.publication.announce(&mut self.inner);
        }
    }
}

impl Drop for AwaitGuard {
    fn drop(&mut self) {
        lock(&self.0.inner).awaiting -= 1;
    }
}

impl Publication {
    pub(crate) fn create(name: ServiceName) -> Result<Self, RegionError> {
        let header = BoardHeader::new(std::process::id(), Os::wall_nanos(), name);
        let label = format!("bellwire-board-{name}");
        let (board, passed_board) = OwnRegion::create(&label, BOARD_SIZE, |board| {
            board.write(0, header.as_bytes());
            store(board, BoardWord::State, BoardState::Serving as u64, Ordering::Relaxed);
        })?;
        let record = trace::session(name, 0, header.created(), Role::Server, None);
        let inner = Inner {
            board,
            generation: 0,
            ring: None,
            earlier: Vec::new(),
            newest: Newest::Nowhere,
            awaiting: 0,
            encoded: Vec::new(),
            trace: PublisherTrace::new(record),
        };
        Ok(Self {
            name,
            passed_board,
            watchers: Watchers::default(),
            has_published: AtomicBool::new(false),
            bell: OnceLock::new(),
            inner: Mutex::new(inner),
            owner_process: OwnerProcess::current(),
        })
    }

    pub(crate) fn passed_board(&self) -> &Owned {
        &self.passed_board
    }

    /// Returns the sessions whose clients may wait on the board.
    pub(crate) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Sets `bell` as the event that wakes the reactor when something is published that a client awaits.
    pub(crate) fn connect(&self, bell: &Arc<WakeEvent>) {
        // The reactor starts only once.
        let _ = self.bell.set(Arc::clone(bell));
    }

    /// Returns whether something that a session awaits was published since [`Publication::take_published`]: one load.
    pub(crate) fn has_published(&self) -> bool {
        self.has_published.load(Ordering::Relaxed)
    }

    /// Like [`Publication::has_published`], but resets it. A caller that now loads the generation gets what was published
    /// before, or a newer one.
    pub(crate) fn take_published(&self) -> bool {
        // Acquire: pairs with the publisher's Release. The mutex around the generation would suffice as well.
        self.has_published() && self.has_published.swap(false, Ordering::Acquire)
    }

    /// Returns the newest generation, or the number of the newest event.
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.inner).generation
    }

    /// Has the reactor woken when a generation above `after` is published; `None` if there is one already.
    pub(crate) fn await_after(self: &Arc<Self>, after: u64) -> Option<AwaitGuard> {
        let mut inner = lock(&self.inner);
        if inner.generation > after {
            return None;
        }
        inner.awaiting += 1;
        Some(AwaitGuard(Arc::clone(self)))
    }

    /// Returns the ring with this number, or the one in use if it is there no more, to be passed.
    pub(crate) fn ring(&self, number: u32) -> Option<PassedRing> {
        let inner = lock(&self.inner);
        let earlier = inner.earlier.iter().find(|passed| passed.ring.number == number).cloned();
        earlier.or_else(|| inner.ring.as_ref().map(OwnRing::passed))
    }

    /// Returns the newest snapshot in memory of its own, with its generation. One that is only in the ring gets such memory
    /// now.
    ///
    /// # Errors
    /// [`RegionError`]: this process lacks a resource for it.
    pub(crate) fn newest(&self) -> Result<Option<(u64, Arc<Sealed>)>, RegionError> {
        let inner = lock(&self.inner);
        let generation = inner.generation;
        let bytes = match &inner.newest {
            Newest::Nowhere => return Ok(None),
            Newest::Sealed(sealed) => return Ok(Some((generation, Arc::clone(sealed)))),
            Newest::InRing => inner.ring.as_ref().and_then(OwnRing::newest),
        };
        // Making memory takes the kernel longer than the copy took, and the publisher does not wait for it.
        drop(inner);
        let Some(bytes) = bytes else { return Ok(None) };
        let sealed = Arc::new(Sealed::copy_of(&self.label(), &bytes)?);
        let mut inner = lock(&self.inner);
        if inner.generation == generation {
            inner.newest = Newest::Sealed(Arc::clone(&sealed));
        }
        Ok(Some((generation, sealed)))
    }

    /// Notifies watchers that nothing more will be published.
    pub(crate) fn stop(&self) {
        let inner = lock(&self.inner);
        store(&inner.board, BoardWord::State, BoardState::Stopped as u64, Ordering::Release);
        // The word on which watchers park must change, or a watcher that is about to sleep would miss this. One that
        // requests this generation finds the session closed.
        let moved = inner.generation + 1;
        store(&inner.board, BoardWord::Generation, moved, Ordering::Release);
        self.wake_watchers(&inner.board);
    }

    /// Publishes a snapshot in the ring, and ahead of it its delta, if there is one.
    pub(crate) fn publish(&self, bytes: &[u8], delta: Option<&[u8]>) -> Result<u64, PublishError> {
        self.check_home()?;
        let begun = begins();
        let mut inner = lock(&self.inner);
        let sequence = inner.generation + 1;
        inner.trace.publishes(sequence, begun);
        let longest = bytes.len().max(delta.map_or(0, <[u8]>::len));
        self.make_room(&mut inner, 0, longest, false)?;
        if let Some(ring) = &mut inner.ring {
            if let Some(delta) = delta {
                ring.send_delta(sequence, delta).map_err(|error| failed(delta.len(), error))?;
            }
            ring.send(sequence, bytes).map_err(|error| failed(bytes.len(), error))?;
        }
        inner.trace.published(bytes.len());
        inner.newest = Newest::InRing;
        inner.generation = sequence;
        self.announce(&mut inner);
        Ok(sequence)
    }

    /// Publishes a snapshot of `len` bytes in memory of its own, which `make` creates under a label. Its delta, if
    /// `make` returns one, goes into the ring.
    pub(crate) fn publish_sealed(
        &self,
        len: usize,
        make: impl FnOnce(&str) -> Result<(Sealed, Option<Vec<u8>>), RegionError>,
    ) -> Result<u64, PublishError> {
        self.check_home()?;
        let begun = begins();
        let (sealed, delta) = make(&self.label()).map_err(|error| failed(len, error))?;
        let mut inner = lock(&self.inner);
        if let Some(delta) = delta {
            // Without memory for the ring, readers map the snapshot.
            let has_room = self.make_room(&mut inner, 0, delta.len(), false).is_ok();
            let sequence = inner.generation + 1;
            if let (true, Some(ring)) = (has_room, &mut inner.ring) {
                ring.send_delta(sequence, &delta).map_err(|error| failed(len, error))?;
            }
        }
        inner.newest = Newest::Sealed(Arc::new(sealed));
        inner.generation += 1;
        let sequence = inner.generation;
        inner.trace.publishes(sequence, begun);
        inner.trace.published(len);
        self.announce(&mut inner);
        Ok(sequence)
    }

    /// Makes the ring for events at least this large, in bytes.
    pub(crate) fn set_depth(&self, size: u64) -> Result<(), PublishError> {
        self.check_home()?;
        self.make_room(&mut lock(&self.inner), size, 0, true)
    }

    /// Publishes events, and wakes watchers once.
    #[inline]
    pub(crate) fn send<'a, M: Message + 'a>(
        &self,
        events: impl IntoIterator<Item = &'a M>,
    ) -> Result<u64, PublishError> {
        self.check_home()?;
        let inner = lock(&self.inner);
        let mut sending = Sending { publication: self, before: inner.generation, inner };
        for event in events {
            self.append(&mut sending.inner, event)?;
            sending.inner.generation += 1;
        }
        Ok(sending.inner.generation)
    }

    #[inline]
    fn append<M: Message>(&self, inner: &mut Inner, event: &M) -> Result<(), PublishError> {
        let sequence = inner.generation + 1;
        inner.trace.publishes(sequence, begins());
        let mut encoded = std::mem::take(&mut inner.encoded);
        encoded.clear();
        event.encode(&mut encoded);
        let sent = match &mut inner.ring {
            Some(ring) if ring.takes(encoded.len()) => Ok(()),
            _ => self.make_room(inner, 0, encoded.len(), true),
        };
        let sent = sent.and_then(|()| match &mut inner.ring {
            Some(ring) => {
                ring.send(sequence, &encoded).map_err(|error| failed(encoded.len(), error))
            }
            None => Ok(()),
        });
        if sent.is_ok() {
            inner.trace.published(encoded.len());
        }
        inner.encoded = encoded;
        sent
    }

    /// Replaces the ring if it is smaller than `size` bytes or takes no record of `payload` bytes, and keeps the old one for
    /// subscribers or not.
    fn make_room(
        &self,
        inner: &mut Inner,
        size: u64,
        payload: usize,
        keeps: bool,
    ) -> Result<(), PublishError> {
        let old = inner.ring.as_ref().map(OwnRing::ring);
        let is_fit = |ring: &OwnRing| ring.ring().size.size() >= size && ring.takes(payload);
        if inner.ring.as_ref().is_some_and(is_fit) {
            return Ok(());
        }
        let max = BroadcastRing { number: 1, size: Geometry::LARGEST }.max_payload();
        if payload as u64 > max {
            return Err(PublishError::TooLarge { len: payload, max });
        }
        let (number, least) = old.map_or((1, 0), |ring| (ring.number + 1, ring.size.size() * 2));
        let first = inner.generation + 1;
        let ring = OwnRing::create(self.name, number, size.max(least), payload, first);
        let ring = ring.map_err(|error| failed(payload, error))?;
        let word = ring.ring().to_wire();
        // Release: a reader that sees it may ask for it, and waits for the lock until it is there.
        store(&inner.board, BoardWord::Ring, word, Ordering::Release);
        // Only now: a reader that comes to the end finds the next ring on the board.
        if let Some(mut old) = inner.ring.replace(ring) {
            old.end(number);
            // A snapshot is never looked for in an old ring.
            if keeps {
                inner.earlier.push(old.passed());
            }
        }
        Ok(())
    }

    /// Announces the newest generation.
    #[inline]
    fn announce(&self, inner: &mut Inner) {
        // Release: a reader that sees the generation finds the snapshot or event.
        store(&inner.board, BoardWord::Generation, inner.generation, Ordering::Release);
        if inner.awaiting > 0 {
            self.wake_reactor();
        }
        self.wake_watchers(&inner.board);
        inner.trace.announced();
    }

    /// Wakes the reactor for clients that wait for the next generation in an event loop.
    #[cold]
    fn wake_reactor(&self) {
        if self.has_published.swap(true, Ordering::Release) {
            return;
        }
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    fn wake_watchers(&self, board: &OwnRegion) {
        self.watchers.wake(board, BoardWord::Generation.offset());
    }

    fn check_home(&self) -> Result<(), PublishError> {
        if self.owner_process.is_owner_process() { Ok(()) } else { Err(PublishError::Forked) }
    }

    fn label(&self) -> String {
        format!("bellwire-snapshot-{}", self.name)
    }
}

#[inline]
fn store(board: &OwnRegion, word: BoardWord, value: u64, order: Ordering) {
    board.store_u64(word.offset(), value, order);
}

/// Returns the limits of a session that is passed `len` bytes of memory, and as many again before those are unmapped.
pub(crate) fn limits_for(len: u64, limits: Limits) -> Limits {
    let shared = limits.max_shared_bytes_per_session.saturating_add(len.saturating_mul(2));
    let max_message = limits.max_message.max(len);
    Limits { max_message, max_shared_bytes_per_session: shared, ..limits }
}

fn failed(len: usize, error: impl std::error::Error + Send + Sync + 'static) -> PublishError {
    PublishError::System { len, source: of_transport(error) }
}
