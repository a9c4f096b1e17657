//! Tests of the tracer, attached to processes with deliberate delays.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod ends;
mod export;
mod false_times;
mod life;
mod namespaces;
mod record;
mod rights;
mod scripts;
mod stages;
mod support;
mod top;
