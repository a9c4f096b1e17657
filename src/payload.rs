//! Raw bytes: short ones are copied through a lane, long ones are mapped.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

use bellwire_core::resize::Shortage;
use bellwire_shm::lock;

use crate::transport::snapshot::{Snapshot, SnapshotBuilder, SnapshotMap};
use crate::transport::{Os, prelude::*};
use crate::{Malformed, Message};

/// Shorter buffers are cheap to allocate and not kept.
pub(crate) const WORTH_KEEPING: usize = 64 << 10;
/// The most buffers kept, and the most bytes in them: less if this process has little memory.
const MAX_KEPT: usize = 4;
const MAX_KEPT_BYTES: usize = 64 << 20;
const KEPT_SHARE: u64 = 32;

/// Buffers whose pages are already faulted in: fresh pages cost about 2 µs per 4 KiB.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Bytes as a [`Message`], few or many, from the same call site.
///
/// A payload shorter than [`Payload::ATTACH_FROM`] is private memory, which its sender copies into the lane and its
/// receiver out of it. A longer one is built in place in a memfd of its own, sealed against writing
/// ([`F_SEAL_WRITE`](https://man7.org/linux/man-pages/man2/F_ADD_SEALS.2const.html), Linux 3.17), and mapped by its
/// receivers: nothing is copied, it can be sent to any number of sessions, and its memory is freed when the last
/// process drops it. The receiver reads both through `&[u8]`.
///
/// Clones share the bytes.
///
/// ```
/// use bellwire::Payload;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let few = Payload::build(5, |bytes| bytes.copy_from_slice(b"hello"))?;
/// let many = Payload::build(48 << 20, |bytes| bytes.fill(7))?;
/// assert_eq!((few.len(), few.is_mapped()), (5, false));
/// assert_eq!((many[123], many.is_mapped()), (7, true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Payload(Body);

#[derive(Clone)]
enum Body {
    Private(Arc<Buffer>),
    /// Built here: it can be passed on.
    Sealed(Arc<Sealed>),
    /// Received.
    Mapped(Arc<SnapshotMap>),
}

/// A memfd that was built here, and as what this process reads it once it does: mapped, or a copy where mapping it failed.
struct Sealed {
    snapshot: Snapshot,
    read: OnceLock<Payload>,
}

/// The first `len` bytes of a vector that is kept for reuse when dropped.
struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Payload {
    /// From this many bytes on, [`Payload::build`] creates a memfd: 32 MiB. Below, copying through warm memory is
    /// several times faster than faulting in fresh pages, however many readers there are; above, two private copies
    /// take too much memory. `docs/adr/0012-attach.md` has the figures.
    pub const ATTACH_FROM: usize = 32 << 20;

    /// Builds a payload of `len` bytes that `fill` writes in place. Their initial content is arbitrary.
    ///
    /// # Errors
    /// [`Shortage`] when a memfd cannot be created, which short payloads never need.
    pub fn build(len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Self, Shortage> {
        Self::build_from(Self::ATTACH_FROM, len, fill)
    }

    /// Like [`Payload::build`], but with another threshold: a memfd from `attach_from` bytes on. A low threshold pays
    /// for payloads that are kept or have several readers; one that is read once is faster through a lane that is
    /// already large.
    ///
    /// # Errors
    /// Like [`Payload::build`].
    pub fn build_from(
        attach_from: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self, Shortage> {
        if len >= attach_from {
            let sealed = Sealed { snapshot: seal(len, fill)?, read: OnceLock::new() };
            return Ok(Self(Body::Sealed(Arc::new(sealed))));
        }
        let mut bytes = buffer(len);
        fill(bytes.get_mut(..len).unwrap_or_default());
        Ok(Self::private(bytes, len))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Body::Private(buffer) => buffer.len,
            Body::Sealed(sealed) => sealed.snapshot.len(),
            Body::Mapped(map) => map.len(),
        }
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the bytes are in a memfd of their own.
    pub fn is_mapped(&self) -> bool {
        !matches!(self.0, Body::Private(_))
    }

    /// Returns the memfd, if it can be passed on.
    pub(crate) fn sealed(&self) -> Option<&Snapshot> {
        match &self.0 {
            Body::Sealed(sealed) => Some(&sealed.snapshot),
            _ => None,
        }
    }

    /// Copies `bytes` to a memfd.
    pub(crate) fn sealed_copy(bytes: &[u8]) -> Result<Self, Shortage> {
        Self::build_from(0, bytes.len(), |into| into.copy_from_slice(bytes))
    }

    pub(crate) fn mapped(map: SnapshotMap) -> Self {
        Self(Body::Mapped(Arc::new(map)))
    }

    /// Wraps the first `len` bytes of a buffer.
    fn private(bytes: Vec<u8>, len: usize) -> Self {
        Self(Body::Private(Arc::new(Buffer { bytes, len })))
    }
}

/// If `buffer` has no memory, gives it that of the last dropped payload, whose pages are the warmest.
#[inline]
pub(crate) fn refill(buffer: &mut Vec<u8>) {
    if buffer.is_empty() {
        *buffer = lock(&KEPT).pop().unwrap_or_default();
    }
}

/// Returns the most bytes in kept buffers.
fn most_kept() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let share = usize::try_from(Os::memory_limit().0 / KEPT_SHARE).unwrap_or(usize::MAX);
        share.min(MAX_KEPT_BYTES)
    })
}

/// Frees the buffers that are kept for later payloads.
pub(crate) fn release_buffers() {
    lock(&KEPT).clear();
}

/// Copies `bytes` to a sealed memfd.
pub(crate) fn seal_copy(bytes: &[u8]) -> Result<Snapshot, Shortage> {
    seal(bytes.len(), |into| into.copy_from_slice(bytes))
}

/// Creates a sealed memfd that `fill` has written.
fn seal(len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Snapshot, Shortage> {
    let bytes = len as u64;
    let mut builder =
        SnapshotBuilder::create("bellwire-payload", len).map_err(|error| error.shortage(bytes))?;
    fill(builder.bytes());
    builder.seal().map_err(|error| error.shortage(bytes))
}

/// Returns at least `len` bytes of private memory with arbitrary content.
fn buffer(len: usize) -> Vec<u8> {
    let mut bytes = if len >= WORTH_KEEPING {
        let mut kept = lock(&KEPT);
        let fitting = kept.iter().position(|bytes| bytes.len() >= len);
        fitting.map(|at| kept.swap_remove(at)).unwrap_or_default()
    } else {
        Vec::new()
    };
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
    bytes
}

impl Sealed {
    /// Maps the memfd at the first access: a process that only sends it never does.
    fn bytes(&self) -> &[u8] {
        self.read.get_or_init(|| match self.snapshot.map() {
            Ok(map) => Payload::mapped(map),
            // Reading a sealed memfd of this process does not fail.
            Err(_) => self.snapshot.to_vec().unwrap_or_default().into(),
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() < WORTH_KEEPING {
            return;
        }
        let mut kept = lock(&KEPT);
        let bytes: usize = kept.iter().map(Vec::len).sum();
        if kept.len() < MAX_KEPT && bytes + self.bytes.len() <= most_kept() {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Body::Private(buffer) => buffer.bytes.get(..buffer.len).unwrap_or_default(),
            Body::Sealed(sealed) => sealed.bytes(),
            Body::Mapped(map) => map,
        }
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self::private(bytes, len)
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("is_mapped", &self.is_mapped()).finish_non_exhaustive()
    }
}

impl Message for Payload {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(bytes.into())
    }

    fn take(buffer: &mut Vec<u8>, len: usize) -> Result<Self, Malformed> {
        if len < WORTH_KEEPING {
            return Ok(buffer.get(..len).unwrap_or_default().into());
        }
        Ok(Self::private(std::mem::take(buffer), len))
    }

    fn from_payload(payload: Payload) -> Result<Self, Malformed> {
        Ok(payload)
    }

    fn as_payload(&self) -> Option<&Payload> {
        Some(self)
    }
}
