//! Words of the server's own page.

use bellwire::PeerFault;
use bellwire_core::{Geometry, Word};

use super::fails;

/// The size of the honest answer before each violation.
const HONEST: u64 = 32;
const REACH: u64 = Geometry::DEFAULT.size() + 4 * Geometry::LARGE.size();

const BACK: fn(PeerFault) -> bool = |fault| matches!(fault, PeerFault::TailWentBack { .. });
const FAR: fn(PeerFault) -> bool = |fault| matches!(fault, PeerFault::TailTooFar { .. });
const ASKEW: fn(PeerFault) -> bool = |fault| matches!(fault, PeerFault::Misaligned { .. });

rows! { tail {
    a_tail_one_record_back(HONEST - 16, BACK);
    a_tail_at_nothing(0, BACK);
    a_tail_back_and_askew(HONEST - 1, BACK);
    a_tail_one_byte_ahead(HONEST + 1, ASKEW);
    a_tail_half_a_header_ahead(HONEST + 8, ASKEW);
    a_tail_one_byte_short_of_a_header(HONEST + 15, ASKEW);
    a_tail_above_all_epochs(HONEST + REACH + 16, FAR);
    a_tail_whose_low_half_is_right(1 << 32 | HONEST, FAR);
    a_tail_with_only_a_sign(1 << 63, FAR);
    a_tail_at_the_last_record(u64::MAX - 15, FAR);
    a_tail_at_the_end_of_numbers(u64::MAX, FAR);
} }

#[track_caller]
fn tail(value: u64, is_expected: fn(PeerFault) -> bool) {
    fails(|rogue| rogue.set(Word::Tail, value), is_expected);
}
