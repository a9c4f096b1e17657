//! Payloads and headers, against bytes that were worked out by hand from the documents (on a little-endian machine), and
//! against any bytes at all.

use std::sync::Arc;
use std::time::Duration;

use bellwire_core::batch::{BatchBuilder, BatchView};
use bellwire_core::wire::{Refuse, RefuseCode, Status as Outcome};
use bellwire_core::{Instant, StallStatus};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use crate::bytes::TableWriter;
use crate::handshake::{Agreed, Terms, answer_hello, is_netipc};
use crate::lookup::{
    self, App, Cgroup, CgroupName, Process, ProcessCgroup, read_apps, read_cgroups, write_apps,
    write_cgroups,
};
use crate::method::{INCREMENT, Method, SnapshotMethod};
use crate::server::{Request, SessionMachine, Translation, Wanted};
use crate::snapshot::{Item, View, check_request, simple_hash, write};
use crate::wire::{Header, REQUEST};
use crate::{Status, Token};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

const HELLO: &str = "4350494e 0100 2000 0300 0000 0100 0000 2c000000 01000000 0900000000000000
    0100 0000 07000000 04000000 00040000 10000000 00100000 10000000 00000000 8877665544332211 00000400";

fn terms() -> Terms {
    let token = Some(Token::new(0x1122_3344_5566_7788));
    Terms { token, max_request: 4096, max_response: (2048, 8192), session: 5 }
}

#[test]
fn a_hello_and_its_answer_have_the_documented_bytes() {
    assert!(is_netipc(&hex(HELLO)) && !is_netipc(b"BWC1") && !is_netipc(b"CPI"));
    let (agreed, ack) = answer_hello(&hex(HELLO), &terms()).unwrap();
    let expected = "4350494e 0100 2000 0300 0000 0200 0000 30000000 01000000 0900000000000000
        0100 0000 01000000 01000000 01000000 00040000 10000000 00100000 10000000 00000100 00000000
        0500000000000000";
    assert_eq!(ack[..], hex(expected));
    let expected =
        Agreed { max_request: 1024, max_response: 4096, max_items: 16, packet: 65_536, session: 5 };
    assert_eq!(agreed, expected);
    let mut other = hex(HELLO);
    other[64] ^= 1;
    let (status, ack) = answer_hello(&other, &terms()).unwrap_err();
    assert_eq!((status, ack[14], ack[24]), (Status::AuthFailed, 2, 9));
}

#[test]
fn a_snapshot_has_the_documented_bytes_and_round_trips() {
    let item = Item { options: 6, enabled: true, name: "ab", path: "/x" };
    let payload = write([item, Item { name: "", path: "", ..item }].into_iter(), true, 3);
    let expected = "0100 0000 02000000 01000000 00000000 0300000000000000
        00000000 26000000 28000000 22000000
        0100 0000 382d7770 06000000 01000000 20000000 02000000 23000000 02000000 616200 2f7800 0000
        0100 0000 c59d1c81 06000000 01000000 20000000 00000000 21000000 00000000 00 00";
    assert_eq!(simple_hash("ab"), 0x7077_2d38);
    assert_eq!(payload, hex(expected));
    let view = View::parse(&payload).unwrap();
    assert_eq!((view.generation, view.systemd, view.items.len()), (3, true, 2));
    assert_eq!(view.items[0], item);
    for len in 0..payload.len() {
        View::parse(&payload[..len]).unwrap_err();
    }
}

fn cgroup(labels: usize) -> Cgroup {
    let label = |nth| (format!("key{nth}"), String::new());
    let labels = (0..labels).map(label).collect();
    Cgroup::Known { orchestrator: 2, name: "web".into(), labels }
}

#[test]
fn a_lookup_has_the_documented_bytes_and_round_trips() {
    let known =
        Cgroup::Known { orchestrator: 2, name: "w".into(), labels: vec![("k".into(), "v".into())] };
    let items = [(&b"/a"[..], known), (b"/b", Cgroup::RetryLater)];
    let mut payload = Vec::new();
    write_cgroups(&items, 9, 1000, &mut payload).unwrap();
    let expected = "0100 0000 02000000 0900000000000000 00000000 3c000000 40000000 20000000
        0100 0000 0200 0000 1c000000 02000000 1f000000 01000000 0100 0000 2f6100 7700 00000000000000
        38000000 01000000 3a000000 01000000 6b00 7600 00000000
        0100 0100 0000 0000 1c000000 02000000 1f000000 00000000 0000 0000 2f6200 00";
    let expected = hex(expected);
    // The labels' table begins at the next multiple of 8 behind byte 33: at 40.
    assert_eq!(payload, expected);
    let answers = read_cgroups(&payload, &["/a", "/b"]).unwrap();
    assert_eq!(answers.generation, 9);
    let found: Vec<_> = items.iter().map(|(_, cgroup)| Some(cgroup.clone())).collect();
    assert_eq!(answers.items, found);
    read_cgroups(&payload, &["/a", "/c"]).unwrap_err();
    read_cgroups(&payload, &["/a"]).unwrap_err();
    for len in 0..payload.len() {
        read_cgroups(&payload[..len], &["/a", "/b"]).unwrap_err();
    }
}

#[test]
fn a_process_round_trips_with_a_cgroup_in_any_state() {
    let name =
        CgroupName { orchestrator: 1, name: "n".into(), labels: vec![("a".into(), "b".into())] };
    let cgroups = [
        ProcessCgroup::Known("/x".into(), name),
        ProcessCgroup::RetryLater(String::new()),
        ProcessCgroup::RetryLater("/x".into()),
        ProcessCgroup::Unknown("/x".into()),
        ProcessCgroup::HostRoot,
    ];
    let process = |cgroup| {
        let (ppid, uid, started, comm) = (1, 1000, 12_345, "init".into());
        App::Known(Process { ppid, uid, started, comm, cgroup })
    };
    let mut items: Vec<(u32, App)> = (7..).zip(cgroups.map(process)).collect();
    items.extend([(1, App::Unknown), (2, App::Oversized)]);
    let mut payload = Vec::new();
    write_apps(&items, 4, 10_000, &mut payload).unwrap();
    let pids: Vec<u32> = items.iter().map(|(pid, _)| *pid).collect();
    let answers = read_apps(&payload, &pids).unwrap();
    assert!(answers.items.into_iter().eq(items.iter().map(|(_, app)| Some(app.clone()))));
    for len in 0..payload.len() {
        read_apps(&payload[..len], &pids).unwrap_err();
    }
}

#[test]
fn items_that_do_not_fit_wait_for_the_next_request_or_are_oversized() {
    let items =
        [(&b"/a"[..], cgroup(0)), (b"/b", cgroup(100)), (b"/c", cgroup(0)), (b"/d", cgroup(9))];
    let paths = ["/a", "/b", "/c", "/d"];
    let read = |room| {
        let mut payload = Vec::new();
        write_cgroups(&items, 1, room, &mut payload)?;
        assert!(payload.len() <= room, "{} of {room}", payload.len());
        Ok::<_, Status>(read_cgroups(&payload, &paths).unwrap().items)
    };
    let [a, c, d] = [0, 2, 3].map(|nth: usize| Some(items[nth].1.clone()));
    let oversized = Some(Cgroup::Oversized);
    assert_eq!(read(1 << 20).unwrap()[1], Some(items[1].1.clone()));
    assert_eq!(read(600), Ok(vec![a.clone(), oversized.clone(), c.clone(), d]));
    assert_eq!(read(390), Ok(vec![a, oversized, c, None]));
    // Not even the first: a client that asked for the same again would never end.
    assert_eq!(read(100), Err(Status::LimitExceeded));
}

#[test]
fn terms_have_room_for_the_newest_snapshot_twice_over_within_the_limit() {
    let terms = |limit, newest| {
        let Terms { max_request, max_response, .. } = Terms::new(None, limit, newest, 5);
        (max_request, max_response)
    };
    assert_eq!(terms(8 << 20, 0), (1 << 20, (64 << 10, 8 << 20)));
    assert_eq!(terms(8 << 20, 3 << 20), (1 << 20, (8 << 20, 8 << 20)));
    assert_eq!(terms(1000, 300), (1000, (1000, 1000)));
    assert_eq!(terms(u64::MAX, 100_000), (1 << 20, (256 << 10, 64 << 20)));
}

#[test]
fn a_refusal_in_either_protocol_has_its_status_or_code_in_the_other() {
    assert_eq!(Status::from(RefuseCode::Token), Status::AuthFailed);
    assert_eq!(Status::from(RefuseCode::Quota), Status::Internal);
    let refusal = Refuse::from(Status::AuthFailed);
    assert_eq!(refusal.code, RefuseCode::Token);
    assert!(refusal.reason().contains("NETDATA_INVOCATION_ID"), "{}", refusal.reason());
    let refusal = Refuse::from(Status::Unsupported);
    assert_eq!(refusal.code, RefuseCode::Incompatible);
    assert!(refusal.reason().contains("--netipc"), "{}", refusal.reason());
}

const SNAPSHOT: SnapshotMethod = SnapshotMethod {
    code: 2,
    check: check_request,
    translate: |bytes, generation| Some([bytes, &generation.to_le_bytes()].concat()),
};

#[test]
fn a_generation_is_translated_once() {
    let mut translation = Translation::new(Method::Snapshot(SNAPSHOT));
    assert!(translation.newest(0, || None).is_none(), "none was published");
    let first = translation.newest(1, || Some((1, vec![7]))).unwrap();
    assert_eq!(first[..], [7, 1, 0, 0, 0, 0, 0, 0, 0]);
    let again = translation.newest(1, || panic!("it was translated")).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    // One was published while it was read.
    let third = translation.newest(2, || Some((3, vec![8]))).unwrap();
    assert_eq!(third[..2], [8, 3]);
    translation.newest(3, || panic!("it was translated")).unwrap();
    assert!(Translation::new(Method::Calls(INCREMENT)).newest(1, || panic!("a call")).is_none());
}

/// Returns a session that has taken a request with these payloads.
fn asked(code: u16, payloads: &[&[u8]]) -> (SessionMachine, Request) {
    let agreed =
        Agreed { max_request: 500, max_response: 500, max_items: 4, packet: 600, session: 1 };
    let mut payload = payloads.concat();
    if payloads.len() > 1 {
        payload.clear();
        let mut table = TableWriter::begin(&mut payload, payloads.len());
        payloads.iter().for_each(|item| table.item(|into| into.extend_from_slice(item)));
    }
    let items = payloads.len().try_into().unwrap();
    let header = Header::new(REQUEST, code, payload.len(), items, 9).with_batch(items > 1);
    let mut session = SessionMachine::new(agreed);
    let request = session.receive(&[header.as_bytes(), &payload].concat()).unwrap().unwrap();
    (session, request)
}

#[test]
fn a_request_is_a_batch_of_the_service_and_its_answers_are_payloads() {
    for count in [1, 3] {
        let numbers: Vec<_> = (40..40 + count).map(u64::to_ne_bytes).collect();
        let payloads: Vec<&[u8]> = numbers.iter().map(<[u8; 8]>::as_slice).collect();
        let (mut session, request) = asked(1, &payloads);
        let len = request.len();
        let wanted = session.begin(request, &Method::Calls(INCREMENT), 3).unwrap();
        let Wanted::Calls(batch) = wanted else { panic!("{wanted:?}") };
        assert!(session.is_handling() && session.held() == len);
        let mut answers = BatchBuilder::new(1000);
        for item in BatchView::parse(&batch).unwrap() {
            let number = u64::from_le_bytes(item.bytes.try_into().unwrap()) + 1;
            answers.push(|into| into.extend_from_slice(&number.to_le_bytes())).unwrap();
        }
        let payloads = session.translate(Outcome::Ok, answers.finish(), 1).unwrap();
        let expected = (41..41 + count).map(|number| number.to_ne_bytes().to_vec());
        assert!(payloads.iter().cloned().eq(expected), "{payloads:?}");
        assert!(!session.is_handling() && session.held() == 0);
        session.answer(session.joined(&payloads));
        let mut datagram = Vec::new();
        assert!(session.datagram(&mut datagram) && datagram.len() > 32);
    }
}

#[test]
fn requests_that_no_handler_can_answer_are_refused() {
    let begin = |code, payloads: &[&[u8]], method: Method, most| {
        let (mut session, request) = asked(code, payloads);
        session.begin(request, &method, most)
    };
    let (number, calls) = (&[0; 8][..], Method::Calls(INCREMENT));
    assert_eq!(begin(7, &[number], calls, 9), Err(Status::Unsupported));
    assert_eq!(begin(1, &[b"1"], calls, 9), Err(Status::BadEnvelope));
    assert_eq!(begin(1, &[number; 3], calls, 2), Err(Status::LimitExceeded));
    let single = Method::Calls(crate::method::CallMethod { takes_batches: false, ..INCREMENT });
    assert_eq!(begin(1, &[number; 2], single, 9), Err(Status::BadEnvelope));
    let snapshot = Method::Snapshot(SNAPSHOT);
    assert_eq!(begin(2, &[&[1, 0, 0, 0]], snapshot, 9), Ok(Wanted::Snapshot));
    let unchecked = Method::Snapshot(SnapshotMethod { check: |_| Ok(()), ..SNAPSHOT });
    assert_eq!(begin(2, &[&[1, 0, 0, 0][..]; 2], unchecked, 9), Err(Status::BadEnvelope));
    assert_eq!(begin(2, &[number], snapshot, 9), Err(Status::BadEnvelope));
    // Answers that are missing, or none.
    let (mut session, request) = asked(1, &[number]);
    session.begin(request, &calls, 9).unwrap();
    assert_eq!(session.translate(Outcome::Panicked, &[], 1), Err(Status::Internal));
    assert_eq!(session.translate(Outcome::Ok, &[], 1), Err(Status::Internal), "none is awaited");
}

#[test]
fn a_client_is_stalled_when_it_has_taken_no_datagram_for_the_limit() {
    let (mut session, _) = asked(1, &[&[0; 8]]);
    let (at, limit) =
        (|secs| Instant::default().after(Duration::from_secs(secs)), Duration::from_secs(5));
    session.answer(vec![0; 400].into());
    assert_eq!(session.check_stalled(at(9), limit), StallStatus::CaughtUp);
    session.not_sent(at(10));
    session.not_sent(at(12));
    assert_eq!(session.check_stalled(at(14), limit), StallStatus::CheckAt(at(15)));
    assert_eq!(session.check_stalled(at(15), limit), StallStatus::Stalled);
    session.sent();
    assert_eq!(session.check_stalled(at(15), limit), StallStatus::CaughtUp);
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..200, to: u8) {
        let _ = answer_hello(&bytes, &terms());
        let _ = (lookup::paths(&bytes), lookup::pids(&bytes), View::parse(&bytes));
        let _ = (read_cgroups(&bytes, &["/"]), read_apps(&bytes, &[1]));
        let mut hello = hex(HELLO);
        if let Some(byte) = hello.get_mut(at) {
            *byte = to;
        }
        let _ = answer_hello(&hello, &terms());
        // A good payload with one byte changed.
        let mut payload = Vec::new();
        write_cgroups(&[(b"/a", cgroup(2))], 1, 4096, &mut payload).unwrap();
        if let Some(byte) = payload.get_mut(at) {
            *byte = to;
        }
        let _ = read_cgroups(&payload, &["/a"]);
    }

    #[test]
    fn a_session_takes_any_datagrams_and_holds_no_more_than_came(
        datagrams in prop::collection::vec((any::<[u8; 32]>(), 0_usize..100, any::<bool>()), 1..20),
    ) {
        let agreed = Agreed { max_request: 500, max_response: 500, max_items: 4, packet: 64, session: 1 };
        let mut session = SessionMachine::new(agreed);
        let mut came = 0;
        for (noise, len, is_plausible) in datagrams {
            let mut datagram = noise.to_vec();
            if is_plausible {
                // A header that could be one, with lengths that are not.
                datagram[..14].copy_from_slice(&hex("4350494e 0100 2000 0100 0000 0100"));
                datagram[14..16].fill(0);
                datagram[17..20].fill(0);
                datagram[20..24].copy_from_slice(&[1, 0, 0, 0]);
            }
            datagram.resize(32 + len, 0);
            came += datagram.len();
            match session.receive(&datagram) {
                Ok(Some(request)) => {
                    prop_assert!(request.len() <= 500);
                    session.refuse(Status::Unsupported);
                    let mut sent = Vec::new();
                    while session.datagram(&mut sent) {
                        session.sent();
                    }
                }
                Ok(None) => prop_assert!(session.held() <= came),
                Err(_) => return Ok(()),
            }
        }
    }
}
