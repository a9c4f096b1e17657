use super::layout::Item;
use super::{Options, Orchestrator};

/// A checked item in private memory, in the machine's own byte order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) name_hash: u64,
    /// Where the path starts in the strings; the name follows it.
    pub(super) start: u32,
    /// The next row with the same hash, in ascending order of the paths, or [`Row::END`].
    pub(super) next: u32,
    pub(super) path_len: u16,
    pub(super) name_len: u16,
    pub(super) options: Options,
    pub(super) enabled: bool,
    pub(super) orchestrator: Orchestrator,
}

impl Row {
    /// No row. A snapshot holds far fewer.
    pub(super) const END: u32 = u32::MAX;

    /// Returns whether `item` is equal except for the location of its texts.
    pub(super) fn is(&self, item: &Item) -> bool {
        self.id == item.id.get()
            && self.name_hash == item.name_hash.get()
            && self.path_len == item.path_len.get()
            && self.name_len == item.name_len.get()
            && self.options.bits() == item.options.get()
            && u8::from(self.enabled) == item.enabled
            && self.orchestrator.code() == item.orchestrator
            && item.reserved == [0; 14]
    }
}
