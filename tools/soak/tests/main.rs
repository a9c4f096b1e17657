//! Tests of the soak itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod runs;
