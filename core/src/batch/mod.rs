//! Many items of one service in one message: assembled in place, read in place, without allocation per item.
//!
//! ```text
//! 0x00  count    u32  items
//! 0x04  stride   u32  the length of each item in bytes, if all have the same and are not empty; else 0
//! 0x08  flags    u32  1: ends follow the items; 2: statuses follow them
//! 0x0c  0        u32
//! 0x10  items, one after the other
//!       ends     u32 × count, with flag 1: where each item ends, in bytes from the first item's start
//!       statuses u8 × count, with flag 2: a Status each; without it, all are Ok
//! ```
//!
//! A batch without ends whose stride is 0 has no items: every item takes at least one byte of the message, so a short
//! message cannot claim many items. The tables follow the items, so that items are written at their final place.

mod builder;
mod view;

pub use builder::{BatchBuilder, ItemTooLarge};
pub use view::{BatchError, BatchView, Item, Items};

/// The length of a batch's head in bytes.
pub const BATCH_HEAD: usize = 16;
/// The flag of a batch whose items differ in length.
const ENDS: u32 = 1;
/// The flag of a batch in which an item has another status than Ok.
const STATUSES: u32 = 2;
