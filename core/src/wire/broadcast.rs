use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned, try_transmute,
};

use super::page::{check_fields, check_start};
use super::{ALIGN, Attachment, PageError};
use crate::lane::Epoch;
use crate::{Geometry, ServiceName};

/// Where the records of a broadcast ring begin in its memory, in bytes; before them are its header and words.
pub const BROADCAST_RECORDS: usize = 4096;
/// The bytes of a record's header in a broadcast ring.
pub const BROADCAST_HEADER: usize = size_of::<BroadcastRecord>();

/// The constant first 128 bytes of a broadcast ring: records of one publisher for any number of readers, which map it
/// read-only.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BroadcastHeader {
    magic: [u8; 8],
    layout: U32,
    size: U32,
    number: U32,
    reserved: U32,
    first: U64,
    name: [u8; 64],
    reserved_too: [u8; 32],
}

/// The words of a broadcast ring, by offset in bytes. They share a cache line: their writer stores all of them for each
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum BroadcastWord {
    /// The position of the oldest record that is whole.
    Oldest = 0x080,
    /// The position up to which the publisher may be writing.
    Intent = 0x088,
    /// The position of the newest record; `u64::MAX` before the first.
    Latest = 0x090,
    /// The position up to which records are published.
    Tail = 0x098,
}

/// The header of a record in a broadcast ring.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BroadcastRecord {
    /// The payload's length in bytes, without header and padding.
    pub len: U32,
    /// A [`BroadcastKind`].
    pub kind: U32,
    /// The number of the event or the generation of the snapshot; of [`BroadcastKind::Next`], the next ring's number.
    pub sequence: U64,
}

/// The kind of a record in a broadcast ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[repr(u32)]
pub enum BroadcastKind {
    /// An event, or a snapshot.
    Data = 1,
    /// Skip to the ring's end.
    Pad = 2,
    /// The last record: the publisher goes on in the next ring.
    Next = 3,
    /// The delta from the snapshot before, ahead of its snapshot or without it.
    Delta = 4,
}

const _: () = {
    assert!(size_of::<BroadcastHeader>() == 128);
    assert!(offset_of!(BroadcastHeader, layout) == 0x08);
    assert!(offset_of!(BroadcastHeader, size) == 0x0c);
    assert!(offset_of!(BroadcastHeader, number) == 0x10);
    assert!(offset_of!(BroadcastHeader, first) == 0x18);
    assert!(offset_of!(BroadcastHeader, name) == 0x20);
    assert!(size_of::<BroadcastRecord>() == 16);
    assert!(offset_of!(BroadcastRecord, kind) == 0x4);
    assert!(offset_of!(BroadcastRecord, sequence) == 0x8);
};

/// One ring of a publisher, which may replace it by a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BroadcastRing {
    /// Its number, from 1; each replacement adds 1.
    pub number: u32,
    /// The bytes for records.
    pub size: Geometry,
}

impl BroadcastWord {
    /// Returns the word's offset in its ring, in bytes.
    pub const fn offset(self) -> usize {
        self as usize
    }
}

impl BroadcastRing {
    /// Decodes the [board's word](super::BoardWord::Ring); `None` if there is no ring, or the word is invalid.
    pub fn from_wire(word: u64) -> Option<Self> {
        let Epoch { number, size } = Epoch::from_wire(word)?;
        (number > 0).then_some(Self { number, size })
    }

    /// Encodes it for the board's word.
    pub const fn to_wire(self) -> u64 {
        Epoch { number: self.number, size: self.size }.to_wire()
    }

    /// Returns the size of its memory, in bytes.
    pub fn memory(self) -> usize {
        usize::try_from(self.size.size()).unwrap_or(usize::MAX).saturating_add(BROADCAST_RECORDS)
    }

    /// Returns the message that passes it, for the attach record `id`.
    pub fn attachment(self, id: u64) -> Attachment {
        Attachment { id, generation: self.to_wire(), len: self.memory() as u64 }
    }

    /// Returns the ring that a message passes; `None` if it passes none.
    pub fn of_attachment(attachment: &Attachment) -> Option<Self> {
        let ring = Self::from_wire(attachment.generation)?;
        (attachment.len == ring.memory() as u64).then_some(ring)
    }

    /// Returns the longest payload of a record, in bytes: a quarter of the ring less a header.
    pub const fn max_payload(self) -> u64 {
        self.size.size() / 4 - BROADCAST_HEADER as u64
    }
}

impl BroadcastKind {
    /// Parses a publisher's kind.
    pub fn parse(kind: u32) -> Option<Self> {
        try_transmute!(kind).ok()
    }
}

impl BroadcastHeader {
    /// The first eight bytes of every broadcast ring.
    pub const MAGIC: [u8; 8] = *b"BWCAST\r\n";
    /// The layout that this version writes.
    pub const LAYOUT: u32 = 1;

    /// Creates a ring's header as its publisher writes it; `first` is the number of the first record in it.
    pub fn new(ring: BroadcastRing, first: u64, name: ServiceName) -> Self {
        Self {
            magic: Self::MAGIC,
            layout: Self::LAYOUT.into(),
            size: u32::try_from(ring.size.size()).unwrap_or(u32::MAX).into(),
            number: ring.number.into(),
            reserved: 0.into(),
            first: first.into(),
            name: name.to_field(),
            reserved_too: [0; 32],
        }
    }

    /// Checks a copy of a publisher's header against the ring that was announced, and returns the number of the first
    /// record in it.
    ///
    /// # Errors
    /// [`PageError`] names the first field that differs.
    pub fn check(&self, ring: BroadcastRing, name: ServiceName) -> Result<u64, PageError> {
        check_start((self.magic, self.layout), (Self::MAGIC, Self::LAYOUT))?;
        check_fields(&[
            ("ring size", u64::from(self.size.get()) == ring.size.size()),
            ("ring number", self.number.get() == ring.number),
            ("service name", self.name == name.to_field()),
        ])?;
        Ok(self.first.get())
    }
}

impl BroadcastRecord {
    /// Creates a header as its publisher writes it.
    pub fn new(kind: BroadcastKind, sequence: u64, len: u32) -> Self {
        Self { len: len.into(), kind: (kind as u32).into(), sequence: sequence.into() }
    }

    /// Returns the bytes that the record takes in the ring: header, payload, padding.
    pub const fn space(len: u32) -> u64 {
        BROADCAST_HEADER as u64 + (len as u64).next_multiple_of(ALIGN as u64)
    }
}
