use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned, try_transmute,
};

use crate::{ServiceName, Word};

/// A page's size in bytes.
pub const PAGE_SIZE: usize = 4096;
/// The offset of the life word in a page, in bytes.
pub const LIFE_OFFSET: usize = 0x2c0;
/// The bytes reserved for it.
pub const LIFE_SIZE: usize = 64;

/// The constant first 128 bytes of a page. The peer copies them once and checks the copy.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageHeader {
    magic: [u8; 8],
    layout: U32,
    role: U32,
    session: U64,
    pid: U32,
    lane_size: U32,
    created: U64,
    name: [u8; 64],
    reserved: [u8; 24],
}

const _: () = {
    assert!(size_of::<PageHeader>() == 128);
    assert!(offset_of!(PageHeader, layout) == 0x08);
    assert!(offset_of!(PageHeader, role) == 0x0c);
    assert!(offset_of!(PageHeader, session) == 0x10);
    assert!(offset_of!(PageHeader, pid) == 0x18);
    assert!(offset_of!(PageHeader, lane_size) == 0x1c);
    assert!(offset_of!(PageHeader, created) == 0x20);
    assert!(offset_of!(PageHeader, name) == 0x28);
    assert!(Word::Doorbell.offset() + 8 <= LIFE_OFFSET);
    assert!(LIFE_OFFSET + LIFE_SIZE <= Word::RungAt.offset());
    assert!(LIFE_OFFSET % LIFE_SIZE == 0);
};

/// Which end of a session a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[repr(u32)]
pub enum Role {
    /// The end that connected.
    Client = 1,
    /// The end that accepted.
    Server = 2,
}

/// The state of the page owner's end of the session (the `state` word, low 32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[repr(u32)]
pub enum PageState {
    /// Data may flow.
    Open = 1,
    /// The owner no longer reads or writes; the high 32 bits hold a [`CloseReason`].
    Closed = 3,
}

/// Why an end closed its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[repr(u32)]
pub enum CloseReason {
    /// It was dropped or stopped regularly.
    Normal = 1,
    /// The peer violated the protocol.
    Poisoned = 2,
    /// The server is stopping.
    Stopping = 3,
    /// The peer took nothing of what was written for it for too long.
    Stalled = 4,
}

/// Why a page does not match the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// The first eight bytes are not a page's.
    #[error("the peer's page does not start with the magic of a Bellwire page")]
    Magic,
    /// The layout is not this version's.
    #[error("the peer's page has layout {found}, not {expected}")]
    Layout {
        /// The layout found.
        found: u32,
        /// The layout of this version.
        expected: u32,
    },
    /// It belongs to another role, session or service, or its lane has another size.
    #[error("the peer's page does not match its handshake: {field}")]
    Mismatch {
        /// The field that differs.
        field: &'static str,
    },
}

impl PageHeader {
    /// The first eight bytes of every page.
    pub const MAGIC: [u8; 8] = *b"BWPAGE\r\n";
    /// The offset of the creation time, in bytes.
    pub const CREATED: usize = offset_of!(Self, created);
    /// The layout that this version writes.
    pub const LAYOUT: u32 = 1;

    /// Creates a page's header as its owner writes it, before the memfd is sealed and sent.
    pub fn new(
        role: Role,
        session: u64,
        pid: u32,
        lane_size: u32,
        created: u64,
        name: ServiceName,
    ) -> Self {
        Self {
            magic: Self::MAGIC,
            layout: Self::LAYOUT.into(),
            role: (role as u32).into(),
            session: session.into(),
            pid: pid.into(),
            lane_size: lane_size.into(),
            created: created.into(),
            name: name.to_field(),
            reserved: [0; 24],
        }
    }

    /// Checks a peer's header, copied from its page, against the handshake.
    ///
    /// # Errors
    /// [`PageError`] names the first field that differs.
    pub fn check(
        &self,
        role: Role,
        session: u64,
        lane_size: u32,
        name: ServiceName,
    ) -> Result<(), PageError> {
        check_start((self.magic, self.layout), (Self::MAGIC, Self::LAYOUT))?;
        check_fields(&[
            ("role", self.role.get() == role as u32),
            ("session", self.session.get() == session),
            ("lane size", self.lane_size.get() == lane_size),
            ("service name", self.name == name.to_field()),
        ])
    }

    /// Returns the process id that the page's owner wrote: for display, never for a decision.
    pub fn pid(&self) -> u32 {
        self.pid.get()
    }

    /// Returns the creation time that the page's owner wrote, in nanoseconds since the Unix epoch: distinguishes
    /// sessions for display.
    pub fn created(&self) -> u64 {
        self.created.get()
    }

    /// Returns the role and service of the page for an observer; `None` when it is not a page of this layout.
    pub fn owner(&self) -> Option<(Role, ServiceName)> {
        check_start((self.magic, self.layout), (Self::MAGIC, Self::LAYOUT)).ok()?;
        let role = try_transmute!(self.role.get()).ok()?;
        Some((role, ServiceName::from_field(&self.name).ok()?))
    }

    /// Returns the session's number.
    pub fn session(&self) -> u64 {
        self.session.get()
    }
}

impl PageState {
    /// Returns the `state` word for this state and reason.
    pub fn word(self, reason: Option<CloseReason>) -> u64 {
        self as u64 | reason.map_or(0, |r| r as u64) << 32
    }

    /// Parses a peer's `state` word; `None` when it is invalid.
    pub fn parse(word: u64) -> Option<(Self, Option<CloseReason>)> {
        let state = try_transmute!(u32::try_from(word & 0xffff_ffff).ok()?).ok()?;
        let reason = match word >> 32 {
            0 => None,
            code => Some(CloseReason::parse(code)?),
        };
        Some((state, reason))
    }
}

impl CloseReason {
    /// Parses a peer's reason; `None` when it is invalid.
    pub fn parse(code: u64) -> Option<Self> {
        u32::try_from(code).ok().and_then(|code| try_transmute!(code).ok())
    }
}

/// Checks how a page, a board or a broadcast ring begins: with its magic and this version's layout.
pub(super) fn check_start(
    (magic, layout): ([u8; 8], U32),
    (expected_magic, expected): ([u8; 8], u32),
) -> Result<(), PageError> {
    if magic != expected_magic {
        return Err(PageError::Magic);
    }
    match layout.get() {
        found if found == expected => Ok(()),
        found => Err(PageError::Layout { found, expected }),
    }
}

/// Returns the first invalid field.
pub(super) fn check_fields(fields: &[(&'static str, bool)]) -> Result<(), PageError> {
    match fields.iter().find(|(_, is_right)| !is_right) {
        Some((field, _)) => Err(PageError::Mismatch { field }),
        None => Ok(()),
    }
}
