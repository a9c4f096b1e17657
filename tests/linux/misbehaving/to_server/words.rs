//! Words of the client's own page.

use bellwire::{Geometry, LaneConfig, ServerConfig};
use bellwire_core::sync::Ordering;
use bellwire_core::{Bell, OwnMemory, PeerMemory, Port, Word};

use super::{is_closed, is_found, request};
use crate::hostile::client::poisons_in;
use crate::misbehaving::records::{HONEST, REACH};
use crate::support::guard::until;
use crate::support::rogue::RogueSession;
use crate::support::test_server::TestServer;

tails!();

rows! { flickering: flickers {
    a_tail_that_goes_back_between_two_reads("went back", [HONEST, HONEST - 16]);
    a_tail_that_jumps_between_two_reads("is more than its lane", [HONEST, !15]);
    a_tail_that_is_askew_between_two_reads("position 36", [HONEST, HONEST + 4]);
} }

rows! { heads: head {
    one_record_past_the_published_tail("is past", |published| published + 16);
    one_byte_past_the_published_tail("is past", |published| published + 1);
    whose_low_half_is_right("is past", |published| 1 << 32 | published);
    with_only_a_sign("is past", |_| 1 << 63);
    at_the_end_of_numbers("is past", |_| u64::MAX);
    at_the_last_record("is past", |_| u64::MAX - 15);
    askew("position 24", |_| 24);
} }

rows! { heads_that_go_back: two_heads {
    one_record("went back", 32, 16);
    to_nothing("went back", 32, 0);
    askew("went back", 32, 31);
} }

/// The tail alternates between the two, endlessly.
#[track_caller]
fn flickers(part: &str, values: [u64; 2]) {
    is_found(part, |rogue| {
        until("one of the reads is noticed", || {
            for value in values {
                rogue.set(Word::Tail, value);
            }
            is_closed(rogue)
        });
    });
}

/// A server whose lane is full checks the client's Head.
#[track_caller]
fn head(part: &str, violation: impl Fn(u64) -> u64) {
    fills(part, 0, |rogue| violation(rogue.link.peer().load(Word::Tail, Ordering::Acquire)));
}

/// It sees one value first, and then the other.
#[track_caller]
fn two_heads(part: &str, first: u64, then: u64) {
    fills(part, first, |_| then);
}

/// Requests more than a full lane holds, and stores a false Head when the server waits for room.
#[track_caller]
fn fills(part: &str, first: u64, violation: impl FnOnce(&RogueSession) -> u64) {
    let lane = Geometry::new(4096).unwrap();
    let config = ServerConfig::default().lane(LaneConfig::default().size(lane));
    let caught = poisons_in(TestServer::with(config), |rogue| {
        rogue.link.own().store(Word::Head, first, Ordering::Release);
        for id in 2..16 {
            rogue.write(request(id, 1000), &[0; 1000]);
        }
        rogue.publish();
        let event_index = || rogue.link.peer().load(Word::WantSpace, Ordering::Acquire);
        until("the server waits for room", || event_index() != u64::MAX);
        rogue.link.own().store(Word::Head, violation(rogue), Ordering::Release);
        rogue.link.ring(Bell::Space);
    });
    caught.is(part);
}
