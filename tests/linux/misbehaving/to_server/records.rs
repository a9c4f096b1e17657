//! Records in the client's own lane.

use bellwire::{Geometry, LaneConfig, Limits, ServerConfig};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BATCH, Header, Kind, MORE, Status};
use bellwire_core::{OwnMemory, PeerMemory, Port, Word};
use zerocopy::IntoBytes;

use super::{is_closed, is_found, poisons, request};
use crate::hostile::client::poisons_in;
use crate::misbehaving::records::{empty, with_status, write_all};
use crate::support::guard::until;
use crate::support::rogue::RogueSession;
use crate::support::test_server::TestServer;

records!(request, "1");

// What only a server receives, or finds.
rows! { to_a_server: is_a_violation {
    a_cancellation_with_a_payload("kind 6", Header::new(Kind::Cancel, Status::Ok, 1, 1));
    a_request_with_a_sign("unknown kind 129", of_kind(0x81));
    a_cancellation_with_the_more_flag("unknown flags 0x02", Header { flags: MORE, ..empty(Kind::Cancel, 2) });
    a_cancellation_of_a_batch("unknown flags 0x04", Header { flags: BATCH, ..empty(Kind::Cancel, 2) });
    an_attachment_that_is_a_batch("unknown flags 0x04", Header { flags: BATCH, ..empty(Kind::Attach, 2) });
    a_switch_that_is_a_batch("unknown flags 0x04", Header { flags: BATCH, ..empty(Kind::Switch, 2) });
    a_close_that_is_a_batch("unknown flags 0x04", Header { flags: BATCH, ..with_status(Kind::Close, 1) });
    a_trim_that_is_a_batch("unknown flags 0x04", Header { flags: BATCH, ..empty(Kind::Trim, 2) });
    a_batch_with_another_flag("unknown flags 0x05", flagged(BATCH | 1));
    a_response_to_a_server("kind 2", Header::new(Kind::Response, Status::Ok, 1, 16));
    an_attachment_that_was_not_passed("its record came without it", empty(Kind::Attach, 2));
    an_attachment_with_an_old_id("request id 1", empty(Kind::Attach, 1));
    a_switch_to_the_current_epoch("its epoch is not the next one", empty(Kind::Switch, 16 << 42 | 1));
} }

rows! { ids: are_a_violation {
    a_cancellation_of_a_one_way_request("request 0,", &[request(0, 16), empty(Kind::Cancel, 0)]);
    used_again("request id 1 ", &[request(1, 16)]);
    used_twice_at_once("request id 2 ", &[request(2, 0), request(2, 0)]);
    going_back("request id 9 ", &[request(10, 0), request(9, 0)]);
    going_back_from_the_end_of_numbers("request id 2 ", &[request(u64::MAX, 0), request(2, 0)]);
    the_end_of_numbers_twice("request id", &[request(u64::MAX, 0), request(u64::MAX, 0)]);
    a_cancellation_of_an_unknown_request("request 77,", &[empty(Kind::Cancel, 77)]);
    a_cancellation_of_the_end_of_numbers("request 18446744073709551615,", &[empty(Kind::Cancel, u64::MAX)]);
    a_request_after_a_violation("unknown kind 200", &[request(2, 0), of_kind(200), request(3, 0)]);
} }

rows! { parts_to_a_server: after_a_part {
    of_an_older_message("kind 1", request(1, 16).part(16, false));
    followed_by_a_response("kind 2", empty(Kind::Response, 2));
    followed_by_a_cancellation_of_the_future("request 99,", empty(Kind::Cancel, 99));
} }

rows! { batches_in_parts: are_a_violation {
    which_end_as_a_request("kind 1", &[request(2, 16).part(16, true).batch(), request(2, 16).part(16, false)]);
    which_begin_as_a_request("kind 1", &[request(2, 16).part(16, true), request(2, 16).part(16, false).batch()]);
} }

rows! { limits: above_the_limit {
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

rows! { ends: at_the_lanes_end {
    a_request_that_crosses_it(|id| request(id, 1024));
    a_pad_that_crosses_it(|_| Header::new(Kind::Pad, Status::Ok, 0, 1024));
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

rows! { changes: while_it_is_read {
    a_length(3, 0xff);
    a_kind(4, 200);
    a_flag(5, 0x40);
    a_number(15, 0x80);
} }

/// One byte of an honest record's header changes now and then, until a read hits the wrong one.
#[track_caller]
fn while_it_is_read(byte: usize, violation: u8) {
    poisons(|rogue| {
        let mut id = 2;
        until("a read meets the other value", || {
            let header = request(id, 0);
            let at = (rogue.tail % Geometry::DEFAULT.size()) as usize + byte;
            rogue.put(header, &[]);
            let mut values = [violation, header.as_bytes()[byte]].into_iter().cycle();
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
