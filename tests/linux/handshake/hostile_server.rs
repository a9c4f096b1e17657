//! Each test is one fault of the process that answers at an endpoint, seen from a [`Client`] that goes on living.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bellwire::{
    CallError, Client, ClientConfig, Doorbell, ErrorKind, RefuseCode, RunDir, State, Versions,
};
use bellwire_core::wire::{Message, PROTOCOL, Ready, Refuse, Role, Welcome};
use bellwire_core::{Geometry, Limits};
use rustix::fs::SealFlags;

use crate::support::guard::{scaled, until};
use crate::support::memory::{Draft, SEALS};
use crate::support::rogue::{Rogue, RogueListener, encode, service, welcome};
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, TestServer, patient};

/// A client that has said HELLO to a rogue.
struct RogueHandshake {
    dir: Dir,
    listener: RogueListener,
    client: Client<Echo>,
    rogue: Rogue,
}

impl RogueHandshake {
    fn begin() -> Self {
        Self::with(patient())
    }

    fn with(config: ClientConfig) -> Self {
        let dir = Dir::new();
        let listener = RogueListener::bind(&dir.run_dir, "echo");
        let backoff = (Duration::from_micros(10), Duration::from_micros(100));
        let config = config.backoff(backoff);
        let mut client = Client::with_config(&dir.run_dir, config);
        assert_eq!(client.refresh(), State::Connecting);
        let rogue = listener.accept();
        Self { dir, listener, client, rogue }
    }

    /// How the client reacts to the message: a failure of this kind, whose reason contains `part`. It closes the
    /// connection, and finds an honest provider when there is one.
    #[track_caller]
    fn fails(mut self, kind: ErrorKind, part: &str) {
        match self.client.refresh() {
            State::Failed { kind: found, reason } => {
                assert_eq!(found, kind, "{reason}");
                assert!(reason.contains(part), "{reason:?} lacks {part:?}");
                assert!(!reason.contains(char::is_control), "{reason:?}");
            }
            state => panic!("{state:?}"),
        }
        self.goes_on();
    }

    #[track_caller]
    fn finds_nobody(mut self) {
        assert_eq!(self.client.refresh(), State::Absent);
        self.goes_on();
    }

    #[track_caller]
    fn goes_on(mut self) {
        while let Some((message, _)) = self.rogue.receive() {
            assert!(matches!(message, Message::Attach(_)), "{message:?}");
        }
        drop(self.listener);
        let mut builder = bellwire::Server::builder(&self.dir.run_dir);
        builder.serve::<Echo>(echo).unwrap();
        let _server = builder.start().unwrap();
        until("the honest one is found", || self.client.refresh() == State::Ready);
        assert_eq!(self.client.call(&vec![1]).unwrap(), [1]);
    }
}

#[track_caller]
fn fails_at(message: &Message, part: &str) {
    let exchange = RogueHandshake::begin();
    exchange.rogue.send(message, &[]);
    exchange.fails(ErrorKind::ProtocolViolation, part);
}

/// A WELCOME that differs from an honest one.
struct Welcoming {
    welcome: Welcome,
    page: Draft,
    lane: Draft,
    board: Draft,
    /// Sent instead of page, lane and board.
    fds: Option<Vec<OwnedFd>>,
}

const SESSION: u64 = 7;

fn welcoming(exchange: &RogueHandshake, alter: impl FnOnce(&mut Welcoming)) {
    let service = exchange.rogue.service;
    let mut welcoming = Welcoming {
        welcome: welcome(SESSION),
        page: Draft::page(Role::Server, SESSION, service),
        lane: Draft::lane(),
        board: Draft::board(service),
        fds: None,
    };
    alter(&mut welcoming);
    let honest = || vec![welcoming.page.make(), welcoming.lane.make(), welcoming.board.make()];
    let fds = welcoming.fds.unwrap_or_else(honest);
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    exchange.rogue.send(&Message::Welcome(welcoming.welcome), &fds);
}

#[track_caller]
fn fails_welcome(part: &str, alter: impl FnOnce(&mut Welcoming)) {
    let exchange = RogueHandshake::begin();
    welcoming(&exchange, alter);
    exchange.fails(ErrorKind::ProtocolViolation, part);
}

#[test]
fn an_honest_welcome_of_the_same_making_is_taken() {
    // Otherwise the tests below would prove nothing.
    let mut exchange = RogueHandshake::begin();
    welcoming(&exchange, |_| {});
    assert_eq!(exchange.client.refresh(), State::Connecting);
    assert!(matches!(exchange.rogue.receive(), Some((Message::Attach(_), fds)) if fds.len() == 2));
    exchange.rogue.send(&Message::Ready(Ready { session: SESSION }), &[]);
    assert_eq!(exchange.client.refresh(), State::Ready);
}

#[test]
fn a_refusal_is_a_state_with_its_sentence() {
    let mut exchange = RogueHandshake::begin();
    let refuse = Refuse::new(RefuseCode::Quota, "come back tomorrow");
    exchange.rogue.send(&Message::Refuse(refuse), &[]);
    let reason = "come back tomorrow".into();
    assert_eq!(exchange.client.refresh(), State::Refused { code: RefuseCode::Quota, reason });
    exchange.goes_on();
}

#[test]
fn a_refused_call_says_who_refused_and_why() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let refuse = Refuse::new(RefuseCode::Token, "another invocation");
            listener.accept().send(&Message::Refuse(refuse), &[]);
        });
        let mut client = Client::<Echo>::with_config(&dir.run_dir, patient());
        let error = client.call(&vec![1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        let CallError::Refused { code: RefuseCode::Token, reason, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(&*reason, "another invocation");
    });
}

#[test]
fn another_version_is_a_state_with_both_ranges() {
    let mut exchange = RogueHandshake::begin();
    let mut bytes = encode(&Message::Refuse(Refuse::new(RefuseCode::Incompatible, "new")), 0);
    bytes[10..12].copy_from_slice(&5_u16.to_le_bytes());
    bytes[12..14].copy_from_slice(&9_u16.to_le_bytes());
    exchange.rogue.send_bytes(&bytes, &[]);
    let (ours, theirs) = (PROTOCOL, Versions { min: 5, max: 9 });
    assert_eq!(exchange.client.refresh(), State::Incompatible { ours, theirs });
    exchange.goes_on();
}

#[test]
fn a_refusal_with_control_characters_is_not_shown() {
    let exchange = RogueHandshake::begin();
    let mut bytes = encode(&Message::Refuse(Refuse::new(RefuseCode::Quota, "_[2J")), 0);
    let at = bytes.len() - 256;
    assert_eq!(bytes[at], b'_');
    bytes[at] = 0x1b;
    exchange.rogue.send_bytes(&bytes, &[]);
    exchange.fails(ErrorKind::ProtocolViolation, "reason");
}

#[test]
fn a_refusal_whose_sentence_is_longer_than_it_is_fails() {
    let exchange = RogueHandshake::begin();
    let mut bytes = encode(&Message::Refuse(Refuse::new(RefuseCode::Quota, "no")), 0);
    bytes[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
    exchange.rogue.send_bytes(&bytes, &[]);
    exchange.fails(ErrorKind::ProtocolViolation, "reason");
}

#[test]
fn what_is_no_bellwire_message_fails() {
    let exchange = RogueHandshake::begin();
    exchange.rogue.send_bytes(b"SSH-2.0-OpenSSH_9.9\r\n", &[]);
    exchange.fails(ErrorKind::ProtocolViolation, "Bellwire");
}

#[test]
fn a_ready_before_welcome_fails() {
    fails_at(&Message::Ready(Ready { session: 1 }), "Ready");
}

#[test]
fn a_clients_message_from_a_server_fails() {
    let hello = crate::support::rogue::hello(service("echo"));
    fails_at(&Message::Hello(hello), "Hello");
    fails_at(&Message::Ring, "Ring");
}

#[test]
fn a_welcome_twice_fails() {
    let mut exchange = RogueHandshake::begin();
    welcoming(&exchange, |_| {});
    assert_eq!(exchange.client.refresh(), State::Connecting);
    welcoming(&exchange, |_| {});
    exchange.fails(ErrorKind::ProtocolViolation, "Welcome");
}

#[test]
fn a_ready_for_another_session_fails() {
    let mut exchange = RogueHandshake::begin();
    welcoming(&exchange, |_| {});
    assert_eq!(exchange.client.refresh(), State::Connecting);
    exchange.rogue.send(&Message::Ready(Ready { session: SESSION + 1 }), &[]);
    exchange.fails(ErrorKind::ProtocolViolation, "session");
}

#[test]
fn a_welcome_with_too_few_descriptors_fails() {
    for count in 0..3 {
        fails_welcome(&format!("{count} descriptors"), |welcoming| {
            let all = [&welcoming.page, &welcoming.lane, &welcoming.board];
            welcoming.fds = Some(all[..count].iter().map(|draft| draft.make()).collect());
        });
    }
}

#[test]
fn a_welcome_with_too_many_descriptors_fails() {
    fails_welcome("4 descriptors", |welcoming| {
        let all = [&welcoming.page, &welcoming.lane, &welcoming.board, &welcoming.lane];
        welcoming.fds = Some(all.iter().map(|draft| draft.make()).collect());
    });
}

#[test]
fn a_welcome_to_an_eventfd_that_is_not_there_fails() {
    fails_welcome("3 descriptors", |welcoming| welcoming.welcome.doorbell = Doorbell::Eventfd);
}

#[test]
fn a_welcome_in_a_version_that_was_not_offered_fails() {
    fails_welcome("version", |welcoming| welcoming.welcome.version += 1);
}

#[test]
fn a_welcome_with_features_that_were_not_offered_fails() {
    fails_welcome("features", |welcoming| welcoming.welcome.features = 1 << 63);
}

#[test]
fn a_welcome_with_a_lane_above_the_clients_limit_fails() {
    let max_lane = Geometry::new(8 << 10).unwrap();
    let limits = Limits { max_lane, ..Limits::default() };
    let exchange =
        RogueHandshake::with(patient().lane(patient().lane.size(max_lane).limits(limits)));
    welcoming(&exchange, |_| {});
    exchange.fails(ErrorKind::ProtocolViolation, "lane size");
}

#[test]
fn a_welcome_that_has_no_room_for_the_clients_lane_fails() {
    fails_welcome("lane limit", |welcoming| {
        welcoming.welcome.limits.max_lane = Geometry::new(4096).unwrap();
    });
}

#[test]
fn a_short_page_lane_or_board_fails() {
    fails_welcome("2048 bytes", |welcoming| welcoming.page.size = 2048);
    fails_welcome("8192 bytes", |welcoming| welcoming.lane.size = 8192);
    fails_welcome("2048 bytes", |welcoming| welcoming.board.size = 2048);
}

#[test]
fn an_oversized_page_lane_or_board_fails() {
    fails_welcome("8192 bytes", |welcoming| welcoming.page.size = 8192);
    fails_welcome("32768 bytes", |welcoming| welcoming.lane.size = 32768);
    fails_welcome("8192 bytes", |welcoming| welcoming.board.size = 8192);
}

#[test]
fn an_unsealed_page_lane_or_board_fails() {
    let none = SealFlags::empty();
    fails_welcome("lacks", |welcoming| welcoming.page.seals = none);
    fails_welcome("lacks", |welcoming| welcoming.lane.seals = none);
    fails_welcome("lacks", |welcoming| welcoming.board.seals = none);
}

#[test]
fn a_page_lane_or_board_that_lacks_one_seal_fails() {
    for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
        let part = format!("lacks {:#x}", seal.bits());
        fails_welcome(&part, |welcoming| welcoming.page.seals = SEALS - seal);
        fails_welcome(&part, |welcoming| welcoming.lane.seals = SEALS - seal);
        fails_welcome(&part, |welcoming| welcoming.board.seals = SEALS - seal);
    }
}

#[test]
fn a_sparse_lane_fails() {
    fails_welcome("allocated", |welcoming| welcoming.lane.sparse = true);
}

#[test]
fn a_pipe_for_memory_fails() {
    for place in 0..3 {
        fails_welcome("no memfd", |welcoming| {
            let all = [&welcoming.page, &welcoming.lane, &welcoming.board];
            let mut fds: Vec<OwnedFd> = all.iter().map(|draft| draft.make()).collect();
            fds[place] = std::io::pipe().unwrap().0.into();
            welcoming.fds = Some(fds);
        });
    }
}

#[test]
fn a_page_of_another_session_role_or_service_fails() {
    for (offset, part) in [
        (0x00, "magic"),
        (0x08, "layout"),
        (0x0c, "role"),
        (0x10, "session"),
        (0x1c, "lane size"),
        (0x28, "service name"),
    ] {
        fails_welcome(part, |welcoming| welcoming.page.bytes[offset] ^= 1);
    }
}

#[test]
fn the_board_of_another_service_fails() {
    fails_welcome("service name", |welcoming| {
        welcoming.board = Draft::board(service("other"));
    });
    fails_welcome("magic", |welcoming| welcoming.board.bytes[0] ^= 1);
    fails_welcome("layout", |welcoming| welcoming.board.bytes[8] ^= 1);
}

#[test]
fn a_server_that_closes_at_any_step_is_absent() {
    // In turn: after HELLO, after WELCOME, after ATTACH.
    let exchange = RogueHandshake::begin();
    rustix::net::shutdown(&exchange.rogue.socket, rustix::net::Shutdown::Both).unwrap();
    exchange.finds_nobody();
    let exchange = RogueHandshake::begin();
    welcoming(&exchange, |_| {});
    rustix::net::shutdown(&exchange.rogue.socket, rustix::net::Shutdown::Both).unwrap();
    exchange.finds_nobody();
    let mut exchange = RogueHandshake::begin();
    welcoming(&exchange, |_| {});
    assert_eq!(exchange.client.refresh(), State::Connecting);
    assert!(matches!(exchange.rogue.receive(), Some((Message::Attach(_), _))));
    rustix::net::shutdown(&exchange.rogue.socket, rustix::net::Shutdown::Both).unwrap();
    exchange.finds_nobody();
}

#[test]
fn a_server_that_is_silent_at_any_step_is_waited_for_until_the_deadline() {
    let connect_timeout = scaled(Duration::from_millis(20));
    for steps in 0..2 {
        let mut exchange = RogueHandshake::with(patient().connect_timeout(connect_timeout));
        if steps > 0 {
            welcoming(&exchange, |_| {});
        }
        let error = exchange.client.connect().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        assert_eq!(error.executed(), bellwire::Executed::No);
        // Its message now comes too late.
        exchange.goes_on();
    }
}

#[test]
fn a_call_to_a_silent_server_ends_at_the_calls_own_deadline() {
    let mut exchange = RogueHandshake::begin();
    let error = exchange.client.call_within(&vec![1], Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, CallError::Deadline { executed: bellwire::Executed::No }), "{error}");
    // The handshake itself goes on.
    welcoming(&exchange, |_| {});
    assert_eq!(exchange.client.refresh(), State::Connecting);
    exchange.rogue.send(&Message::Ready(Ready { session: SESSION }), &[]);
    assert_eq!(exchange.client.refresh(), State::Ready);
}

#[test]
fn what_is_no_socket_at_the_endpoint_is_not_connected_to() {
    let dir = Dir::new();
    std::fs::write(dir.run_dir.path().join("echo.sock"), b"not a socket").unwrap();
    let mut client = Client::<Echo>::with_config(&dir.run_dir, patient());
    let State::Failed { kind, reason } = client.refresh() else { panic!("{:?}", client.state()) };
    assert_eq!(kind, ErrorKind::Refused);
    assert!(reason.contains("not a socket"), "{reason}");
}

#[test]
fn a_symbolic_link_at_the_endpoint_is_not_followed() {
    let fixture = TestServer::open();
    let dir = Dir::new();
    let path = |run_dir: &RunDir| run_dir.path().join("echo.sock");
    std::os::unix::fs::symlink(path(fixture.run_dir()), path(&dir.run_dir)).unwrap();
    let mut client = Client::<Echo>::with_config(&dir.run_dir, patient());
    assert!(matches!(client.refresh(), State::Failed { kind: ErrorKind::Refused, .. }));
    fixture.close();
}
