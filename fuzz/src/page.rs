//! The contents of pages and boards, names and sizes: a kind, then its bytes.

use bellwire_core::wire::{
    BoardHeader, CloseReason, Doorbell, Kind, PageHeader, PageState, Role, Status, record_len,
};
use bellwire_core::{Geometry, ServiceName};
use zerocopy::{FromBytes, IntoBytes};

use crate::script::Script;

/// Parses a page, a board, a name or a size, and compares it with what a well-behaved peer would write.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    match script.byte() % 6 {
        0 => page(&script),
        1 => board(&script),
        2 => words(&script),
        3 => name(script.rest()),
        4 => field(script.array()),
        _ => size(script.u64()),
    }
}

fn page(script: &Script<'_>) {
    let role = if script.byte() & 1 == 0 { Role::Client } else { Role::Server };
    let (session, size) = (script.u64(), u32::from_le_bytes(script.array()));
    let bytes: [u8; 128] = script.array();
    let Ok(name) = ServiceName::parse(script.sized()) else { return };
    let header = PageHeader::read_from_bytes(&bytes).expect("it has that size");
    if header.check(role, session, size, name).is_ok() {
        let created = u64::from_le_bytes(*bytes[0x20..].first_chunk().unwrap());
        let mut expected = PageHeader::new(role, session, header.pid(), size, created, name);
        expected.as_mut_bytes()[0x68..].copy_from_slice(&bytes[0x68..]);
        assert_eq!(expected.as_bytes(), bytes);
    }
}

fn board(script: &Script<'_>) {
    let bytes: [u8; 128] = script.array();
    let Ok(name) = ServiceName::parse(script.sized()) else { return };
    let header = BoardHeader::read_from_bytes(&bytes).expect("it has that size");
    if header.check(name).is_ok() {
        let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let pid = (number(0x0c) & 0xffff_ffff) as u32;
        let mut expected = BoardHeader::new(pid, number(0x10), name);
        expected.as_mut_bytes()[0x58..].copy_from_slice(&bytes[0x58..]);
        assert_eq!(expected.as_bytes(), bytes);
    }
}

fn words(script: &Script<'_>) {
    let word = script.u64();
    if let Some((state, reason)) = PageState::parse(word) {
        assert_eq!(state.word(reason), word);
    }
    if let Some(reason) = CloseReason::parse(word) {
        assert_eq!(reason as u64, word);
    }
    if let Some(doorbell) = Doorbell::parse(word as u32) {
        assert_eq!(doorbell as u32, word as u32);
    }
    if let Some(kind) = Kind::parse(word as u8) {
        assert_eq!(kind as u8, word as u8);
    }
    if let Some(status) = Status::parse(word as u16) {
        assert_eq!(status as u16, word as u16);
    }
}

fn is_name(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    (1..=ServiceName::MAX).contains(&text.len()) && text[0] != b'-' && text.iter().all(fits)
}

fn name(text: &[u8]) {
    let parsed = ServiceName::parse(text);
    assert_eq!(parsed.is_ok(), is_name(text));
    if let Ok(name) = parsed {
        assert_eq!(name.as_str().as_bytes(), text);
        assert_eq!(ServiceName::from_field(&name.to_field()), Ok(name));
    }
}

fn field(field: [u8; 64]) {
    let len = field.iter().position(|byte| *byte == 0).unwrap_or(64);
    let parsed = ServiceName::from_field(&field);
    let padded = field[len..].iter().all(|byte| *byte == 0);
    assert_eq!(parsed.is_ok(), padded && is_name(&field[..len]));
    if let Ok(name) = parsed {
        assert_eq!(name.to_field(), field);
    }
}

fn size(size: u64) {
    let valid = size.is_power_of_two() && (4096..=1 << 30).contains(&size);
    assert_eq!(Geometry::new(size).map(Geometry::size).ok(), valid.then_some(size));
    let Ok(payload) = usize::try_from(size) else { return };
    match Geometry::for_payload(payload) {
        Some(lane) => {
            assert!(payload <= lane.max_payload());
            let record = record_len(payload as u32);
            assert!(2 * (record + 32) <= lane.size(), "it fits at every position");
            let half = Geometry::new(lane.size() / 2);
            assert!(half.is_err() || half.is_ok_and(|half| payload > half.max_payload()));
        }
        None => assert!(payload > Geometry::LARGEST.max_payload()),
    }
}
