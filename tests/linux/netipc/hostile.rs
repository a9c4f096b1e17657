//! Hostile clients of netipc: what each does ends its own session, and disturbs no other.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::Duration;

use bellwire::IncidentCause;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{Fixture, Increment, config, hello};
use crate::support::gate::{Gate, OpenAtEnd};
use crate::support::guard::until;
use crate::support::limiter::hide_passrights_here;
use crate::support::netipc_peer::{Hello, INCREMENT, Peer, SNAPSHOT, chunk, header, table};
use crate::support::test_server::{Dir, provide_with, reconcile};

/// Bytes with another value at a place.
fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

fn request() -> Vec<u8> {
    [header(1, 0, INCREMENT, 8, 1, 1), vec![0; 8]].concat()
}

/// A request of 100 items, of which a datagram holds 68 bytes, and its first chunk.
fn long() -> (Vec<u8>, Vec<u8>) {
    let payload = table(&vec![vec![0; 8]; 100]);
    let first = [header(1, 1, INCREMENT, payload.len(), 100, 1), payload[..68].to_vec()].concat();
    (first, payload)
}

#[test]
fn each_violation_ends_its_session_alone() {
    let fixture = Fixture::new();
    let mut honest = fixture.peer("increment");
    let ((first, payload), good) = (long(), request());
    let total = payload.len() + 32;
    let second = |id, total, index, count, len| {
        let bytes = payload[68..136].to_vec();
        vec![first.clone(), [chunk(id, total, index, count, len), bytes].concat()]
    };
    let count = payload.len().div_ceil(68) as u32;
    let mut bad: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("nothing", vec![vec![]]),
        ("half a header", vec![good[..31].to_vec()]),
        ("another magic", vec![with(good.clone(), 0, b'X')]),
        ("another version", vec![with(good.clone(), 4, 2)]),
        ("another length of the header", vec![with(good.clone(), 6, 33)]),
        ("a response", vec![with(good.clone(), 8, 2)]),
        ("a second HELLO", vec![hello().datagram()]),
        ("an unknown flag", vec![with(good.clone(), 10, 2)]),
        ("a status", vec![with(good.clone(), 14, 1)]),
        ("no item", vec![with(good.clone(), 20, 0)]),
        ("two items that are no batch", vec![with(good.clone(), 20, 2)]),
        ("a payload cut short", vec![good[..39].to_vec()]),
        ("a payload and a byte", vec![[&good[..], &[0]].concat()]),
        ("more than was agreed", vec![header(1, 0, INCREMENT, (1 << 20) + 1, 1, 1)]),
        ("more items than were agreed", vec![header(1, 1, INCREMENT, 8, 100_001, 1)]),
        ("4 GiB", vec![header(1, 0, INCREMENT, u32::MAX as usize, 1, 1)]),
        ("a first chunk that is not full", vec![first[..99].to_vec()]),
        ("another request between chunks", vec![first.clone(), good.clone()]),
        ("a chunk first", vec![chunk(1, total, 1, count, 0)]),
        ("a chunk of another message", second(2, total, 1, count, 68)),
        ("a chunk of another total", second(1, total + 1, 1, count, 68)),
        ("a chunk twice", second(1, total, 0, count, 68)),
        ("a chunk left out", second(1, total, 2, count, 68)),
        ("a chunk of none", second(1, total, 1, 0, 68)),
        ("a last chunk too early", second(1, total, 1, 2, 68)),
        ("a chunk of another length", second(1, total, 1, count, 67)),
        ("an empty chunk", vec![first.clone(), chunk(1, total, 1, count, 0)]),
    ];
    for (nth, (at, value)) in [(0, 0), (4, 2), (6, 1)].into_iter().enumerate() {
        let mut datagrams = second(1, total, 1, count, 68);
        datagrams[1][at] = value;
        bad.push((["a chunk's magic", "a chunk's version", "a chunk's flags"][nth], datagrams));
    }
    for ((name, datagrams), poisoned) in bad.iter().zip(1..) {
        let peer = Peer::open(&fixture.path("increment"), Hello { packet: 100, ..hello() });
        for datagram in datagrams {
            let _ = peer.send(datagram);
        }
        assert!(peer.is_closed(), "{name}");
        until(name, || fixture.server.stats().poisoned == poisoned);
        assert_eq!(honest.call(INCREMENT, 1, &[0; 8]).status, 0, "{name}");
    }
    fixture.call();
    let incidents = fixture.server.incidents();
    let is_named = |cause: &IncidentCause| matches!(cause, IncidentCause::NetipcViolation(_));
    assert!(incidents.iter().all(|incident| is_named(&incident.cause)), "{incidents:?}");
    drop(honest);
    let stats = fixture.drained();
    assert_eq!((stats.errors, stats.lost), (0, 0), "{stats:?}");
}

#[test]
fn a_batch_with_misplaced_items_is_refused() {
    let fixture = Fixture::new();
    let good = table(&[vec![0; 8], vec![0; 8]]);
    for (name, at, value) in [
        ("not at a multiple of 8", 0, 4),
        ("behind the end", 9, 1),
        ("too long", 13, 1),
        ("two at one place", 8, 0),
    ] {
        let mut peer = fixture.peer("increment");
        assert_eq!(peer.call(INCREMENT, 2, &with(good.clone(), at, value)).status, 1, "{name}");
        assert!(peer.is_closed(), "{name}");
    }
    let mut peer = fixture.peer("increment");
    assert_eq!(peer.call(INCREMENT, 100_000, &good).status, 1, "a directory that is cut off");
}

#[test]
fn descriptors_do_not_belong_to_netipc() {
    hide_passrights_here();
    let fixture = Fixture::new();
    // Not the peer's own socket, which the server would shut down.
    let file = File::open("/dev/null").unwrap();
    let send = |peer: &Peer, bytes: &[u8]| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(peer.socket(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    };
    let peer = fixture.peer("increment");
    send(&peer, &request());
    assert!(peer.is_closed());
    let peer = Peer::connect(&fixture.path("increment"));
    send(&peer, &hello().datagram());
    assert_eq!(peer.receive().map(|ack| ack.status), Some(1));
    fixture.call();
}

#[test]
fn a_client_without_a_whole_hello_is_refused_at_the_timeout() {
    let fixture = Fixture::with(config().handshake_timeout(Duration::from_millis(50)));
    let silent = Peer::connect(&fixture.path("increment"));
    until("the time is over", || fixture.server.stats().handshakes_failed == 1);
    drop(silent);
    let fixture = Fixture::new();
    let half = Peer::connect(&fixture.path("increment"));
    half.send(&hello().datagram()[..40]).unwrap();
    assert_eq!(half.receive().map(|ack| ack.status), Some(1));
    fixture.call();
}

#[test]
fn a_client_that_reads_nothing_is_closed_and_delays_no_other_client() {
    let fixture = Fixture::with(config().stall_timeout(Some(Duration::from_millis(200))));
    fixture.bytes.publish(&vec![7; 8 << 20]).unwrap();
    let mut greedy = fixture.peer("bytes");
    // More answers than its socket holds, of which it takes none.
    for _ in 0..4 {
        greedy.ask(SNAPSHOT, 1, &[1, 0, 0, 0]);
    }
    let mut honest = fixture.peer("increment");
    until("it is closed for that", || {
        assert_eq!(honest.call(INCREMENT, 1, &[0; 8]).status, 0);
        fixture.server.stats().stalled == 1
    });
    drop((greedy, honest));
    assert_eq!(fixture.drained().stalled, 1);
}

#[test]
fn a_flood_waits_in_its_own_socket() {
    for workers in [0, 1] {
        let fixture = Fixture::with(config().workers(workers));
        let flood = fixture.peer("increment");
        // Until the socket takes no more: the answers are not read, so the server takes no more either.
        let batch = table(&vec![vec![0; 8]; 4000]);
        let message = [header(1, 1, INCREMENT, batch.len(), 4000, 1), batch].concat();
        let mut sent = 0;
        until("nothing more is taken", || match flood.try_send(&message) {
            Ok(_) => {
                sent += 1;
                assert!(sent < 1000, "it is taken without end");
                false
            }
            Err(_) => fixture.server.stats().in_flight() == 0,
        });
        for _ in 0..100 {
            fixture.call();
        }
        let stats = fixture.server.stats();
        assert!(stats.sessions > 0 && stats.poisoned == 0, "{stats:?}");
    }
}

#[test]
fn chunks_of_one_users_clients_are_on_its_quota() {
    let fixture = Fixture::with(config().max_memory(Some(32 << 20)));
    // Each brings all but the last byte of a request, and goes no further.
    let payload = vec![0; 1 << 20];
    let mut peers = Vec::new();
    until("the quota is used up", || {
        let peer = Peer::open(&fixture.path("increment"), hello());
        let count = payload.len().div_ceil(65_504) as u32;
        let head = header(1, 0, INCREMENT, payload.len(), 1, 1);
        let mut sent = peer.send(&[&head[..], &payload[..65_504]].concat());
        for index in 1..count - 1 {
            let head = chunk(1, payload.len() + 32, index, count, 65_504);
            sent = sent.and(peer.send(&[&head[..], &payload[..65_504]].concat()));
        }
        peers.push(peer);
        assert!(peers.len() < 40, "more than the quota is held");
        fixture.server.stats().over_quota > 0
    });
    drop(peers);
    fixture.drained();
    fixture.call();
}

#[test]
fn a_request_that_the_quota_has_no_room_for_is_counted_as_lost() {
    let (gate, arrivals) = Gate::with_channel();
    let held = gate.clone();
    let dir = Dir::new();
    let config = config().workers(1).max_memory(Some(4 << 20));
    let server = provide_with::<Increment>(&dir.run_dir, config, move |_, number| {
        held.pass(number);
        Ok(number)
    });
    let _gate = OpenAtEnd(Some(gate.clone()));
    // Each comes in one datagram. One is handled, and the others wait.
    let hello = Hello { max_request: 64 << 10, ..hello() };
    let payload = table(&vec![vec![0; 8]; 3_500]);
    let mut peers = Vec::new();
    until("the quota is used up", || {
        let mut peer = Peer::open(&dir.run_dir.path().join("increment.sock"), hello);
        peer.ask(INCREMENT, 3_500, &payload);
        peers.push(peer);
        assert!(peers.len() < 100, "more than the quota is held");
        server.stats().over_quota > 0
    });
    arrivals.next();
    gate.open();
    drop(peers);
    until("all sessions are over", || server.stats().sessions == 0);
    reconcile(&server.stop());
}

#[test]
fn a_snapshot_that_the_quota_has_no_room_for_is_counted_as_an_error() {
    let fixture = Fixture::with(config().max_memory(Some(16 << 20)));
    fixture.bytes.publish(&vec![1; 2 << 20]).unwrap();
    // None reads its answer.
    let mut peers = Vec::new();
    until("the quota is used up", || {
        let mut peer = fixture.peer("bytes");
        peer.ask(SNAPSHOT, 1, &[1, 0, 0, 0]);
        peers.push(peer);
        assert!(peers.len() < 100, "more than the quota is held");
        fixture.server.stats().over_quota > 0
    });
    let stats = fixture.server.stats();
    assert_eq!(stats.errors, stats.over_quota, "{stats:?}");
}

#[test]
fn the_answer_to_a_batch_is_on_the_quota_with_its_table() {
    let fixture = Fixture::with(config().max_memory(Some(32 << 20)));
    // The table is as long as all its numbers. None reads its answer.
    let batch = table(&vec![vec![0; 8]; 60_000]);
    let mut peers = Vec::new();
    until("the quota is used up", || {
        let peer = fixture.peer("increment");
        let (mut pieces, count) = (batch.chunks(65_504), batch.len().div_ceil(65_504) as u32);
        let head = header(1, 1, INCREMENT, batch.len(), 60_000, 1);
        let mut sent = peer.send(&[&head[..], pieces.next().unwrap()].concat());
        for (piece, index) in pieces.zip(1..) {
            let head = chunk(1, batch.len() + 32, index, count, piece.len());
            // For the last peer's request there is no room, either.
            sent = sent.and_then(|_| peer.send(&[&head[..], piece].concat()));
        }
        peers.push(peer);
        assert!(peers.len() < 36, "more than the quota is held");
        fixture.server.stats().over_quota > 0
    });
}
