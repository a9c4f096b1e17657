//! The tracer, attached to processes whose delays are made on purpose.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod ends;
mod export;
mod life;
mod lying;
mod namespaces;
mod record;
mod rights;
mod scripts;
mod stages;
mod support;
mod top;
