//! What a server sends and passes before the session is open.

use std::os::fd::AsFd;

use bellwire::RefuseCode;
use bellwire_core::wire::{Join, Message, Ready, Refuse};
use rustix::fs::SealFlags;

use crate::handshake::hostile_server::{RogueHandshake, SESSION, Welcoming, welcomes};
use crate::misbehaving::impostor;
use crate::misbehaving::table::in_handshake::*;
use crate::support::memory::Draft;
use crate::support::rogue::{Rogue, encode, hello, service};

#[track_caller]
fn fails(part: &str, act: impl FnOnce(&Rogue)) {
    let exchange = RogueHandshake::begin();
    act(&exchange.rogue);
    exchange.fails(part);
}

#[track_caller]
fn welcome_fails(part: &str, alter: impl FnOnce(&mut Welcoming)) {
    fails(part, |rogue| welcomes(rogue, alter));
}

/// A WELCOME with these bytes at this place.
#[track_caller]
fn field_fails(part: &str, at: usize, bytes: &[u8]) {
    welcome_fails(part, |it| it.bytes[at..at + bytes.len()].copy_from_slice(bytes));
}

rows! { fields: field_fails {
    another_magic("not a Bellwire peer", 0, b"bwc1");
    kind_zero("unknown kind 0", 4, &[0, 0]);
    the_first_kind_that_is_none("unknown kind 9", 4, &[9, 0]);
    version_zero("version", 8, &[0, 0]);
    a_version_that_was_not_offered("version", 8, &[2, 0]);
    the_last_version("version", 8, &[0xff, 0xff]);
    a_reserved_bit("reserved field", 0x0a, &[1, 0]);
    another_reserved_bit("reserved field", 0x0b, &[0x80]);
    a_feature_that_was_not_offered("features", 0x17, &[0x80]);
    all_features("features", 0x10, &[0xff; 8]);
    a_lane_of_no_bytes("lane size", 0x0c, &[0; 4]);
    a_lane_of_no_power_of_two("lane size", 0x0c, &12_288_u32.to_le_bytes());
    a_lane_with_only_a_sign("lane size", 0x0c, &(1_u32 << 31).to_le_bytes());
    a_lane_above_the_clients_limit("lane size", 0x0c, &(128_u32 << 20).to_le_bytes());
    a_lane_above_its_own_limit("bytes", 0x0c, &(64_u32 << 20).to_le_bytes());
    no_doorbell("doorbell", 0x20, &[0; 4]);
    the_first_doorbell_that_is_none("doorbell", 0x20, &[4, 0, 0, 0]);
    an_eventfd_that_is_missing("3 descriptors", 0x20, &[2, 0, 0, 0]);
    a_least_lane_of_no_bytes("least lane size", 0x28, &[0; 4]);
    a_least_lane_above_the_lane("least lane size", 0x28, &(32_u32 << 10).to_le_bytes());
    a_lane_limit_that_is_no_lanes("lane limit", 0x2c, &12_345_u32.to_le_bytes());
    a_lane_limit_below_the_clients_lane("lane limit", 0x2c, &4096_u32.to_le_bytes());
    no_shared_memory("shared memory limit", 0x38, &[0; 8]);
    shared_memory_below_the_lanes("shared memory limit", 0x38, &8192_u64.to_le_bytes());
} }

rows! { shapes: welcome_fails {
    nothing("0 bytes", |it| it.bytes.clear());
    one_byte("1 bytes", |it| it.bytes.truncate(1));
    half_a_prefix("4 bytes", |it| it.bytes.truncate(4));
    without_its_last_byte("71 bytes, expected 72", |it| it.bytes.truncate(71));
    with_a_byte_too_many("73 bytes, expected 72", |it| it.bytes.push(0));
    another_protocol("not a Bellwire peer", |it| it.bytes = b"SSH-2.0-OpenSSH".to_vec());
    that_hides_its_descriptors("descriptor count", |it| it.bytes[6] = 0);
    that_promises_more_descriptors("descriptor count", |it| it.bytes[6] = 4);
    without_descriptors("0 descriptors", |it| it.fds = Some(Vec::new()));
    with_a_page_alone("1 descriptors", |it| it.fds = Some(vec![it.page.make()]));
    without_a_board("2 descriptors", |it| {
        it.fds = Some(vec![it.page.make(), it.lane.make()]);
    });
    with_an_eventfd_that_was_not_agreed("4 descriptors", |it| {
        let mut fds = vec![it.page.make(), it.lane.make(), it.board.make()];
        fds.push(impostor::eventfd());
        it.fds = Some(fds);
    });
    with_page_and_lane_exchanged("16384 bytes where 4096", |it| {
        it.fds = Some(vec![it.lane.make(), it.page.make(), it.board.make()]);
    });
    with_board_and_page_exchanged("magic", |it| {
        it.fds = Some(vec![it.board.make(), it.lane.make(), it.page.make()]);
    });
} }

rows! { page_headers: page_differs {
    in_its_magic("magic", 0x07);
    in_its_layout("layout", 0x08);
    in_its_role("role", 0x0c);
    in_its_session("session", 0x10);
    in_its_lane_size("lane size", 0x1c);
    in_its_service("service name", 0x28);
    behind_its_service("service name", 0x67);
} }

#[track_caller]
fn page_differs(part: &str, at: usize) {
    fails_with_page(part, |page| page.bytes[at] ^= 1);
}

rows! { board_headers: board_differs {
    in_its_magic("magic", 0x00);
    in_its_layout("layout", 0x08);
    in_its_service("service name", 0x18);
    behind_its_service("service name", 0x57);
} }

#[track_caller]
fn board_differs(part: &str, at: usize) {
    fails_with_board(part, |board| board.bytes[at] ^= 1);
}

bad_memory! { a_page: fails_with_page }

bad_memory! { a_lane: fails_with_lane }

bad_memory! { a_board: fails_with_board }

#[track_caller]
fn fails_with_page(part: &str, alter: impl FnOnce(&mut Draft)) {
    welcome_fails(part, |it| alter(&mut it.page));
}

#[track_caller]
fn fails_with_lane(part: &str, alter: impl FnOnce(&mut Draft)) {
    welcome_fails(part, |it| alter(&mut it.lane));
}

#[track_caller]
fn fails_with_board(part: &str, alter: impl FnOnce(&mut Draft)) {
    welcome_fails(part, |it| alter(&mut it.board));
}

rows! { order: fails {
    a_hello_in_return("Hello", |rogue| {
        rogue.send(&Message::Hello(hello(service("echo"))), &[]);
    });
    a_join_in_return("Join", |rogue| {
        rogue.send(&Message::Join(Join { session: SESSION }), &[]);
    });
    a_ring_before_the_session("Ring", |rogue| rogue.send(&Message::Ring, &[]));
    ready_before_welcome("Ready", |rogue| {
        rogue.send(&Message::Ready(Ready { session: SESSION }), &[]);
    });
    ready_for_another_session("session", |rogue| {
        welcomes(rogue, |_| {});
        rogue.send(&Message::Ready(Ready { session: SESSION + 1 }), &[]);
    });
    ready_with_a_descriptor("1 descriptors", |rogue| {
        welcomes(rogue, |_| {});
        let message = Message::Ready(Ready { session: SESSION });
        rogue.send(&message, &[Draft::lane().make().as_fd()]);
    });
    welcome_twice("Welcome", |rogue| {
        welcomes(rogue, |_| {});
        welcomes(rogue, |_| {});
    });
    a_refusal_with_a_descriptor("1 descriptors", |rogue| {
        let refusal = Message::Refuse(Refuse::new(RefuseCode::Quota, "no"));
        rogue.send(&refusal, &[Draft::lane().make().as_fd()]);
    });
    a_refusal_for_an_unknown_reason("code", |rogue| refuses(rogue, 8, &[99, 0]));
    a_refusal_longer_than_it_is("reason", |rogue| refuses(rogue, 14, &[0xff, 0xff]));
    a_refusal_that_is_no_text("reason", |rogue| refuses(rogue, 16, &[0xff]));
    a_refusal_with_control_characters("reason", |rogue| refuses(rogue, 16, b"\x1b"));
} }

fn refuses(rogue: &Rogue, at: usize, bytes: &[u8]) {
    let mut refusal = encode(&Message::Refuse(Refuse::new(RefuseCode::Quota, "no")), 0);
    refusal[at..at + bytes.len()].copy_from_slice(bytes);
    rogue.send_bytes(&refusal, &[]);
}
