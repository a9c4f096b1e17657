//! What the process that answers at an endpoint may do, seen from a [`Client`] that goes on living. What it may not do is in
//! `misbehaving/to_client/welcome.rs`.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bellwire::{
    Backoff, CallError, Client, ClientConfig, ConnectError, ErrorKind, ProviderState, RefuseCode,
    Versions,
};
use bellwire_core::wire::{Message, PROTOCOL, Ready, Refuse, Role};

use crate::errors::system_error;
use crate::support::guard::{scaled, until};
use crate::support::memory::Draft;
use crate::support::rogue::{Rogue, RogueListener, encode, welcome};
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, client_config, provide};

/// A client that has said HELLO to a rogue.
pub(crate) struct RogueHandshake {
    dir: Dir,
    listener: RogueListener,
    client: Client<Echo>,
    pub(crate) rogue: Rogue,
}

impl RogueHandshake {
    pub(crate) fn begin() -> Self {
        Self::with(client_config())
    }

    fn with(config: ClientConfig) -> Self {
        let dir = Dir::new();
        let listener = RogueListener::bind(&dir.run_dir, "echo");
        let backoff =
            Backoff::default().initial(Duration::from_micros(10)).max(Duration::from_micros(100));
        let config = config.backoff(backoff);
        let mut client = Client::with_config(&dir.run_dir, config);
        assert_eq!(client.refresh(), ProviderState::Connecting);
        let rogue = listener.accept();
        Self { dir, listener, client, rogue }
    }

    /// The client reports a violation of the protocol, and that it is the one whose reason contains `part`. It closes the
    /// connection, uses nothing from it, and finds an honest provider when there is one.
    #[track_caller]
    pub(crate) fn fails(mut self, part: &str) {
        // It may go one honest step first.
        let mut steps = (0..2).map(|_| self.client.refresh());
        let state = steps.find(|state| *state != ProviderState::Connecting);
        let Some(ProviderState::Failed { kind, reason }) = state else { panic!("{state:?}") };
        assert_eq!(kind, ErrorKind::ProtocolViolation, "{reason}");
        assert!(reason.contains(part), "{reason:?} lacks {part:?}");
        assert!(!reason.contains(char::is_control), "{reason:?}");
        self.finds_honest_server();
    }

    #[track_caller]
    fn finds_no_server(mut self) {
        // A successor might listen.
        assert_eq!(self.client.refresh(), ProviderState::Connecting);
        drop(self.listener.accept());
        assert_eq!(self.client.refresh(), ProviderState::Absent);
        self.finds_honest_server();
    }

    #[track_caller]
    fn finds_honest_server(mut self) {
        while let Some((message, _)) = self.rogue.receive() {
            assert!(matches!(message, Message::Join(_)), "{message:?}");
        }
        drop(self.listener);
        let _server = provide::<Echo>(&self.dir.run_dir, echo);
        until("the honest one is found", || self.client.refresh() == ProviderState::Ready);
        assert_eq!(self.client.call(&vec![1]).unwrap(), [1]);
    }
}

pub(crate) const SESSION: u64 = 7;

/// What a server sends with WELCOME. Unmodified, it is what an honest one sends.
pub(crate) struct Welcoming {
    /// The message, to be changed in place.
    pub(crate) bytes: Vec<u8>,
    pub(crate) page: Draft,
    pub(crate) lane: Draft,
    pub(crate) board: Draft,
    /// Sent instead of page, lane and board.
    pub(crate) fds: Option<Vec<OwnedFd>>,
}

pub(crate) fn welcomes(rogue: &Rogue, alter: impl FnOnce(&mut Welcoming)) {
    let mut welcoming = Welcoming {
        bytes: encode(&Message::Welcome(welcome(SESSION)), 3),
        page: Draft::page(Role::Server, SESSION, rogue.service),
        lane: Draft::lane(),
        board: Draft::board(rogue.service),
        fds: None,
    };
    alter(&mut welcoming);
    let Welcoming { mut bytes, page, lane, board, fds } = welcoming;
    let fds = fds.unwrap_or_else(|| vec![page.make(), lane.make(), board.make()]);
    if bytes.len() > 8 && bytes[6..8] == [3, 0] {
        bytes[6] = fds.len() as u8;
    }
    rogue.send_bytes(&bytes, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
}

#[test]
fn an_honest_welcome_of_the_same_making_is_taken() {
    // Otherwise the tests below would prove nothing.
    let mut exchange = RogueHandshake::begin();
    welcomes(&exchange.rogue, |_| {});
    assert_eq!(exchange.client.refresh(), ProviderState::Connecting);
    assert!(matches!(exchange.rogue.receive(), Some((Message::Join(_), fds)) if fds.len() == 2));
    exchange.rogue.send(&Message::Ready(Ready { session: SESSION }), &[]);
    assert_eq!(exchange.client.refresh(), ProviderState::Ready);
}

#[test]
fn a_pipe_sent_as_memory_leaves_the_systems_error_among_the_sources() {
    let mut exchange = RogueHandshake::begin();
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    welcomes(&exchange.rogue, |welcoming| {
        let Welcoming { lane, board, .. } = &*welcoming;
        welcoming.fds = Some(vec![pipe, lane.make(), board.make()]);
    });
    let error = exchange.client.connect().map(drop).unwrap_err();
    let CallError::Connect { source, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(**source, ConnectError::Protocol { .. }), "{error:?}");
    assert_eq!(system_error(&error), (std::io::ErrorKind::InvalidInput, libc::EINVAL));
    exchange.finds_honest_server();
}

#[test]
fn a_refusal_is_a_state_with_its_sentence() {
    let mut exchange = RogueHandshake::begin();
    let refuse = Refuse::new(RefuseCode::Quota, "come back tomorrow");
    exchange.rogue.send(&Message::Refuse(refuse), &[]);
    let reason = "come back tomorrow".into();
    assert_eq!(
        exchange.client.refresh(),
        ProviderState::Refused { code: RefuseCode::Quota, reason }
    );
    exchange.finds_honest_server();
}

#[test]
fn another_version_is_a_state_with_both_ranges() {
    let mut exchange = RogueHandshake::begin();
    let mut bytes = encode(&Message::Refuse(Refuse::new(RefuseCode::Incompatible, "new")), 0);
    bytes[10..12].copy_from_slice(&5_u16.to_le_bytes());
    bytes[12..14].copy_from_slice(&9_u16.to_le_bytes());
    exchange.rogue.send_bytes(&bytes, &[]);
    let (ours, theirs) = (PROTOCOL, Versions { min: 5, max: 9 });
    assert_eq!(exchange.client.refresh(), ProviderState::Incompatible { ours, theirs });
    exchange.finds_honest_server();
}

#[test]
fn a_server_that_closes_at_any_step_is_absent() {
    // In turn: after HELLO, after WELCOME, after JOIN.
    let exchange = RogueHandshake::begin();
    rustix::net::shutdown(&exchange.rogue.socket, rustix::net::Shutdown::Both).unwrap();
    exchange.finds_no_server();
    let exchange = RogueHandshake::begin();
    welcomes(&exchange.rogue, |_| {});
    rustix::net::shutdown(&exchange.rogue.socket, rustix::net::Shutdown::Both).unwrap();
    exchange.finds_no_server();
    let mut exchange = RogueHandshake::begin();
    welcomes(&exchange.rogue, |_| {});
    assert_eq!(exchange.client.refresh(), ProviderState::Connecting);
    assert!(matches!(exchange.rogue.receive(), Some((Message::Join(_), _))));
    rustix::net::shutdown(&exchange.rogue.socket, rustix::net::Shutdown::Both).unwrap();
    exchange.finds_no_server();
}

#[test]
fn a_server_that_is_silent_at_any_step_is_waited_for_until_the_deadline() {
    let connect_timeout = scaled(Duration::from_millis(20));
    for steps in 0..2 {
        let mut exchange = RogueHandshake::with(client_config().connect_timeout(connect_timeout));
        if steps > 0 {
            welcomes(&exchange.rogue, |_| {});
        }
        let error = exchange.client.connect().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        assert_eq!(error.executed(), bellwire::Executed::No);
        // Its message now comes too late.
        exchange.finds_honest_server();
    }
}

#[test]
fn a_call_to_a_silent_server_ends_at_the_calls_own_deadline() {
    let mut exchange = RogueHandshake::begin();
    let error = exchange.client.call_within(&vec![1], Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, CallError::Deadline { executed: bellwire::Executed::No }), "{error}");
    // The handshake itself goes on.
    welcomes(&exchange.rogue, |_| {});
    assert_eq!(exchange.client.refresh(), ProviderState::Connecting);
    exchange.rogue.send(&Message::Ready(Ready { session: SESSION }), &[]);
    assert_eq!(exchange.client.refresh(), ProviderState::Ready);
}
