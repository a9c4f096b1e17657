//! The snapshot that a cache holds.

use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use bellwire_core::Instant;

use crate::publisher::Snapshot;
use crate::transport::snapshot::SnapshotMap;
use crate::transport::{Os, prelude::*};

/// A held snapshot and its index.
#[derive(Debug)]
pub(super) struct HeldSnapshot<T: Snapshot> {
    pub(super) bytes: Source,
    pub(super) index: T::Index,
    pub(super) generation: u64,
    pub(super) taken: Instant,
}

/// The bytes of a snapshot.
#[derive(Debug)]
pub(super) enum Bytes {
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
pub(super) enum Source {
    Came(Bytes),
    Made(OnceLock<Vec<u8>>),
}

/// A snapshot held by a cache.
///
/// ```
/// use bellwire::CurrentSnapshot;
/// # use bellwire::SnapshotCache;
/// # use std::time::Duration;
#[doc = include_str!("../doc/load.txt")]
/// let mut cache = SnapshotCache::<Load>::new(&run_dir);
/// publisher.publish(&0.5_f64.to_le_bytes())?;
/// cache.refresh_within(Duration::from_secs(5))?;
/// let current: CurrentSnapshot<'_, Load> = cache.current().ok_or("there is none")?;
/// assert_eq!((current.generation(), *current.index(), current.bytes().len()), (1, 0.5, 8));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CurrentSnapshot<'a, T: Snapshot>(pub(super) &'a HeldSnapshot<T>);

impl<T: Snapshot> Clone for CurrentSnapshot<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Snapshot> Copy for CurrentSnapshot<'_, T> {}

impl<'a, T: Snapshot> CurrentSnapshot<'a, T> {
    /// Returns its bytes, which do not change. After an update by a delta, the first call makes them from the
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
        Os::now().since(self.0.taken)
    }
}
