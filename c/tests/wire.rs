//! The hostile corpus of `docs/wire/vectors/` against processes in C: each case is refused or poisons the session, and
//! the process goes on.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use bellwire_core::sync::Ordering;
use bellwire_core::wire::{
    BOARD_SIZE, BoardHeader, Doorbell, MAX_CONTROL, Message, PAGE_SIZE, PageHeader, Ready, Role,
    Welcome,
};
use bellwire_core::{Geometry, Limits, ServiceName, Word};
use bellwire_hostile::wire::{SEALS, Session, Target, memfd, send};
use bellwire_memfd::endpoint::Endpoint;
use bellwire_memfd::pass::{self, Channel, ReceiveError, SendError};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use bellwire_vectors::{Case, number, parse, unhex};

use zerocopy::IntoBytes;

use crate::kill::{Program, numbers};
use crate::programs::installed;

/// What both ends of the corpus have.
const TOKEN: &str = "30313233343536373839616263646566";
const SCHEMA: &str = "0123456789abcdef";
/// The C library's limits are larger than those that these cases go beyond.
const BELOW_OUR_LIMITS: [&str; 6] = [
    "hello-lane-above-the-servers",
    "message-above-the-limit",
    "parts-above-the-limit",
    "switch-above-the-limit",
    "lane-above-the-limit",
    "attachment-above-the-limit",
];

fn cases(file: &str, of: (&str, &str)) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/wire/vectors").join(file);
    let all = parse(&std::fs::read_to_string(path).unwrap());
    let cases: Vec<_> = all
        .into_iter()
        .filter(|case| case.get(of.0) == Some(of.1))
        .filter(|case| !BELOW_OUR_LIMITS.contains(&case.name.as_str()))
        .collect();
    assert!(cases.len() > 10, "{}", cases.len());
    cases
}

fn start(name: &str, dir: &tempfile::TempDir, token: Option<&str>, schema: &str) -> Program {
    let program = installed().build("cc", &["-std=c11", "-D_GNU_SOURCE"], name);
    let mut command = installed().command(&program, dir);
    command.arg(schema);
    if let Some(token) = token {
        command.env("BELLWIRE_TOKEN", token);
    }
    Program::spawn(command)
}

/// Waits for what the other process does, for a minute.
fn eventually<T>(name: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(done) = what() {
            return done;
        }
        assert!(Instant::now() < end, "{name}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends bytes that are no message, perhaps, with so many descriptors.
fn send_bytes(socket: &OwnedFd, bytes: &[u8], fds: &[OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    pass::send(socket.as_fd(), bytes, &fds).unwrap();
}

fn pages(count: u64) -> Vec<OwnedFd> {
    (0..count).map(|_| memfd(4096, &[], SEALS, false).unwrap()).collect()
}

#[test]
fn a_server_in_c_refuses_each_first_message_of_the_corpus() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start("wire_server.c", &dir, Some(TOKEN), SCHEMA);
    server.report();
    let target = Target::new(dir.path().to_owned());
    for case in cases("control-bad.txt", ("to", "server")) {
        let name = &case.name;
        let socket = eventually(name, || target.connect("increment"));
        let memory = pages(case.number("fds"));
        let memory: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
        let sent = pass::send(socket.as_fd(), &case.all("bytes"), &memory);
        // From Linux 6.16 on, no descriptor of a client that is not admitted reaches a server.
        if !memory.is_empty() && matches!(sent, Err(SendError::System { .. })) {
            continue;
        }
        sent.unwrap();
        let mut bytes = [0; MAX_CONTROL];
        let received = eventually(name, || pass::receive(socket.as_fd(), &mut bytes, 4).ok());
        let answer = Message::parse(bytes.get(..received.len).unwrap(), received.count()).unwrap();
        let Message::Refuse(refuse) = answer else { panic!("{name}: {answer:?}") };
        assert_eq!(refuse.code as u64, case.number("refuse"), "{name}");
    }
    eventually("at rest", || (server.report()[0] == 0).then_some(()));
    server.finish();
}

/// One end of an open session that does what a case says.
trait Rogue {
    fn store(&self, at: usize, bytes: &[u8]);
    fn set(&self, word: Word, value: u64);
    fn peers(&self, word: Word) -> u64;
    fn ring(&self);
    fn send(&self, bytes: &[u8], fds: &[OwnedFd]);

    fn attack(&self, case: &Case) {
        for (key, value) in &case.lines {
            match key.as_str() {
                "lane" => {
                    let (at, bytes) = value.split_once(' ').unwrap();
                    self.store(usize::try_from(number(at)).unwrap(), &unhex(bytes));
                }
                "tail" => self.set(Word::Tail, number(value)),
                // Empty requests: 16 bytes each.
                "sent" => self.wait_for(Word::Tail, 16 * number(value), case),
                "poll" => {
                    self.ring();
                    self.wait_for(Word::Head, 16 * number(value), case);
                }
                "control" => {
                    let (size, bytes) = value.split_once(' ').unwrap();
                    let size = number(size);
                    let memory = (size > 0).then(|| memfd(size, &[], SEALS, false).unwrap());
                    self.send(&unhex(bytes), memory.as_slice());
                }
                _ => {}
            }
        }
        self.ring();
    }

    fn wait_for(&self, word: Word, value: u64, case: &Case) {
        eventually(&case.name, || (self.peers(word) == value).then_some(()));
    }
}

impl Rogue for Session {
    fn store(&self, at: usize, bytes: &[u8]) {
        self.store(at, bytes);
    }

    fn set(&self, word: Word, value: u64) {
        self.set(word, value);
    }

    fn peers(&self, word: Word) -> u64 {
        self.word(word)
    }

    fn ring(&self) {
        send(&self.socket, &Message::Ring, &[]);
    }

    fn send(&self, bytes: &[u8], fds: &[OwnedFd]) {
        send_bytes(&self.socket, bytes, fds);
    }
}

/// The provider's end.
struct Provider {
    channel: Channel,
    page: OwnRegion,
    lane: OwnRegion,
    client: PeerRegion,
}

impl Provider {
    /// Goes through the handshake with whoever connects, unless it leaves: a client may look whether a provider listens.
    fn open(endpoint: &Endpoint) -> Option<Self> {
        let name: ServiceName = endpoint.service();
        let (geometry, pid) = (Geometry::SMALLEST, std::process::id());
        let channel = endpoint.accept().unwrap()?;
        let receive = |bytes: &mut [u8]| {
            eventually("message", || match channel.receive(bytes, 4) {
                Ok(received) => Some(Some(received)),
                Err(ReceiveError::WouldBlock) => None,
                Err(_) => Some(None),
            })
        };
        let send = |message: Message, fds: &[&OwnedFd]| {
            let mut bytes = [0; MAX_CONTROL];
            let len = message.encode(u16::try_from(fds.len()).unwrap(), &mut bytes);
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            channel.send(bytes.get(..len).unwrap(), &fds).ok()
        };
        let mut bytes = [0; MAX_CONTROL];
        receive(&mut bytes)?;
        channel.accept_objects();
        let welcome = Welcome {
            version: 1,
            features: 0,
            session: 7,
            lane: geometry,
            least_lane: geometry,
            limits: Limits::default(),
            doorbell: Doorbell::Futex,
            max_batch: 16,
            schema: 0,
        };
        let header = PageHeader::new(Role::Server, 7, pid, 4096, 1, name);
        let start = |page: &OwnRegion| {
            page.write(0, header.as_bytes());
            for (word, value) in [
                (Word::WantData, u64::MAX),
                (Word::WantSpace, u64::MAX),
                (Word::State, 1),
                (Word::Doorbell, Doorbell::Futex as u64),
            ] {
                page.store_u64(word.offset(), value, Ordering::Relaxed);
            }
        };
        let (page, page_fd) = OwnRegion::create("page", PAGE_SIZE, start).unwrap();
        let (lane, lane_fd) = OwnRegion::create("lane", 4096, |_| {}).unwrap();
        let board = BoardHeader::new(pid, 1, name);
        let start = |page: &OwnRegion| page.write(0, board.as_bytes());
        let (_, board_fd) = OwnRegion::create("board", BOARD_SIZE, start).unwrap();
        send(Message::Welcome(welcome), &[&page_fd, &lane_fd, &board_fd])?;
        let attached = receive(&mut bytes)?.into_objects().next().unwrap();
        let client = PeerRegion::verify_and_map(attached, PAGE_SIZE).unwrap();
        send(Message::Ready(Ready { session: 7 }), &[])?;
        Some(Self { channel, page, lane, client })
    }
}

impl Rogue for Provider {
    fn store(&self, at: usize, bytes: &[u8]) {
        self.lane.write(at, bytes);
    }

    fn set(&self, word: Word, value: u64) {
        self.page.store_u64(word.offset(), value, Ordering::Release);
    }

    fn peers(&self, word: Word) -> u64 {
        self.client.load_u64(word.offset(), Ordering::Acquire)
    }

    fn ring(&self) {
        self.page.wake_all(Word::Tail.offset());
    }

    fn send(&self, bytes: &[u8], fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.channel.send(bytes, &fds).unwrap();
    }
}

#[test]
fn a_server_in_c_poisons_each_session_of_the_corpus_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start("wire_server.c", &dir, None, "0");
    server.report();
    let target = Target::new(dir.path().to_owned()).with_lane(4096);
    let mut honest = eventually("honest", || target.open("increment"));
    let cases = cases("lanes-bad.txt", ("reader", "server"));
    for (poisoned, case) in (1..).zip(&cases) {
        let session = eventually(&case.name, || target.open("increment"));
        session.attack(case);
        eventually(&case.name, || session.is_closed().then_some(()));
        eventually(&case.name, || (server.report()[1] == poisoned).then_some(()));
        assert!(honest.request(&[0; 8]));
        honest.publish();
        eventually(&case.name, || (honest.word(Word::Tail) == 32 * poisoned).then_some(()));
        honest.consume_answers();
    }
    server.finish();
}

#[test]
fn a_client_in_c_blames_the_provider_for_each_first_message_of_the_corpus() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::bind(dir.path(), "increment".parse().unwrap()).unwrap();
    let mut client = start("wire_client.c", &dir, Some(TOKEN), SCHEMA);
    for case in cases("control-bad.txt", ("to", "client")) {
        let name = &case.name;
        client.ask(b'0');
        let channel = eventually(name, || endpoint.accept().unwrap());
        let mut bytes = [0; MAX_CONTROL];
        eventually(name, || channel.receive(&mut bytes, 4).ok());
        let memory = pages(case.number("fds"));
        let memory: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
        channel.send(&case.all("bytes"), &memory).unwrap();
        let [code, fault] = numbers(&client.line())[..] else { panic!("{name}") };
        // BW_E_PROTOCOL_VIOLATION or, where versions or types differ, BW_E_INCOMPATIBLE; BW_FAULT_PEER.
        assert!((code == 9 && fault == 1) || code == 3, "{name}: {code}, fault of {fault}");
    }
    client.finish();
}

#[test]
fn a_client_in_c_poisons_each_session_of_the_corpus() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::bind(dir.path(), "increment".parse().unwrap()).unwrap();
    let mut client = start("wire_client.c", &dir, None, "0");
    for case in &cases("lanes-bad.txt", ("reader", "client")) {
        let sent = case.get("sent").map_or(0, number);
        // A client that waits for an answer has no reason to look at Head, or at the socket.
        if sent == 0 || case.get("head").is_some() {
            continue;
        }
        client.ask(b'0' + u8::try_from(sent).unwrap());
        let provider = eventually(&case.name, || Provider::open(&endpoint));
        provider.attack(case);
        // BW_E_PROTOCOL_VIOLATION, BW_FAULT_PEER.
        assert_eq!(client.line(), "9 1\n", "{}", case.name);
        eventually(&case.name, || {
            let received = provider.channel.receive(&mut [0; MAX_CONTROL], 4);
            (received.err() == Some(ReceiveError::Closed)).then_some(())
        });
    }
    client.finish();
}
