//! All code that reads a peer's memory: each value that one end loads from it comes from the input.
//!
//! The first bytes select the end and the agreed limits; operations follow, each with the values that it loads from the
//! peer's memory. Each load takes a new value, even of a word that was loaded before. The loads and stores of the end are
//! checked against the rules of `docs/wire.md`: an undetected violation, a value that is used without a check, or a byte
//! that is read twice fails the run, whether or not it did harm this time.

mod client;
mod harness;
mod reading;
mod server;
mod writing;

use bellwire_core::lane::LaneTerms;
use bellwire_core::{Geometry, Limits};

use crate::script::Script;
use harness::Fixture;

/// Runs one end of a session against a peer whose memory may hold any value at any time.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    let which = script.byte();
    let lane = Geometry::SMALLEST;
    let terms = if which & 2 == 0 {
        let limits = Limits {
            max_message: 40_000,
            max_lane: Geometry::new(32 << 10).expect("a power of two"),
            max_shared_bytes_per_session: 200_000,
        };
        LaneTerms::agreed(lane, lane, &limits, &limits)
    } else {
        LaneTerms::fixed(lane)
    };
    let fixture = Fixture::new(script, terms, terms);
    if which & 1 == 0 {
        client::run(&fixture, terms, which & 4 != 0);
    } else {
        server::run(&fixture, terms);
    }
}
