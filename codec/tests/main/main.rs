//! Messages by derive, by Protocol Buffers and by serde: what a peer may send, and the same in C.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "all of this is tests"
)]

mod c;
mod fixed;
#[cfg(feature = "postcard")]
mod postcard;
#[cfg(feature = "prost")]
mod proto;
mod services;
