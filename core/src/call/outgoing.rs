//! What is sent as a request.

use crate::wire::{Header, Kind, Status};

/// The payload of a request.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    bytes: &'a [u8],
    batch: bool,
    one_way: bool,
}

impl<'a> Outgoing<'a> {
    /// Wraps a finished [batch](crate::batch).
    pub fn batch(bytes: &'a [u8]) -> Self {
        Self { bytes, batch: true, one_way: false }
    }

    /// Makes the request one-way: it gets no answer, and its ticket is [`ONE_WAY`](super::Ticket::ONE_WAY).
    #[must_use]
    pub fn one_way(self) -> Self {
        Self { one_way: true, ..self }
    }

    /// Returns its bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether it is a batch.
    #[inline]
    pub fn is_batch(&self) -> bool {
        self.batch
    }

    /// Returns whether it is one-way.
    #[inline]
    pub fn is_one_way(&self) -> bool {
        self.one_way
    }

    pub(super) fn header(self, id: u64, len: u32) -> Header {
        let header = Header::new(Kind::Request, Status::Ok, id, len);
        if self.batch { header.batch() } else { header }
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Outgoing<'a> {
    #[inline]
    fn from(bytes: &'a T) -> Self {
        Self { bytes: bytes.as_ref(), batch: false, one_way: false }
    }
}
