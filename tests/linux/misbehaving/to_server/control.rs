//! The control socket of an open session.

use std::os::fd::{AsFd, OwnedFd};

use bellwire_core::Geometry;
use bellwire_core::lane::{Epoch, MAX_ATTACHED, MAX_OUTSTANDING};
use bellwire_core::wire::{
    Attachment, Header, Join, Kind, MAX_CONTROL, Message, Ready, Refuse, Status,
};

use bellwire::RefuseCode;

use super::is_found;
use crate::misbehaving::impostor;
use crate::misbehaving::passing::why::{ABOVE, ABOVE_LANE, ONE_FD};
use crate::support::memory::Draft;
use crate::support::rogue::{RogueSession, encode, hello, service, welcome};

const EMPTY: &str = "it is empty";
const TOO_LONG: &str = "longer than any message";
const TOO_MANY: &str = "more descriptors than any message has";
const NO_MESSAGE: &str = "it is no control message";
const NO_PLACE: &str = "an open session has no place for it";

/// Sends this, with so many descriptors.
#[track_caller]
fn is_a_violation(part: &str, bytes: &[u8], fds: usize) {
    is_found(part, |rogue| {
        let fd = Draft::lane().make();
        rogue.send_control(bytes, &vec![fd.as_fd(); fds]);
    });
}

fn plain(message: &Message) -> Vec<u8> {
    encode(message, 0)
}

/// A ring with one of its bytes changed.
fn ring(at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = plain(&Message::Ring);
    bytes[at] = byte;
    bytes
}

fn lane(number: u32, size: Geometry) -> Message {
    Message::Lane(Epoch { number, size })
}

fn attachment(id: u64, len: u64) -> Message {
    Message::Attachment(Attachment { id, generation: 0, len })
}

/// A LANE whose size is none.
fn lane_of(size: u32) -> Vec<u8> {
    let mut bytes = encode(&lane(2, Geometry::DEFAULT), 1);
    bytes[12..16].copy_from_slice(&size.to_le_bytes());
    bytes
}

rows! { bytes: is_a_violation {
    nothing(EMPTY, b"", 0);
    nothing_with_a_descriptor(EMPTY, b"", 1);
    nothing_with_more_descriptors_than_any_message_has(TOO_MANY, b"", 20);
    one_byte(NO_MESSAGE, b"B", 0);
    half_a_prefix(NO_MESSAGE, b"BWC1", 0);
    a_prefix_without_its_last_byte(NO_MESSAGE, &plain(&Message::Ring)[..7], 0);
    zeroes(NO_MESSAGE, &[0; 8], 0);
    ones(NO_MESSAGE, &[0xff; 8], 0);
    another_protocol(NO_MESSAGE, b"GET / HTTP/1.1\r\n\r\n", 0);
    another_magic(NO_MESSAGE, &ring(0, b'b'), 0);
    another_version_of_the_magic(NO_MESSAGE, &ring(3, b'2'), 0);
    kind_zero(NO_MESSAGE, &ring(4, 0), 0);
    the_first_kind_that_is_none(NO_MESSAGE, &ring(4, 9), 0);
    the_last_kind(NO_MESSAGE, &ring(5, 0xff), 0);
    a_ring_with_a_byte_too_many(NO_MESSAGE, &[plain(&Message::Ring), vec![0]].concat(), 0);
    a_ring_as_long_as_a_message_can_be(NO_MESSAGE, &[plain(&Message::Ring), vec![0; 504]].concat(), 0);
    one_byte_more_than_a_message_can_have(TOO_LONG, &[b'x'; MAX_CONTROL + 1], 0);
    sixty_thousand_bytes(TOO_LONG, &[b'x'; 60_000], 0);
} }

rows! { messages: is_a_violation {
    a_hello(NO_PLACE, &plain(&Message::Hello(hello(service("echo")))), 0);
    a_welcome(NO_PLACE, &plain(&Message::Welcome(welcome(1))), 0);
    a_refusal(NO_PLACE, &plain(&Message::Refuse(Refuse::new(RefuseCode::Quota, "no"))), 0);
    a_join(NO_PLACE, &encode(&Message::Join(Join { session: 1 }), 2), 2);
    a_ready(NO_PLACE, &plain(&Message::Ready(Ready { session: 1 })), 0);
    a_ring_with_a_descriptor(NO_PLACE, &encode(&Message::Ring, 1), 1);
    a_ring_with_sixteen_descriptors(NO_PLACE, &encode(&Message::Ring, 16), 16);
    a_ring_with_seventeen_descriptors(TOO_MANY, &encode(&Message::Ring, 17), 17);
    a_ring_with_as_many_descriptors_as_there_can_be(TOO_MANY, &encode(&Message::Ring, 253), 253);
    a_ring_that_hides_its_descriptor(NO_MESSAGE, &plain(&Message::Ring), 1);
    a_ring_that_promises_a_descriptor(NO_MESSAGE, &encode(&Message::Ring, 1), 0);
    a_lane_without_its_descriptor(ONE_FD, &encode(&lane(2, Geometry::DEFAULT), 0), 0);
    a_lane_that_promises_its_descriptor(NO_MESSAGE, &encode(&lane(2, Geometry::DEFAULT), 1), 0);
    a_lane_with_two_descriptors(ONE_FD, &encode(&lane(2, Geometry::DEFAULT), 2), 2);
    a_lane_above_the_limit(ABOVE_LANE, &encode(&lane(2, Geometry::LARGE.doubled()), 1), 1);
    the_largest_lane(ABOVE_LANE, &encode(&lane(2, Geometry::LARGEST), 1), 1);
    a_lane_of_no_bytes(NO_MESSAGE, &lane_of(0), 1);
    a_lane_of_one_byte(NO_MESSAGE, &lane_of(1), 1);
    a_lane_of_half_a_page(NO_MESSAGE, &lane_of(2048), 1);
    a_lane_one_byte_short(NO_MESSAGE, &lane_of(16_383), 1);
    a_lane_of_no_power_of_two(NO_MESSAGE, &lane_of(12_288), 1);
    a_lane_with_only_a_sign(NO_MESSAGE, &lane_of(1 << 31), 1);
    a_lane_of_the_greatest_number(NO_MESSAGE, &lane_of(u32::MAX), 1);
    an_attachment_without_its_descriptor(ONE_FD, &encode(&attachment(2, 5), 0), 0);
    an_attachment_with_two_descriptors(ONE_FD, &encode(&attachment(2, 5), 2), 2);
    an_attachment_one_byte_above_the_limit(ABOVE, &encode(&attachment(2, (64 << 20) + 1), 1), 1);
    an_attachment_of_the_greatest_length(ABOVE, &encode(&attachment(2, u64::MAX), 1), 1);
} }

rows! { crowds: is_found {
    more_lanes_than_may_be_outstanding("too many lanes", |rogue| {
        let all = 0..=MAX_OUTSTANDING as u32;
        pass(rogue, all.map(|at| lane(2 + at, Geometry::DEFAULT)));
    });
    more_attachments_than_may_be_outstanding("too many attachments", |rogue| {
        pass(rogue, (0..=MAX_ATTACHED as u64).map(|at| attachment(2 + at, 5)));
        // A lane that never comes: behind which of them may it be?
        let next = Epoch { number: 2, size: Geometry::DEFAULT };
        rogue.put(Header::new(Kind::Switch, Status::Ok, next.to_wire(), 0), &[]);
    });
    more_memory_than_a_session_may_share("too much memory", |rogue| {
        pass(rogue, (0..5).map(|at| attachment(2 + at, 64 << 20)));
    });
    a_lane_and_then_a_pipe_full_of_descriptors(TOO_MANY, |rogue| {
        pass(rogue, [lane(2, Geometry::DEFAULT)].into_iter());
        let fds: Vec<OwnedFd> = (0..20).map(|_| impostor::pipe()).collect();
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        rogue.send_control(&encode(&lane(3, Geometry::DEFAULT), 20), &fds);
    });
} }

fn pass(rogue: &RogueSession, messages: impl Iterator<Item = Message>) {
    let fd = Draft::lane().make();
    for message in messages {
        rogue.send_control(&encode(&message, 1), &[fd.as_fd()]);
    }
}
