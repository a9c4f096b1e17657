use super::layout::Item;
use super::writer::narrow;
use super::{Options, Orchestrator};

/// A checked item in private memory, in the machine's own byte order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) name_hash: u64,
    /// Where the path starts in the strings; the name and the labels follow it.
    pub(super) start: u32,
    /// The slot of the next row with the same hash, in ascending order of the paths, or [`Row::END`].
    pub(super) next: u32,
    /// Where its labels start in the pairs.
    pub(super) first_label: u32,
    pub(super) path_len: u16,
    pub(super) name_len: u16,
    pub(super) options: Options,
    pub(super) enabled: bool,
    pub(super) orchestrator: Orchestrator,
    pub(super) labels: u8,
}

impl Row {
    /// No row. A snapshot holds far fewer.
    pub(super) const END: u32 = u32::MAX;

    /// Returns the item whose texts start at `offset`.
    pub(super) fn item(&self, offset: usize) -> Item {
        Item {
            id: self.id.into(),
            name_hash: self.name_hash.into(),
            path_offset: narrow(offset).into(),
            name_offset: narrow(offset + usize::from(self.path_len)).into(),
            path_len: self.path_len.into(),
            name_len: self.name_len.into(),
            options: self.options.bits().into(),
            enabled: self.enabled.into(),
            orchestrator: self.orchestrator.code(),
            labels: self.labels,
            reserved: [0; 13],
        }
    }

    /// Returns whether `item` is equal except for the location of its texts and labels.
    pub(super) fn is(&self, item: &Item) -> bool {
        self.id == item.id.get()
            && self.name_hash == item.name_hash.get()
            && self.path_len == item.path_len.get()
            && self.name_len == item.name_len.get()
            && self.options.bits() == item.options.get()
            && u8::from(self.enabled) == item.enabled
            && self.orchestrator.code() == item.orchestrator
            && self.labels == item.labels
            && item.reserved == [0; 13]
    }
}
