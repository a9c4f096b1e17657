//! Records in the client's own lane.

use bellwire::{Geometry, LaneConfig, Limits, ServerConfig};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BATCH, Header, Kind, MORE, Status};
use bellwire_core::{OwnMemory, PeerMemory, Port, Word};
use zerocopy::IntoBytes;

use super::{is_closed, poisons, request};
use crate::hostile::client::poisons_in;
use crate::support::guard::until;
use crate::support::rogue::RogueSession;
use crate::support::test_server::TestServer;

/// A record of 16 bytes, with this header.
#[track_caller]
fn is_a_lie(header: Header) {
    poisons(|rogue| rogue.put(header, &[0; 16]));
}

/// Several records, published together.
#[track_caller]
fn are_a_lie(headers: &[Header]) {
    poisons(|rogue| {
        for header in headers {
            let len = header.len.get();
            rogue.write(*header, &vec![0; len as usize]);
        }
        rogue.publish();
    });
}

fn empty(kind: Kind, id: u64) -> Header {
    Header::new(kind, Status::Ok, id, 0)
}

fn of_kind(kind: u8) -> Header {
    Header { kind, ..request(2, 16) }
}

fn flagged(kind: Kind, flags: u8) -> Header {
    let len = if kind == Kind::Request { 16 } else { 0 };
    Header { flags, ..Header::new(kind, Status::Ok, 2, len) }
}

fn close(reason: u16) -> Header {
    let mut header = empty(Kind::Close, 0);
    header.status = reason.into();
    header
}

/// A part of the request 2, and the record that follows.
#[track_caller]
fn after_a_part(next: Header) {
    are_a_lie(&[request(2, 16).part(16, true), next]);
}

mod lengths {
    use super::*;

    rows! { is_a_lie {
        one_byte_beyond_what_was_published(request(2, 17));
        one_record_beyond_what_was_published(request(2, 32));
        as_long_as_the_lane(request(2, 16 << 10));
        twice_the_lane(request(2, 32 << 10));
        with_only_a_sign(request(2, 1 << 31));
        one_below_a_sign(request(2, (1 << 31) - 1));
        that_rounds_up_to_nothing(request(2, u32::MAX));
        that_overflows_with_its_header(request(2, u32::MAX - 15));
        just_below_an_overflow(request(2, u32::MAX - 31));
        a_pad_of_the_greatest_length(Header::new(Kind::Pad, Status::Ok, 0, u32::MAX));
        a_pad_that_ends_before_the_lane(Header::new(Kind::Pad, Status::Ok, 0, 16));
        a_pad_one_record_too_long(Header::new(Kind::Pad, Status::Ok, 0, (16 << 10) - 32));
        a_switch_with_a_payload(Header::new(Kind::Switch, Status::Ok, 0, 16));
        an_attachment_with_a_payload(Header::new(Kind::Attach, Status::Ok, 2, 16));
        a_cancellation_with_a_payload(Header::new(Kind::Cancel, Status::Ok, 1, 1));
        a_close_with_a_payload(Header { len: 16.into(), ..close(1) });
        a_trim_with_a_payload(Header::new(Kind::Trim, Status::Ok, 0, 16));
        a_part_without_bytes(request(2, 0).part(0, true));
    } }
}

mod kinds_and_flags {
    use super::*;

    rows! { is_a_lie {
        kind_zero(of_kind(0));
        the_first_kind_that_is_none(of_kind(9));
        kind_ten(of_kind(10));
        a_kind_with_only_a_sign(of_kind(0x80));
        a_request_with_a_sign(of_kind(0x81));
        the_last_kind(of_kind(0xff));
        flag_1(flagged(Kind::Request, 0x01));
        flag_8(flagged(Kind::Request, 0x08));
        flag_16(flagged(Kind::Request, 0x10));
        flag_32(flagged(Kind::Request, 0x20));
        flag_64(flagged(Kind::Request, 0x40));
        flag_128(flagged(Kind::Request, 0x80));
        more_and_another_flag(flagged(Kind::Request, MORE | 1));
        all_flags(flagged(Kind::Request, 0xff));
        a_cancellation_that_goes_on(flagged(Kind::Cancel, MORE));
        an_attachment_that_goes_on(flagged(Kind::Attach, MORE));
        a_switch_that_goes_on(flagged(Kind::Switch, MORE));
        a_close_that_goes_on(Header { flags: MORE, ..close(1) });
        a_trim_that_goes_on(flagged(Kind::Trim, MORE));
        a_cancellation_of_a_batch(flagged(Kind::Cancel, BATCH));
        an_attachment_that_is_a_batch(flagged(Kind::Attach, BATCH));
        a_switch_that_is_a_batch(flagged(Kind::Switch, BATCH));
        a_close_that_is_a_batch(Header { flags: BATCH, ..close(1) });
        a_trim_that_is_a_batch(flagged(Kind::Trim, BATCH));
        a_batch_with_another_flag(flagged(Kind::Request, BATCH | 1));
    } }
}

mod places {
    use super::*;

    rows! { is_a_lie {
        a_response_to_a_server(Header::new(Kind::Response, Status::Ok, 1, 16));
        an_attachment_that_was_not_passed(empty(Kind::Attach, 2));
        an_attachment_with_an_old_id(empty(Kind::Attach, 1));
        a_switch_to_nothing(empty(Kind::Switch, 0));
        a_switch_to_the_epoch_that_is_there(empty(Kind::Switch, 16 << 42 | 1));
        a_switch_to_the_end_of_numbers(empty(Kind::Switch, u64::MAX));
        a_close_without_a_reason(close(0));
        a_close_with_the_first_reason_that_is_none(close(5));
        a_close_with_the_last_reason(close(u16::MAX));
    } }
}

mod ids {
    use super::*;

    rows! { are_a_lie {
        a_cancellation_of_a_one_way_request(&[request(0, 16), empty(Kind::Cancel, 0)]);
        used_again(&[request(1, 16)]);
        used_twice_at_once(&[request(2, 0), request(2, 0)]);
        going_back(&[request(10, 0), request(9, 0)]);
        going_back_from_the_end_of_numbers(&[request(u64::MAX, 0), request(2, 0)]);
        the_end_of_numbers_twice(&[request(u64::MAX, 0), request(u64::MAX, 0)]);
        a_cancellation_of_what_was_never_asked(&[empty(Kind::Cancel, 77)]);
        a_cancellation_of_the_end_of_numbers(&[empty(Kind::Cancel, u64::MAX)]);
        a_request_after_a_lie(&[request(2, 0), of_kind(200), request(3, 0)]);
    } }
}

mod parts {
    use super::*;

    rows! { after_a_part {
        of_another_message(request(3, 16).part(16, false));
        of_an_older_message(request(1, 16).part(16, false));
        followed_by_an_attachment(empty(Kind::Attach, 3));
        followed_by_a_trim(empty(Kind::Trim, 0));
        followed_by_a_response(empty(Kind::Response, 2));
        followed_by_a_cancellation_of_the_future(empty(Kind::Cancel, 99));
        followed_by_a_part_without_bytes(request(2, 0).part(0, true));
        followed_by_an_unknown_kind(of_kind(77));
    } }
}

mod limits {
    use super::*;

    rows! { above_the_limit {
        a_message_in_one_record(&[6000]);
        a_message_in_two_parts(&[3000, 3000]);
        a_message_whose_last_part_is_one_byte(&[4096, 1]);
    } }

    /// A message of these parts, where the server takes 4096 bytes.
    #[track_caller]
    fn above_the_limit(parts: &[u32]) {
        let limits = Limits { max_message: 4096, ..Limits::default() };
        let fixture =
            TestServer::with(ServerConfig::default().lane(LaneConfig::default().limits(limits)));
        poisons_in(fixture, |rogue| {
            for (at, len) in parts.iter().enumerate() {
                let header = request(2, 0).part(*len, at + 1 < parts.len());
                rogue.write(header, &vec![0; *len as usize]);
            }
            rogue.publish();
        });
    }
}

mod ends {
    use super::*;

    rows! { at_the_lanes_end {
        a_request_that_goes_on_behind_it(|id| request(id, 1024));
        a_pad_that_goes_on_behind_it(|_| Header::new(Kind::Pad, Status::Ok, 0, 1024));
        a_pad_that_ends_before_it(|_| Header::new(Kind::Pad, Status::Ok, 0, 992));
    } }

    /// A record 1 KiB before the lane's end, all of which is published, and 16 bytes behind it.
    #[track_caller]
    fn at_the_lanes_end(last: impl FnOnce(u64) -> Header) {
        poisons(|rogue| {
            let (size, mut id) = (Geometry::DEFAULT.size(), 2);
            while rogue.tail < size - 1024 {
                let len = (size - 1024 - rogue.tail - 16).min(1000);
                rogue.put(request(id, u32::try_from(len).unwrap()), &vec![0; len as usize]);
                rogue.take_answers();
                id += 1;
            }
            rogue.write(last(id), &[0; 1008]);
            rogue.tail += 16;
            rogue.publish();
        });
    }
}

mod changes {
    use super::*;

    rows! { while_it_is_read {
        a_length(3, 0xff);
        a_kind(4, 200);
        a_flag(5, 0x40);
        a_number(15, 0x80);
    } }

    /// One byte of an honest record's header changes now and then, until a read hits the wrong one.
    #[track_caller]
    fn while_it_is_read(byte: usize, lie: u8) {
        poisons(|rogue| {
            let mut id = 2;
            until("a read meets the other value", || {
                let header = request(id, 0);
                let at = (rogue.tail % Geometry::DEFAULT.size()) as usize + byte;
                rogue.put(header, &[]);
                let mut values = [lie, header.as_bytes()[byte]].into_iter().cycle();
                // Each value stays for as long as a look takes.
                until("the record is read", || {
                    rogue.link.own().write(at, &[values.next().unwrap()]);
                    has_taken(rogue) || is_closed(rogue)
                });
                rogue.set(Word::Head, rogue.link.peer().load(Word::Tail, Ordering::Acquire));
                id += 1;
                is_closed(rogue)
            });
        });
    }

    fn has_taken(rogue: &RogueSession) -> bool {
        rogue.link.peer().load(Word::Head, Ordering::Acquire) >= rogue.tail
    }
}

pub(super) fn rows() -> Vec<&'static str> {
    let lies = [lengths::ROWS, kinds_and_flags::ROWS, places::ROWS, ids::ROWS, parts::ROWS];
    [lies.concat().as_slice(), limits::ROWS, ends::ROWS, changes::ROWS].concat()
}
