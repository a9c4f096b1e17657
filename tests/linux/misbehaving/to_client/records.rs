//! Records in the server's own lane.

use bellwire_core::wire::{Header, Kind, MORE, Status};

use super::{is_found, response};
use crate::misbehaving::records::{empty, with_status, write_all};

records!(response, "2");

// What only a client receives, or finds.
rows! { to_a_client: is_a_violation {
    a_batch("unknown flags 0x04", flagged(0x04));
    a_request_to_a_client("kind 1", Header::new(Kind::Request, Status::Ok, 2, 16));
    a_cancellation_to_a_client("kind 6", empty(Kind::Cancel, 2));
    the_first_status_that_is_none("kind 2", with_status(Kind::Response, 10));
    the_last_status("kind 2", with_status(Kind::Response, u16::MAX));
    an_attachment_with_a_status_that_is_none("kind 5", with_status(Kind::Attach, 10));
} }

rows! { ids: are_a_violation {
    zero("request 0,", &[response(0, 0)]);
    answered_long_ago("request 1,", &[response(1, 0)]);
    of_an_unknown_request("request 4,", &[response(4, 0)]);
    far_in_the_future("request 99,", &[response(99, 0)]);
    the_end_of_numbers("request 18446744073709551615,", &[response(u64::MAX, 0)]);
    with_only_a_sign("request 9223372036854775808,", &[response(1 << 63, 0)]);
    answered_twice("request 2,", &[response(2, 0), response(2, 0)]);
    answered_twice_out_of_turn("request 3,", &[response(3, 0), response(3, 0)]);
    answered_and_then_attached("request 2,", &[response(2, 0), empty(Kind::Attach, 2)]);
    attached_for_an_unknown_request("request 77,", &[empty(Kind::Attach, 77)]);
    attached_and_not_passed("its record came without it", &[empty(Kind::Attach, 2)]);
    a_part_of_an_answer_to_no_request("request 50,", &[response(50, 16).part(16, true)]);
    answered_again_in_parts("request 2,", &[response(2, 0), response(2, 16).part(16, true)]);
} }

rows! { parts_to_a_client: after_a_part {
    followed_by_a_request("kind 1", empty(Kind::Request, 2));
} }
