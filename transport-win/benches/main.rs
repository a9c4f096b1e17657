//! Sessions over sections next to what Windows has by itself: two events, and a named pipe.
//!
//! `cargo bench -p bellwire-win` measures all of it; with a word, the comparisons whose names have that word; with
//! `quick`, only whether a hot call is as much faster than the pipe as it should be, in a few seconds. The other end is
//! always another process. Under Wine, whose server has a part in every wait and every pipe, the figures say that
//! nothing is wrong, and not how fast Windows is.
#![cfg_attr(
    windows,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::cast_precision_loss,
        reason = "a bench that cannot go on says so by panicking"
    )
)]

#[cfg(windows)]
mod comparisons;
#[cfg(windows)]
mod event;
#[cfg(windows)]
mod peer;
#[cfg(windows)]
mod pipe;
#[cfg(windows)]
mod rounds;
#[cfg(windows)]
mod session;

#[cfg(windows)]
fn main() -> std::process::ExitCode {
    peer::main_if_peer().unwrap_or_else(comparisons::main)
}

#[cfg(not(windows))]
fn main() {
    println!("this bench is for Windows, or for Wine: see docs/windows.md");
}
