//! Records and tails that no honest peer writes, for either end, and the name of the fault of each.

use bellwire_core::Geometry;
use bellwire_core::wire::{Header, Kind, Status};

use crate::support::rogue::RogueSession;

/// The size of the honest record before each violation.
pub(super) const HONEST: u64 = 32;
/// How far a tail may be ahead: the lane, and four of the largest that was agreed.
pub(super) const REACH: u64 = Geometry::DEFAULT.size() + 4 * Geometry::LARGE.size();

pub(super) fn empty(kind: Kind, id: u64) -> Header {
    Header::new(kind, Status::Ok, id, 0)
}

pub(super) fn with_status(kind: Kind, status: u16) -> Header {
    let mut header = empty(kind, 2);
    header.status = status.into();
    header
}

/// Writes these records, published together.
pub(super) fn write_all(rogue: &mut RogueSession, headers: &[Header]) {
    for header in headers {
        rogue.write(*header, &vec![0; header.len.get() as usize]);
    }
    rogue.publish();
}

/// The tables of an end that writes messages by `$message(ID, LEN)`, which are records of `$kind`, and whose peer notices
/// `is_found(PART, VIOLATION)`.
macro_rules! records {
    ($message:ident, $kind:literal) => {
        /// A record of 16 bytes, with this header.
        #[track_caller]
        fn is_a_violation(part: &str, header: Header) {
            is_found(part, |rogue| rogue.put(header, &[0; 16]));
        }

        #[track_caller]
        fn are_a_violation(part: &str, headers: &[Header]) {
            is_found(part, |rogue| write_all(rogue, headers));
        }

        /// A part of the message 2, and the record that follows.
        #[track_caller]
        fn after_a_part(part: &str, next: Header) {
            are_a_violation(part, &[$message(2, 16).part(16, true), next]);
        }

        fn of_kind(kind: u8) -> Header {
            Header { kind, ..$message(2, 16) }
        }

        fn flagged(flags: u8) -> Header {
            Header { flags, ..$message(2, 16) }
        }

        rows! { lengths: is_a_violation {
            one_byte_beyond_the_published_tail("has length 17,", $message(2, 17));
            one_record_beyond_the_published_tail("has length 32,", $message(2, 32));
            as_long_as_the_lane("has length 16384,", $message(2, 16 << 10));
            twice_the_lane("has length 32768,", $message(2, 32 << 10));
            with_only_a_sign("has length 2147483648,", $message(2, 1 << 31));
            one_below_a_sign("has length 2147483647,", $message(2, (1 << 31) - 1));
            that_rounds_up_to_nothing("has length 4294967295,", $message(2, u32::MAX));
            that_overflows_with_its_header("has length 4294967280,", $message(2, u32::MAX - 15));
            just_below_an_overflow("has length 4294967264,", $message(2, u32::MAX - 31));
            a_pad_of_the_greatest_length("has length 4294967295,", Header::new(Kind::Pad, Status::Ok, 0, u32::MAX));
            a_pad_that_ends_before_the_lane("kind 3", Header::new(Kind::Pad, Status::Ok, 0, 16));
            a_pad_one_record_too_long("has length", Header::new(Kind::Pad, Status::Ok, 0, (16 << 10) - 32));
            a_switch_with_a_payload("kind 4", Header::new(Kind::Switch, Status::Ok, 0, 16));
            an_attachment_with_a_payload("kind 5", Header::new(Kind::Attach, Status::Ok, 2, 16));
            a_close_with_a_payload("kind 7", Header { len: 16.into(), ..with_status(Kind::Close, 1) });
            a_trim_with_a_payload("kind 8", Header::new(Kind::Trim, Status::Ok, 0, 16));
            a_part_without_bytes(concat!("kind ", $kind), $message(2, 0).part(0, true));
        } }

        rows! { kinds_and_flags: is_a_violation {
            kind_zero("unknown kind 0", of_kind(0));
            the_first_kind_that_is_none("unknown kind 9", of_kind(9));
            kind_ten("unknown kind 10", of_kind(10));
            a_kind_with_only_a_sign("unknown kind 128", of_kind(0x80));
            the_last_kind("unknown kind 255", of_kind(0xff));
            flag_1("unknown flags 0x01", flagged(0x01));
            flag_8("unknown flags 0x08", flagged(0x08));
            flag_16("unknown flags 0x10", flagged(0x10));
            flag_32("unknown flags 0x20", flagged(0x20));
            flag_64("unknown flags 0x40", flagged(0x40));
            flag_128("unknown flags 0x80", flagged(0x80));
            more_and_another_flag("unknown flags 0x03", flagged(MORE | 1));
            all_flags("unknown flags 0xff", flagged(0xff));
            an_attachment_with_the_more_flag("unknown flags 0x02", Header { flags: MORE, ..empty(Kind::Attach, 2) });
            a_switch_with_the_more_flag("unknown flags 0x02", Header { flags: MORE, ..empty(Kind::Switch, 2) });
            a_close_with_the_more_flag("unknown flags 0x02", Header { flags: MORE, ..with_status(Kind::Close, 1) });
            a_trim_with_the_more_flag("unknown flags 0x02", Header { flags: MORE, ..empty(Kind::Trim, 2) });
        } }

        rows! { places: is_a_violation {
            a_switch_to_nothing("its size is no lane's", empty(Kind::Switch, 0));
            a_switch_to_the_end_of_numbers("its size is no lane's", empty(Kind::Switch, u64::MAX));
            a_close_without_a_reason("kind 7", with_status(Kind::Close, 0));
            a_close_with_the_first_reason_that_is_none("kind 7", with_status(Kind::Close, 5));
            a_close_with_the_last_reason("kind 7", with_status(Kind::Close, u16::MAX));
        } }

        rows! { parts: after_a_part {
            of_another_message(concat!("kind ", $kind), $message(3, 16).part(16, false));
            followed_by_an_attachment("kind 5", empty(Kind::Attach, 2));
            followed_by_a_trim("kind 8", empty(Kind::Trim, 0));
            followed_by_a_part_without_bytes(concat!("kind ", $kind), $message(2, 0).part(0, true));
            followed_by_an_unknown_kind("unknown kind 77", of_kind(77));
        } }
    };
}

/// Tails that the peer notices by `is_found(PART, VIOLATION)`.
macro_rules! tails {
    () => {
        #[track_caller]
        fn tail(part: &str, value: u64) {
            is_found(part, |rogue| rogue.set(Word::Tail, value));
        }

        rows! { tails: tail {
            one_record_back("went back from 32 to 16", HONEST - 16);
            at_nothing("went back from 32 to 0", 0);
            back_and_askew("went back", HONEST - 1);
            one_byte_ahead("position 33", HONEST + 1);
            half_a_header_ahead("position 40", HONEST + 8);
            one_byte_short_of_a_header("position 47", HONEST + 15);
            // By the tail alone it may be in a later lane: found at the record that is not there.
            beyond_the_lane("the record at 32 has the unknown kind 0", HONEST + Geometry::DEFAULT.size() + 16);
            above_all_epochs("is more than its lane", HONEST + REACH + 16);
            above_all_epochs_and_askew("position", HONEST + REACH + 1);
            whose_low_half_is_right("is more than its lane", 1 << 32 | HONEST);
            with_only_a_sign("is more than its lane", 1 << 63);
            minus_one_record("is more than its lane", HONEST.wrapping_sub(48));
            at_the_last_record("is more than its lane", u64::MAX - 15);
            at_the_end_of_numbers("is more than its lane", u64::MAX);
        } }
    };
}
