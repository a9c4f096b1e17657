//! The bytes that cross between processes. `docs/wire.md` is the reference for every offset; its tests and the
//! assertions here keep both consistent. All integers are little-endian.

mod board;
mod broadcast;
mod control;
mod counters;
mod page;
mod record;
mod samples;
mod seen;

pub use board::{BOARD_SIZE, BoardHeader, BoardState, BoardWord};
pub use broadcast::{
    BROADCAST_HEADER, BROADCAST_RECORDS, BroadcastHeader, BroadcastKind, BroadcastRecord,
    BroadcastRing, BroadcastWord,
};
pub use control::{
    Attachment, ControlError, ControlKind, Doorbell, Hello, Join, MAX_CONTROL, Message, PROTOCOL,
    Ready, Refuse, RefuseCode, STATS_VERSION, Versions, Welcome,
};
pub use counters::{COUNTERS_AT, COUNTERS_LAYOUT, Counter, LATENCY_AT, LATENCY_BUCKETS, Latency};
pub use page::{
    CloseReason, LIFE_OFFSET, LIFE_SIZE, PAGE_SIZE, PageError, PageHeader, PageState, Role,
};
pub(crate) use record::HEADER_U32;
pub use record::{
    ALIGN, BATCH, HEADER, Header, Kind, MORE, ONE_WAY, SWITCH_RESERVE, Status, record_len,
};
pub use samples::{
    SAMPLE_SIZE, SAMPLE_SLOTS, SAMPLES, SAMPLES_AT, Stamps, sample_offset, sample_slot,
};
pub use seen::{Counters, SeenPage};
