//! The whole consumer of a peer's memory: each value that one end loads from it comes from the input.
//!
//! The first bytes say which end it is and what it agreed to; then come operations, and in between what the peer's
//! memory says at each load. No value is said twice because it was said before: loading one again is
//! loading another. What the end does is watched from both sides of its memory, and compared with the rules of
//! `docs/wire.md`: so a lie that is not found out, a value that is used and was not checked, and a byte that is read
//! a second time end the run, whether or not they would have done harm this time.

mod client;
mod reading;
mod rig;
mod server;
mod writing;

use bellwire_core::lane::LaneTerms;
use bellwire_core::{Geometry, Limits};

use crate::script::Script;
use rig::World;

/// Runs one end of a session against a peer that may say anything at any time.
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
