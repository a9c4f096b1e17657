//! The vectors in `docs/wire/vectors/`, made by core itself: `cargo run -p bellwire-vectors` writes them, and the tests compare
//! the files with what is made now, and run what the files say against core.
//!
//! [`files`] lists them. A new mechanism of the wire gets a function here that returns [`Case`]s, and one that runs them.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a tool of this repository that cannot go on says so by panicking"
)]

mod batches;
mod broadcast;
mod control;
mod lanes;
mod memory;
mod records;
mod session;
mod text;

pub use text::{Case, number, parse, unhex};

/// A file of vectors.
pub struct File {
    pub name: &'static str,
    /// What it holds, for its first line.
    about: &'static str,
    pub cases: Vec<Case>,
    /// Runs one case of the file against core, and panics unless core does what the case says.
    pub run: fn(&Case),
}

impl File {
    pub fn text(&self) -> String {
        text::write(self.about, &self.cases)
    }
}

/// All files, as core makes them now.
pub fn files() -> Vec<File> {
    let file = |name, about, cases, run: fn(&Case)| File { name, about, cases, run };
    vec![
        file("control.txt", "Control messages.", control::valid(), control::run),
        file("control-bad.txt", "Messages to refuse.", control::bad(), control::run_bad),
        file("memory.txt", "Constant headers of pages and boards.", memory::valid(), memory::run),
        file("memory-bad.txt", "Headers to refuse.", memory::bad(), memory::run),
        file("records.txt", "Records.", records::valid(), records::run),
        file("batches.txt", "Batches.", batches::valid(), batches::run),
        file("batches-bad.txt", "Bytes that are no batch.", batches::bad(), batches::run_bad),
        file("broadcast.txt", "Broadcast rings.", broadcast::valid(), broadcast::run),
        file("broadcast-bad.txt", "Rings that poison.", broadcast::bad(), broadcast::run_bad),
        file("lanes-bad.txt", "Words and records that poison.", lanes::bad(), lanes::run),
        file("session.txt", "A session, step by step.", session::steps(), |_| {}),
    ]
}
