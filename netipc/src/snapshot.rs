//! The payload of `cgroups-snapshot`.

use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Malformed;
use crate::bytes::{Reader, TableWriter, put_text, word};

/// One cgroup, as netipc describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Netdata's options: [`SYSTEM_SERVICE`], [`UNIFIED`].
    pub options: u32,
    /// Whether there is something to collect.
    pub enabled: bool,
    /// The name, which identifies it, together with its [`simple_hash`].
    pub name: &'a str,
    /// A path.
    pub path: &'a str,
}

/// The option of a systemd service below `/system.slice`.
pub const SYSTEM_SERVICE: u32 = 2;
/// The option of a cgroup of the unified hierarchy.
pub const UNIFIED: u32 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    layout: U16,
    flags: U16,
    items: U32,
    systemd: U32,
    zero: U32,
    generation: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ItemHead {
    layout: U16,
    flags: U16,
    hash: U32,
    options: U32,
    enabled: U32,
    name: U32,
    name_len: U32,
    path: U32,
    path_len: U32,
}

/// The request of a snapshot.
pub const REQUEST: [u8; 4] = {
    let [a, b] = 1_u16.to_ne_bytes();
    [a, b, 0, 0]
};

const HEAD: usize = size_of::<Head>();
const ITEM_HEAD: u32 = 32;
const _: () = assert!(HEAD == 24 && size_of::<ItemHead>() == ITEM_HEAD as usize);

/// Checks the payload of a request.
///
/// # Errors
/// [`Malformed`]: it is another one.
pub fn check_request(payload: &[u8]) -> Result<(), Malformed> {
    if payload.get(..4) == Some(&REQUEST) {
        return Ok(());
    }
    Err(Malformed { at: 0, len: payload.len(), why: "no request of layout 1" })
}

/// Returns the hash of a name that an item carries: FNV-1, 32 bits, as Netdata's `simple_hash`.
pub fn simple_hash(name: &str) -> u32 {
    let add = |hash: u32, byte: u8| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte);
    name.bytes().fold(0x811c_9dc5, add)
}

/// Writes a snapshot.
pub fn write<'a>(
    items: impl ExactSizeIterator<Item = Item<'a>>,
    systemd: bool,
    generation: u64,
) -> Vec<u8> {
    let count = items.len();
    let head = Head {
        layout: 1.into(),
        flags: 0.into(),
        items: word(count).into(),
        systemd: u32::from(systemd).into(),
        zero: 0.into(),
        generation: generation.into(),
    };
    let mut payload = head.as_bytes().to_vec();
    let mut table = TableWriter::begin(&mut payload, count);
    for item in items.take(count) {
        let (name_len, path_len) = (word(item.name.len()), word(item.path.len()));
        let head = ItemHead {
            layout: 1.into(),
            flags: 0.into(),
            hash: simple_hash(item.name).into(),
            options: item.options.into(),
            enabled: u32::from(item.enabled).into(),
            name: ITEM_HEAD.into(),
            name_len: name_len.into(),
            path: (ITEM_HEAD + name_len + 1).into(),
            path_len: path_len.into(),
        };
        table.item(|into| {
            into.extend_from_slice(head.as_bytes());
            put_text(into, item.name.as_bytes());
            put_text(into, item.path.as_bytes());
        });
    }
    payload
}

/// A snapshot that was received, and checked as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The provider's number of the snapshot.
    pub generation: u64,
    /// Whether systemd's cgroups are in it.
    pub systemd: bool,
    /// The cgroups, in the provider's order.
    pub items: Vec<Item<'a>>,
}

impl<'a> View<'a> {
    /// Checks all of a payload.
    ///
    /// # Errors
    /// [`Malformed`] says where it breaks which rule.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let reader = Reader(payload);
        let head: Head = reader.head()?;
        if head.layout.get() != 1 || head.flags.get() != 0 || head.zero.get() != 0 {
            return Err(reader.malformed(0, "another layout, or reserved bits"));
        }
        let items = reader.table(HEAD, head.items.get())?;
        let items = items.into_iter().map(item).collect::<Result<_, _>>()?;
        Ok(Self { generation: head.generation.get(), systemd: head.systemd.get() != 0, items })
    }
}

fn item(bytes: &[u8]) -> Result<Item<'_>, Malformed> {
    let reader = Reader(bytes);
    let head: ItemHead = reader.head()?;
    if head.layout.get() != 1 || head.flags.get() != 0 {
        return Err(reader.malformed(0, "another layout of an item"));
    }
    let [(name, name_len), (path, path_len)] =
        [(head.name, head.name_len), (head.path, head.path_len)]
            .map(|(at, len)| (at.get(), len.get()));
    if name < ITEM_HEAD || path < ITEM_HEAD {
        return Err(reader.malformed(16, "a text in the head"));
    }
    let (name_text, path_text) = (reader.text(name, name_len)?, reader.text(path, path_len)?);
    // Both are inside, so nothing of this overflows.
    if name < path + path_len + 1 && path < name + name_len + 1 {
        return Err(reader.malformed(16, "texts that overlap"));
    }
    let (options, enabled) = (head.options.get(), head.enabled.get() != 0);
    Ok(Item { options, enabled, name: name_text, path: path_text })
}
