use core::mem::{align_of, offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes of every snapshot.
pub const MAGIC: [u8; 8] = *b"BWCGRP\r\n";
/// The layout that this version writes and reads.
pub const LAYOUT: u32 = 1;
/// The header's length in bytes; the item table follows it.
pub const HEADER_LEN: usize = 64;
/// An item's length in bytes.
pub const ITEM_LEN: usize = 48;
/// The maximum number of items in a snapshot.
pub const MAX_ITEMS: usize = 1_000_000;
/// The longest snapshot, in bytes: 1 GiB.
pub const MAX_LEN: usize = 1 << 30;
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
    pub(super) mode: u8,
    pub(super) reserved: [u8; 15],
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
    pub(super) reserved: [u8; 14],
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
    assert!(offset_of!(Header, mode) == 0x30);
    assert!(offset_of!(Header, reserved) == 0x31);
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
    assert!(offset_of!(Item, reserved) == 0x22);
};
