//! Memory that a client passes during a session. The server reports its fault, and closes.

use bellwire_core::{Geometry, Word};
use rustix::fs::SealFlags;
use zerocopy::IntoBytes;

use super::{is_found, request};
use crate::misbehaving::impostor;
use crate::misbehaving::passing::Passing;
use crate::misbehaving::passing::why::*;
use crate::support::memory::{Draft, SEALS};
use crate::support::rogue::Rogue;
use crate::support::test_server::TestServer;

passings!();

#[test]
fn an_honest_lane_or_message_of_the_same_making_is_taken() {
    // Otherwise the other tests would prove nothing.
    let first = request(2, 0);
    let mut lane = Passing::lane();
    lane.memory.bytes = first.as_bytes().to_vec();
    for (passing, answered) in [(lane, 16), (Passing::message(), 16 + 5008)] {
        let fixture = TestServer::open();
        let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
        passing.send(&mut rogue);
        rogue.sees(Word::Tail, answered);
        drop(rogue);
        let stats = fixture.close();
        assert_eq!((stats.poisoned, stats.answered), (0, 1));
    }
}
