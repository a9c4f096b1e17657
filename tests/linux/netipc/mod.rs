//! Clients that speak netipc, by a peer that was written from its documents alone.

mod hostile;

use std::path::PathBuf;
use std::time::Duration;

use bellwire::netipc::{self, CallMethod, SnapshotMethod, Token};
use bellwire::{
    Admission, Client, Publisher, RunDir, ServeError, Server, ServerConfig, ServerStats, Service,
    Snapshot, SnapshotCache,
};

use crate::support::gate::Gate;
use crate::support::guard::until;
use crate::support::netipc_peer::{Hello, INCREMENT, Peer, SNAPSHOT, items, table, u32_at, u64_at};
use crate::support::test_server::{Dir, provide_with};

struct Increment;

impl Service for Increment {
    const NAME: &'static str = "increment";
    type Request = u64;
    type Response = u64;

    fn netipc() -> Option<CallMethod> {
        Some(netipc::INCREMENT)
    }
}

/// A snapshot of bytes, which a client of netipc gets behind their generation.
struct Bytes;

impl Snapshot for Bytes {
    const NAME: &'static str = "bytes";
    type Index = ();
    type Error = std::convert::Infallible;

    fn validate(_: &[u8]) -> Result<(), Self::Error> {
        Ok(())
    }

    fn netipc() -> Option<SnapshotMethod> {
        Some(SnapshotMethod {
            code: netipc::CGROUPS_SNAPSHOT,
            check: netipc::snapshot::check_request,
            translate: |bytes, generation| Some([&generation.to_ne_bytes(), bytes].concat()),
        })
    }
}

const TOKEN: u64 = 0x1122_3344_5566_7788;

/// A server of both, for clients of both protocols.
struct Fixture {
    dir: Dir,
    server: Server,
    bytes: Publisher<Bytes>,
}

fn config() -> ServerConfig {
    ServerConfig::default().netipc(true).netipc_token(Some(Token::new(TOKEN)))
}

impl Fixture {
    fn with(config: ServerConfig) -> Self {
        let dir = Dir::new();
        let mut builder = Server::builder_with_config(&dir.run_dir, config);
        builder.serve::<Increment>(|_, number| Ok(number.wrapping_add(1))).unwrap();
        let bytes = builder.publish::<Bytes>().unwrap();
        let server = builder.start().unwrap();
        Self { dir, server, bytes }
    }

    fn new() -> Self {
        Self::with(config())
    }

    fn path(&self, service: &str) -> PathBuf {
        self.dir.run_dir.path().join(format!("{service}.sock"))
    }

    fn peer(&self, service: &str) -> Peer {
        Peer::open(&self.path(service), hello())
    }

    /// Waits until no session is left, and returns the counters.
    fn drained(&self) -> ServerStats {
        until("all sessions are over", || self.server.stats().sessions == 0);
        self.server.stats()
    }

    /// Calls as a client of Bellwire.
    fn call(&self) {
        assert_eq!(Client::<Increment>::new(&self.dir.run_dir).call(&41).unwrap(), 42);
    }
}

fn hello() -> Hello {
    Hello { token: TOKEN, ..Hello::default() }
}

fn numbers(numbers: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    numbers.map(|number| number.to_ne_bytes().to_vec()).collect()
}

#[test]
fn clients_of_both_protocols_share_an_endpoint() {
    for workers in [0, 2] {
        let fixture = Fixture::with(config().workers(workers));
        let mut peer = fixture.peer("increment");
        fixture.call();
        let answer = peer.call(INCREMENT, 1, &41_u64.to_ne_bytes());
        assert_eq!((answer.status, answer.flags, answer.items), (0, 0, 1));
        assert_eq!(answer.payload, 42_u64.to_ne_bytes());
        let answer = peer.call(INCREMENT, 1000, &table(&numbers(0..1000)));
        assert_eq!((answer.status, answer.flags, answer.items), (0, 1, 1000));
        assert!(items(&answer.payload, 1000).into_iter().eq(numbers(1..1001)));
        // Pipelined: answered one after the other.
        let ids: Vec<u64> =
            (0..50_u64).map(|nth| peer.ask(INCREMENT, 1, &nth.to_ne_bytes())).collect();
        for (id, nth) in ids.into_iter().zip(1..) {
            let answer = peer.receive().unwrap();
            assert_eq!((answer.id, u64_at(&answer.payload, 0)), (id, nth));
        }
        let stats = fixture.server.stats();
        assert_eq!((stats.netipc_sessions, stats.netipc_admitted), (1, 1), "{stats:?}");
        drop(peer);
        let stats = fixture.drained();
        assert_eq!((stats.admitted, stats.netipc_sessions, stats.poisoned), (2, 0, 0), "{stats:?}");
        assert_eq!((stats.accepted, stats.answered, stats.lost), (53, 53, 0), "{stats:?}");
    }
}

#[test]
fn a_hello_is_answered_field_by_field() {
    let fixture = Fixture::new();
    let path = fixture.path("increment");
    let ack = Peer::connect(&path).greet(hello());
    let words: Vec<u32> = (0..9).map(|nth| u32_at(&ack.payload, nth * 4)).collect();
    // Layout 1; the baseline alone, three times; limits echoed; the packet size cut; a session.
    let limit = 1 << 20;
    assert_eq!(words, [1, 1, 1, 1, limit, 100_000, limit, 100_000, 65_536], "{ack:?}");
    assert!(u32_at(&ack.payload, 36) == 0 && u64_at(&ack.payload, 40) > 0, "{ack:?}");
    for (hello, status) in [
        (Hello { layout: 2, ..hello() }, 3),
        (Hello { flags: 1, ..hello() }, 1),
        (Hello { padding: 1, ..hello() }, 1),
        (Hello { token: TOKEN + 1, ..hello() }, 2),
        (Hello { supported: 6, ..hello() }, 4),
        (Hello { max_request: (1 << 20) + 1, ..hello() }, 5),
        (Hello { packet: 32, ..hello() }, 3),
    ] {
        let mut peer = Peer::connect(&path);
        let ack = peer.greet(hello);
        assert_eq!(ack.status, status, "{ack:?}");
        assert!(peer.is_closed(), "after a refusal");
    }
    until("all were refused", || fixture.server.stats().clients_refused == 7);
    assert_eq!(fixture.drained().admitted, 1);
}

#[test]
fn a_client_that_is_not_to_be_served_is_refused_in_its_own_protocol() {
    let fixture = Fixture::with(config().netipc(false));
    let mut peer = Peer::connect(&fixture.path("increment"));
    assert_eq!(peer.greet(hello()).status, 4);
    assert!(peer.is_closed());
    fixture.call();
    // The same for one that finds no room, if it has said what it speaks by then.
    let fixture = Fixture::with(config().max_sessions(1));
    let _first = fixture.peer("increment");
    let second = Peer::connect(&fixture.path("increment"));
    let _ = second.send(&hello().datagram());
    until("it is refused", || fixture.server.stats().clients_refused == 1);
}

#[test]
fn long_messages_travel_in_chunks_both_ways() {
    let fixture = Fixture::new();
    let payload = vec![7; 3 << 20];
    fixture.bytes.publish(&payload).unwrap();
    for packet in [33, 64, 1000, 65_536] {
        let hello = Hello { packet, ..hello() };
        let mut peer = Peer::open(&fixture.path("increment"), hello);
        let answer = peer.call(INCREMENT, 500, &table(&numbers(0..500)));
        assert!(items(&answer.payload, 500).into_iter().eq(numbers(1..501)), "{packet}");
    }
    // The answer has room for more than the client asked for, since the snapshot needs it.
    let hello = Hello { max_response: 1024, ..hello() };
    let mut peer = Peer::connect(&fixture.path("bytes"));
    let ack = peer.greet(hello);
    assert!(u32_at(&ack.payload, 24) as usize > payload.len(), "{ack:?}");
    let mut peer = Peer::open(&fixture.path("bytes"), hello);
    let answer = peer.call(SNAPSHOT, 1, &[1, 0, 0, 0]);
    assert_eq!(answer.status, 0);
    assert!(u64_at(&answer.payload, 0) == 1 && answer.payload[8..] == payload);
}

#[test]
fn every_client_gets_the_newest_snapshot() {
    let fixture = Fixture::new();
    let mut peer = fixture.peer("bytes");
    // None was published yet: the session ends, and the client connects again.
    assert_eq!(peer.call(SNAPSHOT, 1, &[1, 0, 0, 0]).status, 6);
    assert!(peer.is_closed());
    let mut peers = [fixture.peer("bytes"), fixture.peer("bytes")];
    let mut cache = SnapshotCache::<Bytes>::new(&fixture.dir.run_dir);
    for text in ["one", "two"] {
        let generation = fixture.bytes.publish(text.as_bytes()).unwrap();
        for peer in &mut peers {
            let answer = peer.call(SNAPSHOT, 1, &[1, 0, 0, 0]);
            assert_eq!(u64_at(&answer.payload, 0), generation);
            assert_eq!(&answer.payload[8..], text.as_bytes());
        }
        cache.refresh_within(Duration::from_secs(60)).unwrap();
        assert_eq!(cache.current().unwrap().bytes(), text.as_bytes());
    }
    // One that has outgrown what was agreed: larger limits need another handshake.
    fixture.bytes.publish(&vec![1; 2 << 20]).unwrap();
    let [mut peer, _other] = peers;
    assert_eq!(peer.call(SNAPSHOT, 1, &[1, 0, 0, 0]).status, 5);
    assert!(peer.is_closed());
    assert_eq!(fixture.peer("bytes").call(SNAPSHOT, 1, &[1, 0, 0, 0]).status, 0);
}

#[test]
fn an_unknown_method_is_refused_and_the_session_stays_open() {
    let fixture = Fixture::new();
    let mut peer = fixture.peer("increment");
    for code in [0, SNAPSHOT, 3, 77] {
        let answer = peer.call(code, 1, &[0; 8]);
        assert_eq!((answer.status, answer.payload.len()), (4, 0));
    }
    assert_eq!(peer.call(INCREMENT, 1, &[0; 8]).status, 0);
    // What a method does not understand ends it.
    assert_eq!(peer.call(INCREMENT, 1, &[0; 7]).status, 1);
    assert!(peer.is_closed());
    let stats = fixture.drained();
    assert_eq!((stats.accepted, stats.answered, stats.refused), (6, 1, 5), "{stats:?}");
}

#[test]
fn a_request_that_was_taken_is_answered_when_the_server_stops() {
    let (gate, arrivals) = Gate::with_channel();
    let held = gate.clone();
    let dir = Dir::new();
    let config = config().workers(1).drain_timeout(Duration::from_secs(60));
    let server = provide_with::<Increment>(&dir.run_dir, config, move |_, number| {
        held.pass(number);
        Ok(number + 1)
    });
    let mut peer = Peer::open(&dir.run_dir.path().join("increment.sock"), hello());
    let id = peer.ask(INCREMENT, 1, &1_u64.to_ne_bytes());
    arrivals.next();
    let stopping = std::thread::spawn(move || server.stop());
    gate.open();
    let answer = peer.receive().unwrap();
    assert_eq!((answer.id, u64_at(&answer.payload, 0)), (id, 2));
    assert!(peer.is_closed());
    let stats = stopping.join().unwrap();
    assert_eq!((stats.answered, stats.sessions, stats.netipc_sessions), (1, 0, 0), "{stats:?}");
}

#[test]
fn a_run_dir_that_its_group_may_write_is_accepted_only_when_configured() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new();
    let path = dir.run_dir.path();
    let serve = |config, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        Server::builder_with_config(&RunDir::new(path), config)
            .serve::<Increment>(|_, n| Ok(n))
            .map(drop)
    };
    let group = || config().group_run_dir(true);
    assert!(matches!(serve(config(), 0o775), Err(ServeError::Endpoint { .. })));
    assert!(serve(group(), 0o775).is_ok() && serve(group(), 0o770).is_ok());
    // Never one that everybody may write.
    for mode in [0o777, 0o757, 0o707] {
        assert!(matches!(serve(group(), mode), Err(ServeError::Endpoint { .. })), "{mode:o}");
    }
    assert!(matches!(
        serve(group().admission(Admission::Any), 0o770),
        Err(ServeError::Endpoint { .. })
    ));
}
