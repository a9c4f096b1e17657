use core::mem::{align_of, offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes of every snapshot.
pub const MAGIC: [u8; 8] = *b"BWCGRP\r\n";
/// The first eight bytes of every record of changes.
pub(super) const DELTA_MAGIC: [u8; 8] = *b"BWCGCH\r\n";
/// The layout that this version writes and reads.
pub const LAYOUT: u32 = 1;
/// The header's length in bytes; the item table follows it.
pub const HEADER_LEN: usize = 64;
/// An item's length in bytes.
pub const ITEM_LEN: usize = 48;
/// The length of a row of the pair table in bytes.
pub(super) const PAIR_LEN: usize = 4;
/// The maximum number of items in a snapshot.
pub const MAX_ITEMS: usize = 1_000_000;
/// The longest snapshot, in bytes: 1 GiB.
pub const MAX_LEN: usize = 1 << 30;
/// The maximum number of labels of an item.
pub const MAX_LABELS: usize = u8::MAX as usize;
/// The longest value of a label, in bytes. Its name is not longer than [`MAX_NAME`].
pub const MAX_VALUE: usize = 4095;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// The longest path, in bytes.
pub const MAX_PATH: usize = 4095;

/// The head of a snapshot.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: [u8; 8],
    pub(super) layout: U32,
    pub(super) total_len: U32,
    pub(super) scanned_at: U64,
    pub(super) item_count: U32,
    pub(super) item_len: U32,
    pub(super) items_offset: U32,
    pub(super) strings_offset: U32,
    pub(super) strings_len: U32,
    pub(super) skipped: U32,
    pub(super) pair_count: U32,
    pub(super) mode: u8,
    pub(super) hierarchies: u8,
    pub(super) reserved: [u8; 10],
}

/// The head of a delta.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DeltaHeader {
    pub(super) magic: [u8; 8],
    pub(super) layout: U32,
    pub(super) total_len: U32,
    pub(super) scanned_at: U64,
    pub(super) old_scanned_at: U64,
    pub(super) old_count: U32,
    pub(super) added: U32,
    pub(super) removed: U32,
    pub(super) skipped: U32,
    pub(super) pair_count: U32,
    pub(super) mode: u8,
    pub(super) reserved: [u8; 11],
}

/// One row of the item table. Its offsets count from the start of the string area.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Item {
    pub(super) id: U64,
    pub(super) name_hash: U64,
    pub(super) path_offset: U32,
    pub(super) name_offset: U32,
    pub(super) path_len: U16,
    pub(super) name_len: U16,
    pub(super) options: U32,
    pub(super) enabled: u8,
    pub(super) orchestrator: u8,
    pub(super) labels: u8,
    pub(super) reserved: [u8; 13],
}

/// One row of the pair table: the lengths of a name and a value, which stand in the string area. First the hierarchies, then the
/// labels of each item.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Pair {
    pub(super) name_len: U16,
    pub(super) value_len: U16,
}

impl Pair {
    /// Returns the length of both texts, in bytes.
    pub(super) fn len(&self) -> usize {
        usize::from(self.name_len.get()) + usize::from(self.value_len.get())
    }
}

const _: () = {
    assert!(size_of::<Header>() == HEADER_LEN && align_of::<Header>() == 1);
    assert!(offset_of!(Header, layout) == 0x08);
    assert!(offset_of!(Header, total_len) == 0x0c);
    assert!(offset_of!(Header, scanned_at) == 0x10);
    assert!(offset_of!(Header, item_count) == 0x18);
    assert!(offset_of!(Header, item_len) == 0x1c);
    assert!(offset_of!(Header, items_offset) == 0x20);
    assert!(offset_of!(Header, strings_offset) == 0x24);
    assert!(offset_of!(Header, strings_len) == 0x28);
    assert!(offset_of!(Header, skipped) == 0x2c);
    assert!(offset_of!(Header, pair_count) == 0x30);
    assert!(offset_of!(Header, mode) == 0x34);
    assert!(offset_of!(Header, hierarchies) == 0x35);
    assert!(offset_of!(Header, reserved) == 0x36);
};

const _: () = {
    assert!(size_of::<DeltaHeader>() == HEADER_LEN && align_of::<DeltaHeader>() == 1);
    assert!(offset_of!(DeltaHeader, layout) == 0x08);
    assert!(offset_of!(DeltaHeader, total_len) == 0x0c);
    assert!(offset_of!(DeltaHeader, scanned_at) == 0x10);
    assert!(offset_of!(DeltaHeader, old_scanned_at) == 0x18);
    assert!(offset_of!(DeltaHeader, old_count) == 0x20);
    assert!(offset_of!(DeltaHeader, added) == 0x24);
    assert!(offset_of!(DeltaHeader, removed) == 0x28);
    assert!(offset_of!(DeltaHeader, skipped) == 0x2c);
    assert!(offset_of!(DeltaHeader, pair_count) == 0x30);
    assert!(offset_of!(DeltaHeader, mode) == 0x34);
    assert!(offset_of!(DeltaHeader, reserved) == 0x35);
};

const _: () = {
    assert!(size_of::<Item>() == ITEM_LEN && align_of::<Item>() == 1);
    assert!(offset_of!(Item, id) == 0x00);
    assert!(offset_of!(Item, name_hash) == 0x08);
    assert!(offset_of!(Item, path_offset) == 0x10);
    assert!(offset_of!(Item, name_offset) == 0x14);
    assert!(offset_of!(Item, path_len) == 0x18);
    assert!(offset_of!(Item, name_len) == 0x1a);
    assert!(offset_of!(Item, options) == 0x1c);
    assert!(offset_of!(Item, enabled) == 0x20);
    assert!(offset_of!(Item, orchestrator) == 0x21);
    assert!(offset_of!(Item, labels) == 0x22);
    assert!(offset_of!(Item, reserved) == 0x23);
};

const _: () = {
    assert!(size_of::<Pair>() == PAIR_LEN && align_of::<Pair>() == 1);
    assert!(offset_of!(Pair, name_len) == 0x00);
    assert!(offset_of!(Pair, value_len) == 0x02);
};
