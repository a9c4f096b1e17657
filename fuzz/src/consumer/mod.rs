//! The whole consumer of a peer's memory: each value that one end loads from it comes from the input.
//!
//! The first bytes select the end and the agreed limits; then come operations, and in between the values of the
//! peer's memory at each load. A value is never repeated just because it was loaded before: each load takes a new
//! one. What the end does is watched from both sides of its memory, and compared with the rules of `docs/wire.md`: so
//! an undetected violation, a value that is used unchecked, and a byte that is read a second time end the run,
//! whether or not they would have done harm this time.

mod client;
mod harness;
mod reading;
mod server;
mod writing;

use bellwire_core::lane::LaneTerms;
use bellwire_core::{Geometry, Limits};

use crate::script::Script;
use harness::World;

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
    let world = World::new(script, terms, terms);
    if which & 1 == 0 {
        client::run(&world, terms, which & 4 != 0);
    } else {
        server::run(&world, terms);
    }
}
