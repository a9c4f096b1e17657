use std::ops::Deref;

use bellwire_core::broadcast::{ReceiveMemory, TransmitMemory};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BROADCAST_RECORDS, BroadcastWord};

use crate::range::{OwnRange, PeerRange};

/// A broadcast ring's memory, as its only writer has it.
#[derive(Debug)]
pub struct TransmitRegion<R>(pub R);

/// A broadcast ring's memory, as a reader has it.
#[derive(Debug)]
pub struct ReceiveRegion<R>(pub R);

impl<R: Deref<Target = OwnRange>> TransmitMemory for TransmitRegion<R> {
    #[inline]
    fn store(&self, word: BroadcastWord, value: u64, order: Ordering) {
        self.0.store_u64(word.offset(), value, order);
    }

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.write(BROADCAST_RECORDS + offset, bytes);
    }

    #[inline]
    fn written(&self, offset: usize) -> u64 {
        u64::from_le(self.0.load_u64(BROADCAST_RECORDS + offset, Ordering::Relaxed))
    }
}

impl<R: Deref<Target = PeerRange>> ReceiveMemory for ReceiveRegion<R> {
    #[inline]
    fn load(&self, word: BroadcastWord, order: Ordering) -> u64 {
        self.0.load_u64(word.offset(), order)
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        self.0.read(BROADCAST_RECORDS + offset, into);
    }
}
