//! A broadcast ring between the memory that a transport maps and the pure machines of core: the publisher's, and a
//! reader's.

use std::sync::Arc;

use bellwire_core::broadcast::{Received, Receiver, TooLong, Transmitter};
use bellwire_core::wire::{
    BROADCAST_HEADER, BROADCAST_RECORDS, BroadcastHeader, BroadcastRing, PageError,
};
use bellwire_core::{Geometry, PeerFault, ServiceName};
use zerocopy::IntoBytes;

use crate::transport::object::Owned;
use crate::transport::prelude::*;
use crate::transport::region::{OwnRegion, PeerRegion, ReceiveRegion, RegionError, TransmitRegion};

/// The smallest ring that a publisher creates.
const LEAST: u64 = 64 << 10;

/// A publisher's ring.
#[derive(Debug)]
pub(crate) struct OwnRing {
    ring: BroadcastRing,
    memory: TransmitRegion<OwnRegion>,
    transmitter: Transmitter,
    /// The newest record's place in the memory, and its length, in bytes.
    newest: Option<(usize, usize)>,
    /// Passed to readers.
    passed: PassedRing,
}

/// A ring that a session passes to its client. Its memory is the publisher's, however many readers have it, so that it counts
/// for no quota; those that were replaced are together smaller than the one in use.
#[derive(Clone, Debug)]
pub(crate) struct PassedRing {
    pub(crate) ring: BroadcastRing,
    pub(crate) memory: Arc<Owned>,
}

impl OwnRing {
    /// Creates a ring for records of up to `payload` bytes, at least `size` bytes of them. Its first record will have the
    /// sequence `first`.
    ///
    /// # Errors
    /// [`RegionError`] says which step failed.
    pub(crate) fn create(
        name: ServiceName,
        number: u32,
        size: u64,
        payload: usize,
        first: u64,
    ) -> Result<Self, RegionError> {
        let size = size.max(least_for(payload)).clamp(LEAST, Geometry::MAX.into());
        let size = Geometry::new(size.next_power_of_two()).unwrap_or(Geometry::LARGEST);
        let ring = BroadcastRing { number, size };
        let header = BroadcastHeader::new(ring, first, name);
        let label = format!("bellwire-broadcast-{name}");
        let (region, passed) =
            OwnRegion::create(&label, ring.memory(), |made| made.write(0, header.as_bytes()))?;
        let memory = TransmitRegion(region);
        let transmitter = Transmitter::new(ring, &memory);
        let passed = PassedRing { ring, memory: Arc::new(passed) };
        Ok(Self { ring, memory, transmitter, newest: None, passed })
    }

    pub(crate) fn ring(&self) -> BroadcastRing {
        self.ring
    }

    pub(crate) fn passed(&self) -> PassedRing {
        self.passed.clone()
    }

    /// Returns whether a record of `payload` bytes fits.
    pub(crate) fn takes(&self, payload: usize) -> bool {
        payload as u64 <= self.ring.max_payload()
    }

    /// Publishes a record, and wakes no reader.
    #[inline]
    pub(crate) fn send(&mut self, sequence: u64, payload: &[u8]) -> Result<(), TooLong> {
        let at = self.transmitter.send(&self.memory, sequence, payload)?;
        self.newest = Some((at, payload.len()));
        Ok(())
    }

    /// Publishes the delta that leads to a snapshot; the snapshot follows, or is not in the ring.
    pub(crate) fn send_delta(&mut self, sequence: u64, payload: &[u8]) -> Result<(), TooLong> {
        self.transmitter.send_delta(&self.memory, sequence, payload)
    }

    /// Tells readers to go on in the next ring.
    pub(crate) fn end(&mut self, next: u32) {
        self.transmitter.end(&self.memory, next);
    }

    /// Returns a copy of the newest record's payload.
    pub(crate) fn newest(&self) -> Option<Vec<u8>> {
        let (at, len) = self.newest?;
        let mut bytes = vec![0; len];
        self.memory.0.read(BROADCAST_RECORDS + at + BROADCAST_HEADER, &mut bytes);
        Some(bytes)
    }
}

/// A reader's ring: read-only, and written by the publisher at any time.
#[derive(Debug)]
pub(crate) struct PeerRing {
    ring: BroadcastRing,
    first: u64,
    memory: ReceiveRegion<PeerRegion>,
    receiver: Receiver,
}

impl PeerRing {
    /// Checks that mapped memory is this ring of this service. Reads from its start.
    pub(crate) fn check(
        ring: BroadcastRing,
        region: PeerRegion,
        name: ServiceName,
    ) -> Result<Self, PageError> {
        let bytes = region.read_header::<{ size_of::<BroadcastHeader>() }>(0);
        let header: BroadcastHeader = zerocopy::transmute!(bytes);
        let first = header.check(ring, name)?;
        let receiver = Receiver::new(ring, first);
        Ok(Self { ring, first, memory: ReceiveRegion(region), receiver })
    }

    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.ring.number
    }

    /// Returns the sequence of the next record unless some are missed.
    pub(crate) fn next_sequence(&self) -> Option<u64> {
        self.receiver.next_sequence()
    }

    /// Reads from the oldest record that is kept.
    pub(crate) fn seek_oldest(&mut self) {
        self.receiver = Receiver::from_oldest(self.ring);
    }

    /// Reads from the start, and counts as missed what lies between `next` and the first record there.
    pub(crate) fn resume_at(&mut self, next: u64) {
        self.receiver = Receiver::new(self.ring, self.first).expecting(next);
    }

    /// See [`Receiver::skip_to_now`].
    pub(crate) fn skip_to_now(&mut self) -> Result<bool, PeerFault> {
        self.receiver.skip_to_now(&self.memory)
    }

    #[inline]
    pub(crate) fn has_new_records(&self) -> bool {
        self.receiver.has_new_records(&self.memory)
    }

    /// See [`Receiver::try_next`].
    #[inline]
    pub(crate) fn try_next(&mut self, into: &mut Vec<u8>) -> Result<Received, PeerFault> {
        self.receiver.try_next(&self.memory, into)
    }

    /// See [`Receiver::delta`].
    #[inline]
    pub(crate) fn delta(
        &mut self,
        sequence: u64,
        into: &mut Vec<u8>,
    ) -> Result<Received, PeerFault> {
        self.receiver.delta(&self.memory, sequence, into)
    }

    /// See [`Receiver::newest`].
    #[inline]
    pub(crate) fn newest(&mut self, into: &mut Vec<u8>) -> Result<Received, PeerFault> {
        self.receiver.newest(&self.memory, into)
    }
}

/// Returns the size of a ring of which a record with `payload` bytes takes at most a quarter.
fn least_for(payload: usize) -> u64 {
    (payload as u64).saturating_add(BROADCAST_HEADER as u64).saturating_mul(4)
}
