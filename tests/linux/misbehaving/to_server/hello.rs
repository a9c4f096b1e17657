//! The first message.

use std::os::fd::AsFd;

use bellwire::RefuseCode;
use bellwire_core::wire::{Attachment, Join, Message, Ready, Refuse};

use super::{is_dropped, is_refused};
use crate::support::limiter::hide_passrights_here;
use crate::support::memory::Draft;
use crate::support::rogue::{Rogue, encode, hello, service, welcome};
use crate::support::test_server::TestServer;

fn honest() -> Vec<u8> {
    encode(&Message::Hello(hello(service("echo"))), 0)
}

/// A HELLO with these bytes at this place.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut hello = honest();
    hello[at..at + bytes.len()].copy_from_slice(bytes);
    hello
}

fn with_u16(at: usize, value: u16) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

fn with_u32(at: usize, value: u32) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

fn with_u64(at: usize, value: u64) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

/// A HELLO for a service of this name.
fn named(name: &[u8]) -> Vec<u8> {
    let mut field = [0; 64];
    field[..name.len()].copy_from_slice(name);
    with(0x18, &field)
}

#[track_caller]
fn breaks_the_protocol(bytes: &[u8], part: &str) {
    is_refused(RefuseCode::Protocol, part, |rogue| rogue.send_bytes(bytes, &[]));
}

rows! { shapes: breaks_the_protocol {
    nothing(b"", "0 bytes");
    one_byte(b"B", "1 bytes");
    half_a_prefix(b"BWC1", "4 bytes");
    another_protocol(b"SSH-2.0-OpenSSH_9.9\r\n", "not a Bellwire peer");
    zeroes(&[0; 148], "not a Bellwire peer");
    ones(&[0xff; 148], "not a Bellwire peer");
    another_magic(&with(0, b"bwc1"), "not a Bellwire peer");
    kind_zero(&with_u16(4, 0), "unknown kind 0");
    the_first_kind_that_is_none(&with_u16(4, 9), "unknown kind 9");
    the_last_kind(&with_u16(4, u16::MAX), "unknown kind 65535");
    a_prefix_alone(&honest()[..8], "8 bytes");
    without_its_versions(&honest()[..11], "11 bytes");
    versions_alone(&honest()[..12], "12 bytes, expected 148");
    without_its_last_byte(&honest()[..147], "147 bytes, expected 148");
    with_a_byte_too_many(&[honest(), vec![0]].concat(), "149 bytes, expected 148");
    as_long_as_a_message_can_be(&[honest(), vec![0; 364]].concat(), "512 bytes, expected 148");
    that_promises_a_descriptor(&with_u16(6, 1), "descriptor count");
    that_promises_all_descriptors(&with_u16(6, u16::MAX), "descriptor count");
} }

rows! { fields: breaks_the_protocol {
    versions_upside_down(&[with_u16(8, 2)].concat(), "version range");
    a_service_without_a_name(&named(b""), "has an invalid service name");
    a_service_in_capitals(&named(b"ECHO"), "has an invalid service name");
    a_service_that_climbs(&named(b"../echo"), "has an invalid service name");
    a_service_that_is_absolute(&named(b"/etc/passwd"), "has an invalid service name");
    a_service_that_begins_with_a_dash(&named(b"-echo"), "has an invalid service name");
    a_service_with_a_control_character(&named(b"ec\x1bho"), "has an invalid service name");
    a_service_that_is_no_text(&named(b"\xff\xfe"), "has an invalid service name");
    a_service_without_an_end(&named(&[b'a'; 64]), "has an invalid service name");
    a_service_behind_its_end(&named(b"echo\0x"), "has an invalid service name");
    a_lane_of_no_bytes(&with_u32(0x68, 0), "lane size");
    a_lane_of_one_byte(&with_u32(0x68, 1), "lane size");
    a_lane_of_half_a_page(&with_u32(0x68, 2048), "lane size");
    a_lane_of_no_power_of_two(&with_u32(0x68, 12_288), "lane size");
    a_lane_one_byte_short(&with_u32(0x68, 16_383), "lane size");
    a_lane_with_only_a_sign(&with_u32(0x68, 1 << 31), "lane size");
    a_lane_of_the_greatest_number(&with_u32(0x68, u32::MAX), "lane size");
    no_doorbell(&with_u32(0x6c, 0), "doorbell");
    the_first_doorbell_that_is_none(&with_u32(0x6c, 4), "doorbell");
    the_last_doorbell(&with_u32(0x6c, u32::MAX), "doorbell");
    a_flag_of_two(&with_u32(0x70, 2), "eventfd flag");
    a_flag_of_all_bits(&with_u32(0x70, u32::MAX), "eventfd flag");
    a_least_lane_of_no_bytes(&with_u32(0x74, 0), "least lane size");
    a_least_lane_above_the_lane(&with_u32(0x74, 32 << 10), "least lane size");
    a_least_lane_of_no_power_of_two(&with_u32(0x74, 12_345), "least lane size");
    a_lane_limit_of_no_bytes(&with_u32(0x78, 0), "lane limit");
    a_lane_limit_of_no_power_of_two(&with_u32(0x78, 12_345), "lane limit");
    a_lane_limit_below_a_page(&with_u32(0x78, 4095), "lane limit");
    a_lane_limit_of_the_greatest_number(&with_u32(0x78, u32::MAX), "lane limit");
    no_shared_memory(&with_u64(0x84, 0), "shared memory limit");
    shared_memory_for_no_page_and_lane(&with_u64(0x84, 8191), "shared memory limit");
    a_lane_that_leaves_no_room_for_its_page(&with_u64(0x84, 16_384), "lane size beside the shared memory limit");
} }

rows! { refused: says {
    // Whatever follows the versions is not for this server to read.
    versions_of_the_future(RefuseCode::Incompatible, "versions 1-1, the peer 2-9", &with(8, &[2, 0, 9, 0])[..40]);
    the_last_version(RefuseCode::Incompatible, "65535", &with(8, &[0xff; 4]));
    another_service(RefuseCode::Service, "not version 1 of as-requested", &named(b"as-requested"));
    a_service_that_is_not_served(RefuseCode::Service, "not-served", &named(b"not-served"));
    another_version(RefuseCode::Service, "version 2", &with_u32(0x0c, 2));
    the_last_version_of_a_service(RefuseCode::Service, "version 4294967294", &with_u32(0x0c, u32::MAX - 1));
    a_lane_above_the_limit(RefuseCode::Quota, "134217728 bytes is above this server's limit of 67108864", &with(0x68, &(128_u32 << 20).to_le_bytes()));
} }

#[track_caller]
fn says(code: RefuseCode, part: &str, bytes: &[u8]) {
    is_refused(code, part, |rogue| rogue.send_bytes(bytes, &[]));
}

rows! { instead: is_out_of_place {
    a_welcome(&Message::Welcome(welcome(1)));
    a_refusal(&Message::Refuse(Refuse::new(RefuseCode::Quota, "no")));
    a_join(&Message::Join(Join { session: 1 }));
    a_ready(&Message::Ready(Ready { session: 1 }));
    an_attachment(&Message::Attachment(Attachment { id: 1, generation: 0, len: 1 }));
    a_ring(&Message::Ring);
} }

#[track_caller]
fn is_out_of_place(message: &Message) {
    is_refused(RefuseCode::Protocol, "an unexpected", |rogue| rogue.send(message, &[]));
}

rows! { descriptors: arrive_with_it {
    one_that_is_announced(1, 1, "1 descriptors");
    sixteen_that_are_announced(16, 16, "16 descriptors");
    one_that_is_hidden(1, 0, "descriptor count");
    fewer_than_announced(1, 2, "descriptor count");
} }

#[track_caller]
fn arrive_with_it(fds: usize, says: u16, part: &str) {
    hide_passrights_here();
    is_refused(RefuseCode::Protocol, part, |rogue| {
        let lane = Draft::lane().make();
        rogue.send_bytes(&with_u16(6, says), &vec![lane.as_fd(); fds]);
    });
}

rows! { dropped: cannot_be_received {
    more_descriptors_than_any_message_has(&honest(), 17);
    as_many_descriptors_as_there_can_be(&honest(), 253);
    one_byte_more_than_a_message_can_have(&[b'x'; 513], 0);
    sixty_thousand_bytes(&[b'x'; 60_000], 0);
} }

#[track_caller]
fn cannot_be_received(bytes: &[u8], fds: usize) {
    hide_passrights_here();
    is_dropped(|rogue| {
        let lane = Draft::lane().make();
        rogue.send_bytes(bytes, &vec![lane.as_fd(); fds]);
    });
}

#[test]
fn a_client_that_is_not_admitted_passes_no_descriptor() {
    let fixture = TestServer::open();
    let rogue = Rogue::connect(fixture.run_dir(), "echo");
    rogue.passes_nothing();
    // Admitted, it passes its page and its lane.
    rogue.open();
}
