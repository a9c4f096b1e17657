//! Words of the client's own page.

use bellwire::{Geometry, LaneConfig, ServerConfig};
use bellwire_core::sync::Ordering;
use bellwire_core::{Bell, OwnMemory, PeerMemory, Port, Word};

use super::{is_closed, poisons, request};
use crate::hostile::client::poisons_in;
use crate::support::guard::until;
use crate::support::rogue::RogueSession;
use crate::support::test_server::TestServer;

/// The size of the honest record before each violation.
const HONEST: u64 = 32;
/// How far a tail may be ahead: the lane, and four of the largest that was agreed.
const REACH: u64 = Geometry::DEFAULT.size() + 4 * Geometry::LARGE.size();

#[track_caller]
fn tail(value: u64) {
    poisons(|rogue| rogue.set(Word::Tail, value));
}

rows! { act {
    a_tail_one_record_back(|| tail(HONEST - 16));
    a_tail_at_nothing(|| tail(0));
    a_tail_back_and_askew(|| tail(HONEST - 1));
    a_tail_one_byte_ahead(|| tail(HONEST + 1));
    a_tail_half_a_header_ahead(|| tail(HONEST + 8));
    a_tail_one_byte_short_of_a_header(|| tail(HONEST + 15));
    a_tail_above_all_epochs(|| tail(HONEST + REACH + 16));
    a_tail_above_all_epochs_and_askew(|| tail(HONEST + REACH + 1));
    a_tail_whose_low_half_is_right(|| tail(1 << 32 | HONEST));
    a_tail_with_only_a_sign(|| tail(1 << 63));
    a_tail_at_the_last_record(|| tail(u64::MAX - 15));
    a_tail_at_the_end_of_numbers(|| tail(u64::MAX));
    a_tail_minus_one_record(|| tail(HONEST.wrapping_sub(48)));
    a_tail_that_goes_back_between_two_reads(|| flickers(Word::Tail, [HONEST, HONEST - 16]));
    a_tail_that_jumps_between_two_reads(|| flickers(Word::Tail, [HONEST, !15]));
    a_tail_that_is_askew_between_two_reads(|| flickers(Word::Tail, [HONEST, HONEST + 4]));
    a_head_one_record_past_what_was_published(|| head(|published| published + 16));
    a_head_one_byte_past_what_was_published(|| head(|published| published + 1));
    a_head_whose_low_half_is_right(|| head(|published| 1 << 32 | published));
    a_head_with_only_a_sign(|| head(|_| 1 << 63));
    a_head_at_the_end_of_numbers(|| head(|_| u64::MAX));
    a_head_at_the_last_record(|| head(|_| u64::MAX - 15));
    a_head_askew(|| head(|_| 24));
    a_head_that_goes_back(|| two_heads(32, 16));
    a_head_that_goes_back_to_nothing(|| two_heads(32, 0));
    a_head_that_goes_back_askew(|| two_heads(32, 31));
} }

fn act(tell: impl FnOnce()) {
    tell();
}

/// The word alternates between the two, endlessly.
#[track_caller]
fn flickers(word: Word, values: [u64; 2]) {
    poisons(|rogue| {
        until("one of the reads is noticed", || {
            for value in values {
                rogue.set(word, value);
            }
            is_closed(rogue)
        });
    });
}

/// A server whose lane is full checks the client's Head.
#[track_caller]
fn head(lie: impl Fn(u64) -> u64) {
    fills(0, |rogue| lie(rogue.link.peer().load(Word::Tail, Ordering::Acquire)));
}

/// It sees one value first, and then the other.
#[track_caller]
fn two_heads(first: u64, then: u64) {
    fills(first, |_| then);
}

/// Requests more than a full lane holds, and stores a false Head when the server waits for room.
#[track_caller]
fn fills(first: u64, lie: impl FnOnce(&RogueSession) -> u64) {
    let lane = Geometry::new(4096).unwrap();
    let config = ServerConfig::default().lane(LaneConfig::default().size(lane));
    poisons_in(TestServer::with(config), |rogue| {
        rogue.link.own().store(Word::Head, first, Ordering::Release);
        for id in 2..16 {
            rogue.write(request(id, 1000), &[0; 1000]);
        }
        rogue.publish();
        let event_index = || rogue.link.peer().load(Word::WantSpace, Ordering::Acquire);
        until("the server waits for room", || event_index() != u64::MAX);
        rogue.link.own().store(Word::Head, lie(rogue), Ordering::Release);
        rogue.link.ring(Bell::Space);
    });
}
