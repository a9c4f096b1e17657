use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use bellwire_shm::lock;

use crate::PublishError;
use crate::publication::Publication;
use crate::transport::prelude::*;
use crate::transport::snapshot::{Snapshot as Sealed, SnapshotBuilder};

/// Snapshots up to this many bytes are published in the broadcast ring, and readers copy them out; longer ones in memory of
/// their own, which readers map. See `docs/adr/0060-ring-limit.md` for the measurements.
const IN_RING_UP_TO: usize = 256 << 10;

/// A service that publishes snapshots: its name, what its bytes mean, and how to check them.
///
/// A reader validates each generation once, completely, and keeps an index beside the bytes.
///
/// ```
/// use bellwire::{Malformed, Message, Snapshot};
/// # use bellwire::{RunDir, Server, SnapshotCache};
/// struct Load;
/// impl Snapshot for Load {
///     const NAME: &'static str = "load";
///     type Index = f64;
///     type Error = Malformed;
///     fn validate(bytes: &[u8]) -> Result<f64, Malformed> {
///         f64::decode(bytes)
///     }
/// }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let run_dir = RunDir::new(dir.path());
/// # let mut builder = Server::builder(&run_dir);
/// # let publisher = builder.publish::<Load>()?;
/// # let server = builder.start()?;
/// publisher.publish(&0.5_f64.to_le_bytes())?;
/// # Ok(())
/// # }
/// ```
pub trait Snapshot: 'static {
    /// The service's name, as for [`Service`](crate::Service).
    const NAME: &'static str;

    /// The version of the layout, as for [`Service`](crate::Service).
    const VERSION: u32 = 1;

    /// A fingerprint of the snapshot's layout: see [`Service::SCHEMA`](crate::Service::SCHEMA).
    const SCHEMA: u64 = 0;

    /// The largest snapshot that a reader maps, in bytes. Default: 1 GiB.
    const MAX_LEN: usize = 1 << 30;

    /// What validation derives from the bytes, to look things up without checking them again.
    type Index: std::fmt::Debug + Send + Sync;

    /// Why bytes are not a valid snapshot.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Checks all of `bytes`, which another process wrote and no process can change any more.
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

    /// Whether a publisher publishes a delta from each generation to the next, by the three functions below.
    /// Default: no. Then they are never called, and readers update their index from the whole snapshot.
    const PUBLISHES_DELTAS: bool = false;

    /// Returns the delta from the snapshot of `index` to the next one, `bytes`, in a form of this service's own; `None` if that
    /// is not smaller than the snapshot, or if `bytes` are malformed.
    fn delta(index: &Self::Index, bytes: &[u8]) -> Option<Vec<u8>> {
        let _ = (index, bytes);
        None
    }

    /// Updates `index` by the provider's `delta`. It comes from another process, like a snapshot: check all of it, so that
    /// `index` is afterwards the one of a valid snapshot. Returns false, and leaves `index` unchanged, if the delta is
    /// malformed or does not apply to this snapshot: the reader then takes the whole snapshot.
    fn apply_delta(index: &mut Self::Index, delta: &[u8]) -> bool {
        let _ = (index, delta);
        false
    }

    /// Returns the bytes of the snapshot of which this is the index, for [`CurrentSnapshot::bytes`](crate::CurrentSnapshot::bytes) after
    /// [`Snapshot::apply_delta`].
    fn to_bytes(index: &Self::Index) -> Vec<u8> {
        let _ = index;
        Vec::new()
    }

    /// How clients of netipc are served: see [`ServerConfig::netipc`](crate::ServerConfig::netipc). Default: not served.
    #[cfg(feature = "netipc")]
    fn netipc() -> Option<crate::netipc::SnapshotMethod> {
        None
    }
}

/// Publishes snapshots of `T` for any number of readers, at no cost per reader: short ones in a ring that readers
/// copy from, long ones each in sealed memory that readers map.
///
/// Can be used from any thread. Dropping it stops nothing: the server serves the last snapshot until it stops.
///
/// ```
/// use bellwire::Publisher;
/// # use bellwire::SnapshotCache;
/// # use std::time::Duration;
#[doc = include_str!("doc/load.txt")]
/// let publisher: Publisher<Load> = publisher;
/// assert_eq!(publisher.publish(&0.5_f64.to_le_bytes())?, 1);
/// assert_eq!(publisher.publish_with(8, |bytes| bytes.copy_from_slice(&0.7_f64.to_le_bytes()))?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Publisher<T: Snapshot> {
    store: Arc<Publication>,
    /// The index of the last generation, if deltas are published. Locked while a generation is published.
    last: Mutex<Option<T::Index>>,
    snapshot: PhantomData<fn(&T)>,
}

impl<T: Snapshot> Publisher<T> {
    pub(crate) fn new(store: Arc<Publication>) -> Self {
        Self { store, last: Mutex::new(None), snapshot: PhantomData }
    }

    /// Publishes a copy of `bytes` and returns its generation, counted from 1.
    ///
    /// Costs one copy and one system call, which wakes all watchers (on Windows one each), and above 256 KiB about 2 µs for
    /// each 4 KiB of new memory; where [`Snapshot::PUBLISHES_DELTAS`], the comparison with the last generation, too.
    ///
    /// # Errors
    /// [`PublishError`]: nothing changed for readers.
    pub fn publish(&self, bytes: &[u8]) -> Result<u64, PublishError> {
        self.and_last(|last| {
            if bytes.len() <= IN_RING_UP_TO {
                return self.store.publish(bytes, delta_from_last::<T>(last, bytes).as_deref());
            }
            self.store.publish_sealed(bytes.len(), |label| {
                Ok((Sealed::copy_of(label, bytes)?, delta_from_last::<T>(last, bytes)))
            })
        })
    }

    /// Publishes `len` bytes that `build` writes in place, in zeroed memory. Returns the generation. Above 256 KiB readers map
    /// that memory; shorter snapshots are copied as by [`Publisher::publish`].
    ///
    /// # Errors
    /// [`PublishError`]: nothing changed for readers.
    pub fn publish_with(
        &self,
        len: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<u64, PublishError> {
        if len <= IN_RING_UP_TO {
            let mut bytes = vec![0; len];
            build(&mut bytes);
            return self.publish(&bytes);
        }
        self.and_last(|last| {
            self.store.publish_sealed(len, |label| {
                let mut builder = SnapshotBuilder::create(label, len)?;
                build(builder.bytes());
                let delta = delta_from_last::<T>(last, builder.bytes());
                Ok((builder.seal()?, delta))
            })
        })
    }

    /// Returns the last published generation; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.store.generation()
    }

    /// Publishes one generation; if deltas are published, while no other thread does.
    fn and_last(
        &self,
        publish: impl FnOnce(&mut Option<T::Index>) -> Result<u64, PublishError>,
    ) -> Result<u64, PublishError> {
        if !T::PUBLISHES_DELTAS {
            return publish(&mut None);
        }
        let mut last = lock(&self.last);
        // Taken: if the publication fails, or panics, this is not the last generation's.
        let mut index = last.take();
        let published = publish(&mut index);
        if published.is_ok() {
            *last = index;
        }
        published
    }
}

/// Updates the index of the last generation to this one. Returns the delta for readers, if that is much shorter.
fn delta_from_last<T: Snapshot>(last: &mut Option<T::Index>, bytes: &[u8]) -> Option<Vec<u8>> {
    if !T::PUBLISHES_DELTAS {
        return None;
    }
    let Some(index) = last else {
        *last = T::validate(bytes).ok();
        return None;
    };
    let delta = T::delta(index, bytes);
    let delta = delta.filter(|delta| delta.len() <= IN_RING_UP_TO.min(bytes.len() / 2));
    // As a reader does, so that the two indices are the same.
    let delta = delta.filter(|delta| T::apply_delta(index, delta));
    if delta.is_none() && T::update(index, bytes).is_err() {
        *last = None;
    }
    delta
}

/// The most memory of a ring for snapshots, in bytes.
const RING_MEMORY: u64 = 4 << 20;

/// Returns the most bytes that are passed for snapshots of `T` at once: one of any size, or the ring.
pub(crate) fn longest<T: Snapshot>() -> u64 {
    (T::MAX_LEN as u64).max(RING_MEMORY)
}
