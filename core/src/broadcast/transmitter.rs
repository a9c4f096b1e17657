use zerocopy::IntoBytes;

use super::TransmitMemory;
use crate::Geometry;
use crate::sync::{Ordering, fence};
use crate::wire::{BROADCAST_HEADER, BroadcastKind, BroadcastRecord, BroadcastRing, BroadcastWord};

/// The writing end of a broadcast ring. It never waits.
#[derive(Debug)]
pub struct Transmitter {
    size: Geometry,
    max_payload: u64,
    oldest: u64,
    tail: u64,
}

/// A payload is longer than this ring takes; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of {len} bytes does not fit a ring that takes {max}")]
pub struct TooLong {
    /// The payload's length in bytes.
    pub len: usize,
    /// The most that this ring takes, in bytes.
    pub max: u64,
}

impl Transmitter {
    /// Starts an empty ring and stores its words. The memory is not shared yet.
    pub fn new(ring: BroadcastRing, own: &impl TransmitMemory) -> Self {
        own.store(BroadcastWord::Latest, u64::MAX, Ordering::Relaxed);
        Self { size: ring.size, max_payload: ring.max_payload(), oldest: 0, tail: 0 }
    }

    /// Returns the longest payload that fits, in bytes.
    pub fn max_payload(&self) -> u64 {
        self.max_payload
    }

    /// Writes a record numbered `sequence` and publishes it, over the oldest ones. Returns its offset in the records. Waking
    /// readers that sleep is up to the caller.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn send(
        &mut self,
        own: &impl TransmitMemory,
        sequence: u64,
        payload: &[u8],
    ) -> Result<usize, TooLong> {
        self.put(own, BroadcastKind::Data, sequence, payload)
    }

    /// Writes the delta that leads to the snapshot numbered `sequence`, and publishes it like [`Transmitter::send`]. The
    /// snapshot follows, or is passed in another way.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn send_delta(
        &mut self,
        own: &impl TransmitMemory,
        sequence: u64,
        payload: &[u8],
    ) -> Result<(), TooLong> {
        self.put(own, BroadcastKind::Delta, sequence, payload).map(drop)
    }

    #[inline]
    fn put(
        &mut self,
        own: &impl TransmitMemory,
        kind: BroadcastKind,
        sequence: u64,
        payload: &[u8],
    ) -> Result<usize, TooLong> {
        let too_long = TooLong { len: payload.len(), max: self.max_payload };
        let len = u32::try_from(payload.len()).map_err(|_| too_long)?;
        if u64::from(len) > self.max_payload {
            return Err(too_long);
        }
        Ok(self.write(own, BroadcastRecord::new(kind, sequence, len), payload))
    }

    /// Writes the last record, which names the next ring: readers go on there.
    pub fn end(&mut self, own: &impl TransmitMemory, next: u32) {
        self.write(own, BroadcastRecord::new(BroadcastKind::Next, next.into(), 0), &[]);
    }

    fn write(
        &mut self,
        own: &impl TransmitMemory,
        header: BroadcastRecord,
        payload: &[u8],
    ) -> usize {
        let space = BroadcastRecord::space(header.len.get());
        let room = self.size.room_to_end(self.tail);
        let pad = if space > room { room } else { 0 };
        let start = self.tail + pad;
        let end = start + space;
        self.make_room(own, end);
        own.store(BroadcastWord::Oldest, self.oldest, Ordering::Relaxed);
        own.store(BroadcastWord::Intent, end, Ordering::Relaxed);
        // Partner: the Acquire fence of `Receiver::is_whole`. A reader whose copy has a byte of this record sees Intent, too.
        fence(Ordering::Release);
        if pad > 0 {
            // What is left before the end is a multiple of 16, so at least a header.
            let len = u32::try_from(pad).unwrap_or(0) - 16;
            let pad = BroadcastRecord::new(BroadcastKind::Pad, 0, len);
            own.write(self.size.offset(self.tail), pad.as_bytes());
        }
        let at = self.size.offset(start);
        own.write(at, header.as_bytes());
        own.write(at + BROADCAST_HEADER, payload);
        self.tail = end;
        own.store(BroadcastWord::Tail, end, Ordering::Release);
        if header.kind.get() != BroadcastKind::Delta as u32 {
            // After Tail: whoever sees the newest record sees a tail behind it.
            own.store(BroadcastWord::Latest, start, Ordering::Release);
        }
        at
    }

    /// Gives up the oldest records that end within a ring's length before `end`.
    fn make_room(&mut self, own: &impl TransmitMemory, end: u64) {
        while end - self.oldest > self.size.size() && self.oldest < self.tail {
            let len = own.written(self.size.offset(self.oldest)) & u64::from(u32::MAX);
            self.oldest += BroadcastRecord::space(u32::try_from(len).unwrap_or(0));
        }
    }
}
