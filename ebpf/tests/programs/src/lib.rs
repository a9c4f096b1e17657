//! A client as a shared library: one call from C does what the program `traced-client` does.
#![allow(unsafe_code, reason = "a function that C finds by its name")]

mod client;
mod nap;

/// Runs the client until the end of its input. Returns 0 for success.
#[unsafe(no_mangle)]
pub extern "C" fn run_client() -> i32 {
    i32::from(client::run().is_err())
}
