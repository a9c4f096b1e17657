//! Records in the server's own lane.

use bellwire_core::wire::{Header, Kind, MORE, Status};

use super::{fails_with, response};

/// A record of 16 bytes, with this header.
#[track_caller]
fn is_a_lie(part: &str, header: Header) {
    fails_with(part, |rogue| rogue.put(header, &[0; 16]));
}

/// Several records, published together.
#[track_caller]
fn are_a_lie(part: &str, headers: &[Header]) {
    fails_with(part, |rogue| {
        for header in headers {
            rogue.write(*header, &vec![0; header.len.get() as usize]);
        }
        rogue.publish();
    });
}

fn empty(kind: Kind, id: u64) -> Header {
    Header::new(kind, Status::Ok, id, 0)
}

fn of_kind(kind: u8) -> Header {
    Header { kind, ..response(2, 16) }
}

fn flagged(flags: u8) -> Header {
    Header { flags, ..response(2, 16) }
}

fn with_status(kind: Kind, status: u16) -> Header {
    let mut header = empty(kind, 2);
    header.status = status.into();
    header
}

/// A part of the answer 2, and the record that follows.
#[track_caller]
fn after_a_part(part: &str, next: Header) {
    are_a_lie(part, &[response(2, 16).part(16, true), next]);
}

mod lengths {
    use super::*;

    rows! { is_a_lie {
        one_byte_beyond_what_was_published("claims 17 bytes", response(2, 17));
        as_long_as_the_lane("claims 16384 bytes", response(2, 16 << 10));
        twice_the_lane("claims 32768 bytes", response(2, 32 << 10));
        with_only_a_sign("claims 2147483648 bytes", response(2, 1 << 31));
        that_rounds_up_to_nothing("claims 4294967295 bytes", response(2, u32::MAX));
        that_overflows_with_its_header("claims 4294967280 bytes", response(2, u32::MAX - 15));
        a_pad_of_the_greatest_length("claims 4294967295", Header::new(Kind::Pad, Status::Ok, 0, u32::MAX));
        a_pad_that_ends_before_the_lane("kind 3", Header::new(Kind::Pad, Status::Ok, 0, 16));
        a_switch_with_a_payload("kind 4", Header::new(Kind::Switch, Status::Ok, 0, 16));
        an_attachment_with_a_payload("kind 5", Header::new(Kind::Attach, Status::Ok, 2, 16));
        a_close_with_a_payload("kind 7", Header { len: 16.into(), ..with_status(Kind::Close, 1) });
        a_trim_with_a_payload("kind 8", Header::new(Kind::Trim, Status::Ok, 0, 16));
        a_part_without_bytes("kind 2", response(2, 0).part(0, true));
    } }
}

mod kinds_and_flags {
    use super::*;

    rows! { is_a_lie {
        kind_zero("unknown kind 0", of_kind(0));
        the_first_kind_that_is_none("unknown kind 9", of_kind(9));
        a_kind_with_only_a_sign("unknown kind 128", of_kind(0x80));
        the_last_kind("unknown kind 255", of_kind(0xff));
        flag_1("unknown flags 0x01", flagged(0x01));
        a_batch("unknown flags 0x04", flagged(0x04));
        flag_8("unknown flags 0x08", flagged(0x08));
        flag_16("unknown flags 0x10", flagged(0x10));
        flag_32("unknown flags 0x20", flagged(0x20));
        flag_64("unknown flags 0x40", flagged(0x40));
        flag_128("unknown flags 0x80", flagged(0x80));
        more_and_another_flag("unknown flags 0x03", flagged(MORE | 1));
        all_flags("unknown flags 0xff", flagged(0xff));
        an_attachment_that_goes_on("unknown flags 0x02", Header { flags: MORE, ..empty(Kind::Attach, 2) });
        a_switch_that_goes_on("unknown flags 0x02", Header { flags: MORE, ..empty(Kind::Switch, 2) });
        a_trim_that_goes_on("unknown flags 0x02", Header { flags: MORE, ..empty(Kind::Trim, 2) });
    } }
}

mod places {
    use super::*;

    rows! { is_a_lie {
        a_request_to_a_client("kind 1", Header::new(Kind::Request, Status::Ok, 2, 16));
        a_cancellation_to_a_client("kind 6", empty(Kind::Cancel, 2));
        a_switch_to_nothing("its size is no lane's", empty(Kind::Switch, 0));
        a_switch_to_the_end_of_numbers("its size is no lane's", empty(Kind::Switch, u64::MAX));
        a_close_without_a_reason("kind 7", with_status(Kind::Close, 0));
        a_close_with_the_first_reason_that_is_none("kind 7", with_status(Kind::Close, 5));
        a_close_with_the_last_reason("kind 7", with_status(Kind::Close, u16::MAX));
        the_first_status_that_is_none("kind 2", with_status(Kind::Response, 10));
        the_last_status("kind 2", with_status(Kind::Response, u16::MAX));
        an_attachment_with_a_status_that_is_none("kind 5", with_status(Kind::Attach, 10));
    } }
}

mod ids {
    use super::*;

    rows! { are_a_lie {
        zero("request 0,", &[response(0, 0)]);
        answered_long_ago("request 1,", &[response(1, 0)]);
        never_asked("request 4,", &[response(4, 0)]);
        far_in_the_future("request 99,", &[response(99, 0)]);
        the_end_of_numbers("request 18446744073709551615,", &[response(u64::MAX, 0)]);
        with_only_a_sign("request 9223372036854775808,", &[response(1 << 63, 0)]);
        answered_twice("request 2,", &[response(2, 0), response(2, 0)]);
        answered_twice_out_of_turn("request 3,", &[response(3, 0), response(3, 0)]);
        answered_and_then_attached("request 2,", &[response(2, 0), empty(Kind::Attach, 2)]);
        attached_and_never_asked("request 77,", &[empty(Kind::Attach, 77)]);
        attached_and_not_passed("its record came without it", &[empty(Kind::Attach, 2)]);
        a_part_of_what_was_never_asked("request 50,", &[response(50, 16).part(16, true)]);
        answered_again_in_parts("request 2,", &[response(2, 0), response(2, 16).part(16, true)]);
    } }
}

mod parts {
    use super::*;

    rows! { after_a_part {
        of_another_answer("kind 2", response(3, 16).part(16, false));
        followed_by_an_attachment("kind 5", empty(Kind::Attach, 2));
        followed_by_a_trim("kind 8", empty(Kind::Trim, 0));
        followed_by_a_request("kind 1", empty(Kind::Request, 2));
        followed_by_a_part_without_bytes("kind 2", response(2, 0).part(0, true));
        followed_by_an_unknown_kind("unknown kind 77", of_kind(77));
    } }
}

pub(super) fn rows() -> Vec<&'static str> {
    let lies = [lengths::ROWS, kinds_and_flags::ROWS, places::ROWS, ids::ROWS, parts::ROWS];
    lies.concat()
}
