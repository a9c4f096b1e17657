//! Tests of the tracer, attached to processes with deliberate delays.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod answers;
mod clock;
mod deliveries;
mod ends;
mod export;
mod false_times;
mod life;
mod namespaces;
mod perfetto;
mod record;
mod rights;
mod scope;
mod scripts;
mod separate;
mod slow;
mod stages;
mod support;
mod top;
