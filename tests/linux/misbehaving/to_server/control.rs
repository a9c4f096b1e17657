//! The control socket of an open session.

use std::os::fd::{AsFd, OwnedFd};

use bellwire_core::Geometry;
use bellwire_core::lane::{Epoch, MOST_ATTACHED, MOST_OUTSTANDING};
use bellwire_core::wire::{
    Attach, Attachment, Header, Kind, MAX_CONTROL, Message, Ready, Refuse, Status,
};

use bellwire::RefuseCode;

use super::poisons;
use crate::misbehaving::impostor;
use crate::support::memory::Draft;
use crate::support::rogue::{RogueSession, encode, hello, service, welcome};

/// Sends this, with so many descriptors.
#[track_caller]
fn is_a_lie(bytes: &[u8], fds: usize) {
    poisons(|rogue| {
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

mod bytes {
    use super::*;

    rows! { is_a_lie {
        nothing(b"", 0);
        nothing_with_a_descriptor(b"", 1);
        nothing_with_more_descriptors_than_any_message_has(b"", 20);
        one_byte(b"B", 0);
        half_a_prefix(b"BWC1", 0);
        a_prefix_without_its_last_byte(&plain(&Message::Ring)[..7], 0);
        zeroes(&[0; 8], 0);
        ones(&[0xff; 8], 0);
        another_protocol(b"GET / HTTP/1.1\r\n\r\n", 0);
        another_magic(&ring(0, b'b'), 0);
        another_version_of_the_magic(&ring(3, b'2'), 0);
        kind_zero(&ring(4, 0), 0);
        the_first_kind_that_is_none(&ring(4, 9), 0);
        the_last_kind(&ring(5, 0xff), 0);
        a_ring_with_a_byte_too_many(&[plain(&Message::Ring), vec![0]].concat(), 0);
        a_ring_as_long_as_a_message_can_be(&[plain(&Message::Ring), vec![0; 504]].concat(), 0);
        one_byte_more_than_a_message_can_have(&[b'x'; MAX_CONTROL + 1], 0);
        sixty_thousand_bytes(&[b'x'; 60_000], 0);
    } }
}

mod messages {
    use super::*;

    rows! { is_a_lie {
        a_hello(&plain(&Message::Hello(hello(service("echo")))), 0);
        a_welcome(&plain(&Message::Welcome(welcome(1))), 0);
        a_refusal(&plain(&Message::Refuse(Refuse::new(RefuseCode::Quota, "no"))), 0);
        an_attach(&encode(&Message::Attach(Attach { session: 1 }), 2), 2);
        a_ready(&plain(&Message::Ready(Ready { session: 1 })), 0);
        a_ring_with_a_descriptor(&encode(&Message::Ring, 1), 1);
        a_ring_with_sixteen_descriptors(&encode(&Message::Ring, 16), 16);
        a_ring_with_seventeen_descriptors(&encode(&Message::Ring, 17), 17);
        a_ring_with_as_many_descriptors_as_there_can_be(&encode(&Message::Ring, 253), 253);
        a_ring_that_hides_its_descriptor(&plain(&Message::Ring), 1);
        a_ring_that_promises_a_descriptor(&encode(&Message::Ring, 1), 0);
        a_lane_without_its_descriptor(&encode(&lane(2, Geometry::DEFAULT), 0), 0);
        a_lane_that_promises_its_descriptor(&encode(&lane(2, Geometry::DEFAULT), 1), 0);
        a_lane_with_two_descriptors(&encode(&lane(2, Geometry::DEFAULT), 2), 2);
        a_lane_above_the_limit(&encode(&lane(2, Geometry::LARGE.doubled()), 1), 1);
        the_largest_lane(&encode(&lane(2, Geometry::LARGEST), 1), 1);
        a_lane_of_no_bytes(&lane_of(0), 1);
        a_lane_of_one_byte(&lane_of(1), 1);
        a_lane_of_half_a_page(&lane_of(2048), 1);
        a_lane_one_byte_short(&lane_of(16_383), 1);
        a_lane_of_no_power_of_two(&lane_of(12_288), 1);
        a_lane_with_only_a_sign(&lane_of(1 << 31), 1);
        a_lane_of_the_greatest_number(&lane_of(u32::MAX), 1);
        an_attachment_without_its_descriptor(&encode(&attachment(2, 5), 0), 0);
        an_attachment_with_two_descriptors(&encode(&attachment(2, 5), 2), 2);
        an_attachment_one_byte_above_the_limit(&encode(&attachment(2, (64 << 20) + 1), 1), 1);
        an_attachment_of_the_greatest_length(&encode(&attachment(2, u64::MAX), 1), 1);
    } }
}

mod crowds {
    use super::*;

    rows! { poisons {
        more_lanes_than_may_be_outstanding(|rogue: &mut RogueSession| {
            let all = 0..=MOST_OUTSTANDING as u32;
            pass(rogue, all.map(|at| lane(2 + at, Geometry::DEFAULT)));
        });
        more_attachments_than_may_be_outstanding(|rogue: &mut RogueSession| {
            pass(rogue, (0..=MOST_ATTACHED as u64).map(|at| attachment(2 + at, 5)));
            // A lane that never comes: behind which of them may it be?
            let next = Epoch { number: 2, size: Geometry::DEFAULT };
            rogue.put(Header::new(Kind::Switch, Status::Ok, next.to_wire(), 0), &[]);
        });
        more_memory_than_a_session_may_share(|rogue: &mut RogueSession| {
            pass(rogue, (0..5).map(|at| attachment(2 + at, 64 << 20)));
        });
        a_lane_and_then_a_pipe_full_of_descriptors(|rogue: &mut RogueSession| {
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
}

pub(super) fn rows() -> Vec<&'static str> {
    [bytes::ROWS, messages::ROWS, crowds::ROWS].concat()
}
