//! Bytes: what is written is read again, and nothing else panics.

use bellwire_core::lane::Epoch;
use bellwire_core::wire::{
    ALIGN, Attachment, BoardHeader, CloseReason, ControlError, Doorbell, HEADER, Header, Hello,
    Join, Kind, MAX_CONTROL, Message, PageHeader, PageState, Ready, Refuse, RefuseCode, Role,
    Status, Versions, Welcome, record_len,
};
use bellwire_core::{Geometry, Limits, NameError, ServiceName};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) fn encode(message: &Message, fds: usize) -> Vec<u8> {
    let mut bytes = [0xaa; MAX_CONTROL];
    let len = message.encode(u16::try_from(fds).unwrap(), &mut bytes);
    bytes[..len].to_vec()
}

fn name() -> impl Strategy<Value = ServiceName> {
    "[a-z0-9][a-z0-9-]{0,62}".prop_map(|name| name.parse().unwrap())
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (12_u32..=30).prop_map(|bits| Geometry::new(1 << bits).unwrap())
}

fn doorbell() -> impl Strategy<Value = Doorbell> {
    prop_oneof![Just(Doorbell::Futex), Just(Doorbell::Eventfd), Just(Doorbell::Socket)]
}

fn code() -> impl Strategy<Value = RefuseCode> {
    prop_oneof![
        Just(RefuseCode::Incompatible),
        Just(RefuseCode::Credentials),
        Just(RefuseCode::Token),
        Just(RefuseCode::Service),
        Just(RefuseCode::Quota),
        Just(RefuseCode::Stopping),
        Just(RefuseCode::Protocol),
        Just(RefuseCode::Resources),
        Just(RefuseCode::Schema),
    ]
}

/// A lane, the least that it goes to, and limits.
fn sizes() -> impl Strategy<Value = (Geometry, Geometry, Limits)> {
    let shared = Limits::MIN_SHARED..;
    (geometry(), geometry(), geometry(), any::<u64>(), shared).prop_map(
        |(lane, other, max_lane, max_message, max_shared_bytes_per_session)| {
            let limits = Limits { max_message, max_lane, max_shared_bytes_per_session };
            let lane = limits.lane_within_limit(lane.max(other));
            (lane, lane.min(other), limits)
        },
    )
}

fn hello() -> impl Strategy<Value = Message> {
    let versions = (0..=1_u16, 1..=u16::MAX).prop_map(|(min, max)| Versions { min, max });
    let rest = (any::<[u64; 2]>(), name(), any::<u32>(), any::<[u8; 16]>(), sizes());
    (versions, rest, doorbell(), any::<bool>()).prop_map(|(versions, rest, doorbell, rings)| {
        let ([features, schema], service, service_version, token, (lane, least_lane, limits)) =
            rest;
        Message::Hello(Hello {
            versions,
            features,
            service,
            service_version,
            token,
            lane,
            least_lane,
            limits,
            doorbell,
            rings_eventfd: rings,
            schema,
        })
    })
}

fn message() -> impl Strategy<Value = Message> {
    let numbers = (any::<u16>(), any::<[u64; 3]>(), any::<u32>());
    let welcome = (numbers, sizes(), doorbell()).prop_map(
        |(
            (version, [features, session, schema], max_batch),
            (lane, least_lane, limits),
            doorbell,
        )| {
            Message::Welcome(Welcome {
                version,
                features,
                session,
                lane,
                least_lane,
                limits,
                doorbell,
                max_batch,
                schema,
            })
        },
    );
    let refuse = (code(), "[^\\p{C}]{0,300}")
        .prop_map(|(code, reason)| Message::Refuse(Refuse::new(code, &reason)));
    let attachment = any::<(u64, u64, u64)>()
        .prop_map(|(id, generation, len)| Message::Attachment(Attachment { id, generation, len }));
    let lane =
        (any::<u32>(), geometry()).prop_map(|(number, size)| Message::Lane(Epoch { number, size }));
    prop_oneof![
        4 => hello(),
        4 => welcome,
        4 => refuse,
        1 => any::<u64>().prop_map(|session| Message::Join(Join { session })),
        1 => any::<u64>().prop_map(|session| Message::Ready(Ready { session })),
        1 => attachment,
        1 => lane,
        1 => Just(Message::Ring),
    ]
}

proptest! {
    #[test]
    fn an_encoded_message_parses_to_itself(message in message(), fds in 0_usize..8) {
        let bytes = encode(&message, fds);
        prop_assert!(bytes.len() <= MAX_CONTROL);
        prop_assert_eq!(Message::parse(&bytes, fds), Ok(message));
        prop_assert_eq!(
            Message::parse(&bytes, fds + 1),
            Err(ControlError::Field { field: "descriptor count" })
        );
    }

    /// A client of any foreign version gets that refusal, whatever follows the versions in its HELLO.
    #[test]
    fn a_foreign_version_is_known_by_its_first_bytes(
        min in 2_u16.., span in 0_u16..100, rest in proptest::collection::vec(any::<u8>(), 0..300)
    ) {
        let versions = Versions { min, max: min.saturating_add(span) };
        let mut bytes = b"BWC1\x01\0\0\0".to_vec();
        bytes.extend(versions.min.to_le_bytes());
        bytes.extend(versions.max.to_le_bytes());
        bytes.extend(rest);
        prop_assert_eq!(Message::parse(&bytes, 0), Err(ControlError::Version(versions)));
    }

    #[test]
    fn the_common_version_is_the_newest_of_both(a in 0_u16..20, b in 0_u16..20, c in 0_u16..20, d in 0_u16..20) {
        let one = Versions { min: a.min(b), max: a.max(b) };
        let other = Versions { min: c.min(d), max: c.max(d) };
        let newest = one.range().filter(|version| other.range().contains(version)).max();
        prop_assert_eq!(one.common(other), newest);
        prop_assert_eq!(other.common(one), newest);
    }

    #[test]
    fn names_are_kept_and_everything_else_is_refused(text in proptest::collection::vec(any::<u8>(), 0..70)) {
        let good = |at: usize, byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9') || (*byte == b'-' && at > 0);
        let valid = (1..=63).contains(&text.len()) && text.iter().enumerate().all(|(at, byte)| good(at, byte));
        match ServiceName::parse(&text) {
            Ok(name) => {
                prop_assert!(valid);
                prop_assert_eq!(name.as_str().as_bytes(), &text[..]);
            }
            Err(_) => prop_assert!(!valid),
        }
    }

    #[test]
    fn a_name_survives_its_field(name in name()) {
        prop_assert_eq!(ServiceName::from_field(&name.to_field()), Ok(name));
        prop_assert_eq!(name.to_string().parse(), Ok(name));
        let mut field = name.to_field();
        if field[63] == 0 && field[62] == 0 {
            field[63] = b'x';
            prop_assert_eq!(ServiceName::from_field(&field), Err(NameError::BadByte { at: 63 }));
        }
    }

    #[test]
    fn a_size_is_a_lane_only_if_it_is_a_power_of_two_in_range(size in any::<u64>(), bits in 0_u32..40) {
        for size in [size, 1 << bits, (1 << bits) + 1] {
            let valid = size.is_power_of_two() && (4096..=1 << 30).contains(&size);
            prop_assert_eq!(Geometry::new(size).map(Geometry::size).ok(), valid.then_some(size));
        }
    }

    #[test]
    fn the_lane_for_a_payload_carries_it_and_half_of_it_would_not(payload in 0_usize..1 << 29) {
        if let Some(lane) = Geometry::for_payload(payload) {
            prop_assert!(lane.max_payload() >= payload);
            if let Ok(half) = Geometry::new(lane.size() / 2) {
                prop_assert!(half.max_payload() < payload);
            }
        } else {
            prop_assert!(payload > Geometry::new(1 << 30).unwrap().max_payload());
        }
    }

    #[test]
    fn a_record_is_its_header_and_its_payload_in_whole_blocks(len in any::<u32>()) {
        let record = record_len(len);
        prop_assert!(record % ALIGN as u64 == 0);
        let used = u64::from(len) + HEADER as u64;
        prop_assert!((used..used + ALIGN as u64).contains(&record));
    }

    #[test]
    fn a_header_is_sixteen_bytes_as_documented(id in any::<u64>(), len in any::<u32>()) {
        let header = Header::new(Kind::Response, Status::TooLarge, id, len);
        let bytes = header.as_bytes();
        prop_assert_eq!(&bytes[..4], &len.to_le_bytes());
        prop_assert_eq!(&bytes[4..8], &[2, 0, 6, 0]);
        prop_assert_eq!(&bytes[8..], &id.to_le_bytes());
    }

    #[test]
    fn every_code_is_one_enum_value_and_the_rest_is_none(code in any::<u32>()) {
        for code in [code, code % 16] {
            if let Some(kind) = u8::try_from(code).ok().and_then(Kind::parse) {
                prop_assert_eq!(kind as u32, code);
            }
            if let Some(status) = u16::try_from(code).ok().and_then(Status::parse) {
                prop_assert_eq!(status as u32, code);
            }
            if let Some(doorbell) = Doorbell::parse(code) {
                prop_assert_eq!(doorbell as u32, code);
            }
            if let Some(reason) = CloseReason::parse(code.into()) {
                prop_assert_eq!(reason as u32, code);
            }
        }
        let known = |codes: u32, parse: &dyn Fn(u32) -> bool| (0..100).filter(|code| parse(*code)).count() as u32 == codes;
        prop_assert!(known(8, &|code| Kind::parse(code as u8).is_some()));
        prop_assert!(known(10, &|code| Status::parse(code as u16).is_some()));
        prop_assert!(known(3, &|code| Doorbell::parse(code).is_some()));
        prop_assert!(known(4, &|code| CloseReason::parse(code.into()).is_some()));
    }

    #[test]
    fn a_state_word_is_parsed_again_or_refused(word in any::<u64>(), low in 0_u64..5, high in 0_u64..6) {
        for word in [word, low | high << 32] {
            if let Some((state, reason)) = PageState::parse(word) {
                prop_assert_eq!(state.word(reason), word);
            }
        }
        let known = (low == 1 || low == 3) && high <= 4;
        prop_assert_eq!(PageState::parse(low | high << 32).is_some(), known);
    }

    /// A page of another session, and one that differs in any of the bytes that are checked, is refused.
    #[test]
    fn a_page_is_checked_field_by_field(session in any::<u64>(), pid in any::<u32>(), at in 0_usize..128, flip in 1_u8..) {
        let name: ServiceName = "cgroups-snapshot".parse().unwrap();
        let page = PageHeader::new(Role::Server, session, pid, 16384, 7, name);
        prop_assert_eq!(page.check(Role::Server, session, 16384, name), Ok(()));
        prop_assert_eq!((page.pid(), page.session()), (pid, session));
        let mut bytes = <[u8; 128]>::try_from(page.as_bytes()).unwrap();
        bytes[at] ^= flip;
        let changed = PageHeader::read_from_bytes(&bytes).unwrap().check(Role::Server, session, 16384, name);
        let checked = !matches!(at, 0x18..0x1c | 0x20..0x28 | 0x68..);
        prop_assert_eq!(changed.is_err(), checked, "byte {}", at);
    }

    #[test]
    fn a_board_is_checked_field_by_field(at in 0_usize..128, flip in 1_u8..) {
        let name: ServiceName = "cgroups-snapshot".parse().unwrap();
        let board = BoardHeader::new(1, 2, name);
        prop_assert_eq!(board.check(name), Ok(()));
        let mut bytes = <[u8; 128]>::try_from(board.as_bytes()).unwrap();
        bytes[at] ^= flip;
        let changed = BoardHeader::read_from_bytes(&bytes).unwrap().check(name);
        let checked = !matches!(at, 0x0c..0x18 | 0x58..);
        prop_assert_eq!(changed.is_err(), checked, "byte {}", at);
    }
}

/// Half of the lane, less the room of a switch record, less the header.
#[test]
fn the_largest_payload_of_each_size() {
    for bits in 12..=30 {
        let size = 1_usize << bits;
        assert_eq!(Geometry::new(size as u64).unwrap().max_payload(), size / 2 - 32 - 16);
    }
    assert_eq!(Geometry::default().size(), 16384);
    assert_eq!(Geometry::for_payload(0).unwrap().size(), 4096);
    for bits in 12..=29 {
        let lane = Geometry::new(1 << bits).unwrap();
        assert_eq!(Geometry::for_payload(lane.max_payload()), Some(lane));
        assert_eq!(Geometry::for_payload(lane.max_payload() + 1), Some(lane.doubled()));
    }
    assert_eq!(Geometry::for_payload(usize::MAX), None);
}

#[test]
fn a_name_has_the_rules_that_it_documents() {
    assert_eq!(ServiceName::parse(b""), Err(NameError::Empty));
    assert_eq!(ServiceName::parse(b"-a"), Err(NameError::BadByte { at: 0 }));
    assert_eq!(ServiceName::parse(b"a/b"), Err(NameError::BadByte { at: 1 }));
    assert_eq!(ServiceName::parse(b"A"), Err(NameError::BadByte { at: 0 }));
    assert!(ServiceName::parse(&[b'a'; 63]).is_ok());
    assert_eq!(ServiceName::parse(&[b'a'; 64]), Err(NameError::TooLong { len: 64 }));
    assert_eq!(ServiceName::parse(&[b'a'; 300]), Err(NameError::TooLong { len: 300 }));
    assert_eq!(ServiceName::from_field(&[b'a'; 64]), Err(NameError::TooLong { len: 64 }));
    assert_eq!(ServiceName::from_field(&[0; 64]), Err(NameError::Empty));
}

#[test]
fn a_reason_is_cut_at_a_character_and_control_characters_are_refused() {
    let long = "ä".repeat(200);
    let refuse = Refuse::new(RefuseCode::Quota, &long);
    assert_eq!(refuse.reason(), "ä".repeat(127));
    for bad in ["a\nb", "\u{1b}[2J", "a\u{0}", "\u{85}"] {
        let bytes = encode(&Message::Refuse(Refuse::new(RefuseCode::Quota, bad)), 0);
        assert_eq!(
            Message::parse(&bytes, 0),
            Err(ControlError::Field { field: "reason" }),
            "{bad:?}"
        );
    }
    let mut bytes = encode(&Message::Refuse(Refuse::new(RefuseCode::Quota, "abc")), 0);
    bytes[16] = 0xff;
    assert_eq!(Message::parse(&bytes, 0), Err(ControlError::Field { field: "reason" }), "no UTF-8");
    bytes[14..16].copy_from_slice(&257_u16.to_le_bytes());
    assert_eq!(Message::parse(&bytes, 0), Err(ControlError::Field { field: "reason" }), "length");
}
