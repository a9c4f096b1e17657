use core::fmt;

use super::TextFault;

/// Why a snapshot is invalid: which item, which byte, and what is wrong there.
///
/// It is always the provider's fault. A reader keeps its last good snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// The item's place in the table, from 0; `None` if the fault is in the header or between items.
    pub item: Option<u32>,
    /// The offset of the faulty field or text from the start of the snapshot, in bytes.
    pub offset: usize,
    /// What is wrong.
    pub why: MalformedKind,
}

/// What is wrong with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedKind {
    /// It is shorter than a header.
    #[error("{len} bytes are less than a header")]
    Short {
        /// The length found, in bytes.
        len: usize,
    },
    /// It is longer than [`MAX_LEN`](super::MAX_LEN).
    #[error("{len} bytes are above the limit")]
    TooLong {
        /// The length found, in bytes.
        len: usize,
    },
    /// The first eight bytes are not [`MAGIC`](super::MAGIC).
    #[error("it does not start with the magic of a cgroups snapshot")]
    Magic,
    /// Its layout is not [`LAYOUT`](super::LAYOUT).
    #[error("it has layout {found}, which this version does not read")]
    Layout {
        /// The layout found.
        found: u32,
    },
    /// Its header states a length other than its own.
    #[error("the header says {said} bytes, but there are {len}")]
    Length {
        /// The stated length.
        said: u32,
        /// The length found, in bytes.
        len: usize,
    },
    /// A header field has a value that the length and the item count do not allow.
    #[error("{field} is {found}, and must be {expected}")]
    Geometry {
        /// The field's name in `docs/cgroups-snapshot.md`.
        field: &'static str,
        /// The value found.
        found: u32,
        /// The only value allowed.
        expected: u64,
    },
    /// The item count is above [`MAX_ITEMS`](super::MAX_ITEMS), or the table would not fit.
    #[error("{count} items do not fit")]
    ItemCount {
        /// The count found.
        count: u32,
    },
    /// The cgroup mode is not a known one.
    #[error("the cgroup mode {found} is unknown")]
    Mode {
        /// The number found.
        found: u8,
    },
    /// A reserved byte is not zero.
    #[error("a reserved byte is not zero")]
    Reserved,
    /// `pair_count` is not the number of hierarchies and of all labels, or the table would not fit.
    #[error("{found} pairs where {expected} were expected")]
    PairCount {
        /// The count found.
        found: u32,
        /// The number of hierarchies and of labels, or of pairs that fit.
        expected: u64,
    },
    /// A path or name does not start where the text before it ends: they would overlap or leave a gap.
    #[error("a text is at {found} of the string area, and must be at {expected}")]
    Offset {
        /// The offset found, from the start of the string area, in bytes.
        found: u32,
        /// The only offset allowed.
        expected: usize,
    },
    /// A path or name ends past the string area.
    #[error("a text of {len} bytes ends past the string area")]
    PastEnd {
        /// The length found, in bytes.
        len: u16,
    },
    /// The string area continues after the last item's texts.
    #[error("{extra} bytes of the string area belong to no item")]
    Leftover {
        /// How many bytes.
        extra: usize,
    },
    /// A path or name is not UTF-8.
    #[error("a text is not UTF-8")]
    NotUtf8,
    /// A path breaks a rule.
    #[error("invalid path: {0}")]
    Path(TextFault),
    /// A name breaks a rule.
    #[error("invalid name: {0}")]
    Name(TextFault),
    /// A label or a hierarchy breaks a rule.
    #[error("invalid label or hierarchy: {0}")]
    Label(TextFault),
    /// The paths are not in ascending order: this one is below the one before it, or the same.
    #[error("the path does not sort after the one before it")]
    PathOrder,
    /// `name_hash` is not the hash of the name.
    #[error("the name's hash is {found:#018x}, and must be {expected:#018x}")]
    NameHash {
        /// The hash found.
        found: u64,
        /// The name's hash.
        expected: u64,
    },
    /// The id is 0.
    #[error("the id is 0")]
    ZeroId,
    /// Two items have the same id.
    #[error("the id {id} is also that of item {other}")]
    DuplicateId {
        /// The id found.
        id: u64,
        /// The other item's place in the table.
        other: u32,
    },
    /// An option bit is not a defined one.
    #[error("the options {found:#x} have an undefined bit")]
    Options {
        /// The bits found.
        found: u32,
    },
    /// `enabled` is neither 0 nor 1.
    #[error("enabled is {found}, neither 0 nor 1")]
    Enabled {
        /// The byte found.
        found: u8,
    },
    /// The orchestrator is not a known one.
    #[error("the orchestrator {found} is unknown")]
    Orchestrator {
        /// The number found.
        found: u8,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed cgroups snapshot at byte {}", self.offset)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl core::error::Error for Malformed {}
