//! The tracer, attached to processes whose delays are made on purpose.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod ends;
mod life;
mod stages;
mod support;
