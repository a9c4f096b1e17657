use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::PageError;
use super::page::{check_fields, check_start};
use crate::ServiceName;

/// A board's size in bytes.
pub const BOARD_SIZE: usize = 4096;

/// The constant first 128 bytes of a board: one page per service, written by the server, mapped read-only
/// by every client.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BoardHeader {
    magic: [u8; 8],
    layout: U32,
    pid: U32,
    created: U64,
    name: [u8; 64],
    reserved: [u8; 40],
}

const _: () = {
    assert!(size_of::<BoardHeader>() == 128);
    assert!(offset_of!(BoardHeader, layout) == 0x08);
    assert!(offset_of!(BoardHeader, pid) == 0x0c);
    assert!(offset_of!(BoardHeader, created) == 0x10);
    assert!(offset_of!(BoardHeader, name) == 0x18);
};

/// The words of a board, by offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum BoardWord {
    /// The generation of the newest snapshot, or the number of the newest event; 0 before the first. Watchers park on its
    /// low half.
    Generation = 0x080,
    /// A [`BoardState`].
    State = 0x100,
    /// The broadcast ring in use, as [`BroadcastRing::to_wire`](super::BroadcastRing::to_wire) encodes it; 0: none.
    Ring = 0x180,
}

/// The state of the service that a board reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum BoardState {
    /// The provider runs.
    Serving = 1,
    /// The provider was stopped regularly and will publish nothing more here.
    Stopped = 2,
}

impl BoardWord {
    /// Returns the word's offset in its board, in bytes.
    pub const fn offset(self) -> usize {
        self as usize
    }
}

impl BoardHeader {
    /// The first eight bytes of every board.
    pub const MAGIC: [u8; 8] = *b"BWBOARD\n";
    /// The layout that this version writes.
    pub const LAYOUT: u32 = 1;

    /// Creates a board's header as its server writes it.
    pub fn new(pid: u32, created: u64, name: ServiceName) -> Self {
        Self {
            magic: Self::MAGIC,
            layout: Self::LAYOUT.into(),
            pid: pid.into(),
            created: created.into(),
            name: name.to_field(),
            reserved: [0; 40],
        }
    }

    /// Returns when the board was created, in nanoseconds since 1970: another publisher of the same service has another time.
    pub fn created(&self) -> u64 {
        self.created.get()
    }

    /// Checks a copy of a server's board against the requested service.
    ///
    /// # Errors
    /// [`PageError`] names the first field that differs.
    pub fn check(&self, name: ServiceName) -> Result<(), PageError> {
        check_start((self.magic, self.layout), (Self::MAGIC, Self::LAYOUT))?;
        check_fields(&[("service name", self.name == name.to_field())])
    }
}
