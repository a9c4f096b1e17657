//! A TCP socket that lingers, wherever a peer can put one: its `close` would block for longer than these tests wait.
//! Neither the reactor nor a client's thread closes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::channel;
use std::thread;

use bellwire::{Client, Doorbell, ProviderState, ServerConfig};
use bellwire_core::wire::{Attachment, Header, Hello, Kind, Message, Role, Status};
use bellwire_memfd::pass;

use super::impostor::{lingering_socket, pipe};
use super::passing::Passing;
use crate::support::child::Process;
use crate::support::fuse::Silent;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::limiter::hide_passrights_here;
use crate::support::memory::Draft;
use crate::support::rogue::{Rogue, RogueListener, RogueSession, encode, welcome};
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config};

/// A rogue client gets as far as `prepare` says. Then the reactor is held, so that it finds everything that `act`
/// does at once, after no other descriptor of the socket is left: it closes the socket, or has it closed.
#[track_caller]
fn holds_up_no_reactor<T, K>(
    config: ServerConfig,
    prepare: impl FnOnce(&TestServer) -> T,
    act: impl FnOnce(&TestServer, T) -> K,
) {
    hide_passrights_here();
    let fixture = TestServer::with(config);
    let mut good: Client<Echo> = fixture.client();
    let mut holder: Client<Hold> = fixture.client();
    let prepared = prepare(&fixture);
    let kept = thread::scope(|scope| {
        let held = scope.spawn(|| holder.call(&1).unwrap());
        assert_eq!(fixture.arrivals.next(), 1);
        let kept = act(&fixture, prepared);
        fixture.release();
        held.join().unwrap();
        kept
    });
    for _ in 0..3 {
        assert_eq!(good.call(&b"still here".to_vec()).unwrap(), b"still here");
    }
    drop((good, holder));
    fixture.close();
    drop(kept);
}

fn connect(fixture: &TestServer) -> Rogue {
    Rogue::connect(fixture.run_dir(), "echo")
}

fn open(fixture: &TestServer) -> RogueSession {
    connect(fixture).open()
}

/// Sends a message with these descriptors, and drops them.
fn send(rogue: &Rogue, bytes: &[u8], fds: impl IntoIterator<Item = OwnedFd>) {
    let fds: Vec<_> = fds.into_iter().collect();
    rogue.send_bytes(bytes, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
}

rows! { of_servers: holds_up_no_reactor {
    with_the_first_message(ServerConfig::default(), connect, |_, rogue| {
        send(&rogue, &encode(&Message::Hello(rogue.hello), 1), vec![lingering_socket()]);
        rogue
    });
    hidden_in_the_first_message(ServerConfig::default(), connect, |_, rogue| {
        send(&rogue, &encode(&Message::Hello(rogue.hello), 0), vec![lingering_socket()]);
        rogue
    });
    behind_the_first_message_of_a_client_that_leaves(ServerConfig::default(), connect, |_, rogue| {
        send(&rogue, b"what is this?", vec![]);
        send(&rogue, b"nobody reads this", vec![lingering_socket()]);
    });
    among_more_descriptors_than_a_message_may_have(ServerConfig::default(), connect, |_, rogue| {
        let fds = (0..20).map(|_| lingering_socket());
        send(&rogue, &encode(&Message::Hello(rogue.hello), 20), fds);
        rogue
    });
    before_it_is_accepted(ServerConfig::default(), |_| (), |fixture, ()| {
        let rogue = connect(fixture);
        send(&rogue, b"what is this?", vec![]);
        send(&rogue, b"nobody reads this", vec![lingering_socket()]);
        rogue
    });
    before_it_is_refused_for_want_of_room(ServerConfig::default().max_sessions(2), |_| (), |fixture, ()| {
        let rogue = connect(fixture);
        send(&rogue, b"nobody reads this", vec![lingering_socket()]);
        rogue
    });
    as_the_page(ServerConfig::default(), entered, |_, (rogue, session)| {
        attach(rogue, session, vec![lingering_socket(), Draft::lane().make()])
    });
    as_the_lane(ServerConfig::default(), entered, |_, (rogue, session)| {
        attach(rogue, session, vec![page(session), lingering_socket()])
    });
    behind_a_page_that_is_none(ServerConfig::default(), entered, |_, (rogue, session)| {
        attach(rogue, session, vec![pipe(), lingering_socket()])
    });
    behind_a_lane_that_is_none(ServerConfig::default(), rung_by_eventfd, |_, (rogue, session)| {
        attach(rogue, session, vec![page(session), pipe(), lingering_socket()])
    });
    behind_a_page_of_another_session(ServerConfig::default(), rung_by_eventfd, |_, (rogue, session)| {
        attach(rogue, session, vec![page(session + 1), Draft::lane().make(), lingering_socket()])
    });
    where_no_eventfd_was_agreed(ServerConfig::default(), entered, |_, (rogue, session)| {
        attach(rogue, session, vec![page(session), Draft::lane().make(), lingering_socket()])
    });
    as_the_eventfd_of_a_client_that_leaves(ServerConfig::default(), rung_by_eventfd, |_, (rogue, session)| {
        drop(attach(rogue, session, vec![page(session), Draft::lane().make(), lingering_socket()]));
    });
    as_the_eventfd_of_a_client_that_misbehaves(ServerConfig::default(), rung_by_eventfd, |_, (rogue, session)| {
        let rogue = attach(rogue, session, vec![page(session), Draft::lane().make(), lingering_socket()]);
        send(&rogue, b"junk", vec![]);
        rogue
    });
    with_a_ring(ServerConfig::default(), open, |_, rogue| {
        control(rogue, &Message::Ring, 1)
    });
    with_a_message_of_the_handshake(ServerConfig::default(), open, |_, rogue| {
        control(rogue, &Message::Welcome(welcome(1)), 1)
    });
    as_the_next_lane(ServerConfig::default(), open, |_, rogue| pass(rogue, Passing::lane()));
    as_a_message(ServerConfig::default(), open, |_, rogue| pass(rogue, Passing::message()));
    as_a_lane_without_a_record(ServerConfig::default(), open, |_, rogue| {
        drop(control(rogue, &Passing::lane().message, 1));
    });
    as_a_message_without_a_record(ServerConfig::default(), open, |_, rogue| {
        drop(control(rogue, &Passing::message().message, 1));
    });
    behind_a_violation_in_the_lane(ServerConfig::default(), open, |_, mut rogue| {
        rogue.put(Header { kind: 99, ..Header::new(Kind::Request, Status::Ok, 1, 0) }, &[]);
        control(rogue, &Passing::lane().message, 1)
    });
    behind_junk_on_the_socket(ServerConfig::default(), open, |_, rogue| {
        rogue.send_control(b"junk", &[]);
        control(rogue, &Passing::lane().message, 1)
    });
    behind_a_close(ServerConfig::default(), open, |_, mut rogue| {
        let mut close = Header::new(Kind::Close, Status::Ok, 0, 0);
        close.status = 1.into();
        rogue.put(close, &[]);
        control(rogue, &Passing::lane().message, 1)
    });
    of_the_oldest_handshake(ServerConfig::default().handshake_timeout(TEST_TIMEOUT), many_clients, |fixture, mut many_clients| {
        // The newcomer is seen first, and takes the place of the oldest, whose socket holds unread data.
        many_clients.push(connect(fixture));
        send(&many_clients[0], b"nobody reads this", vec![lingering_socket()]);
        many_clients
    });
} }

/// As far as WELCOME; and the session's number.
fn entered(fixture: &TestServer) -> (Rogue, u64) {
    let rogue = connect(fixture);
    let (welcome, _fds) = rogue.enter();
    (rogue, welcome.session)
}

/// The same, of a client that is to be rung by an eventfd.
fn rung_by_eventfd(fixture: &TestServer) -> (Rogue, u64) {
    let mut rogue = connect(fixture);
    rogue.hello = Hello { doorbell: Doorbell::Eventfd, ..rogue.hello };
    let (welcome, _fds) = rogue.enter();
    (rogue, welcome.session)
}

/// As many clients in the handshake as there may be.
fn many_clients(fixture: &TestServer) -> Vec<Rogue> {
    (0..256).map(|_| entered(fixture).0).collect()
}

fn page(session: u64) -> OwnedFd {
    Draft::page(Role::Client, session, "echo".parse().unwrap()).make()
}

fn attach(rogue: Rogue, session: u64, fds: impl IntoIterator<Item = OwnedFd>) -> Rogue {
    let fds: Vec<_> = fds.into_iter().collect();
    rogue.join(session, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    rogue
}

fn control(rogue: RogueSession, message: &Message, fds: usize) -> RogueSession {
    let all: Vec<_> = (0..fds).map(|_| lingering_socket()).collect();
    rogue.send_control(&encode(message, fds), &all.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    rogue
}

fn pass(mut rogue: RogueSession, mut passing: Passing) -> RogueSession {
    passing.memory.other = Some(lingering_socket);
    passing.send(&mut rogue);
    rogue
}

/// A client that gets this with WELCOME reports the fault at once.
#[track_caller]
fn holds_up_no_client(doorbell: Doorbell, fds: fn(u64) -> Vec<OwnedFd>) {
    holds_up_no_client_with(doorbell, fds, &[]);
}

/// The same, with descriptors that this end goes on holding.
#[track_caller]
fn holds_up_no_client_with(
    doorbell: Doorbell,
    fds: fn(u64) -> Vec<OwnedFd>,
    lent: &[BorrowedFd<'_>],
) {
    const SESSION: u64 = 7;
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let run_dir = dir.run_dir.clone();
    let (sender, states) = channel();
    let (go, gone) = channel::<()>();
    thread::spawn(move || {
        let mut client = Client::<Echo>::with_config(&run_dir, client_config());
        sender.send(client.refresh()).unwrap();
        gone.recv().unwrap();
        sender.send(client.refresh()).unwrap();
        drop(client);
        sender.send(ProviderState::Absent).unwrap();
    });
    assert_eq!(states.recv_timeout(TEST_TIMEOUT).unwrap(), ProviderState::Connecting);
    let rogue = listener.accept();
    let fds = fds(SESSION);
    let bytes = encode(
        &Message::Welcome(bellwire_core::wire::Welcome { doorbell, ..welcome(SESSION) }),
        fds.len() + lent.len(),
    );
    let all: Vec<_> = fds.iter().map(AsFd::as_fd).chain(lent.iter().copied()).collect();
    rogue.send_bytes(&bytes, &all);
    drop(fds);
    drop(rogue);
    go.send(()).unwrap();
    let state = states.recv_timeout(TEST_TIMEOUT).expect("the client is held up");
    assert!(!matches!(state, ProviderState::Ready), "{state:?}");
    assert_eq!(
        states.recv_timeout(TEST_TIMEOUT).expect("it is held up when it is dropped"),
        ProviderState::Absent
    );
}

fn server_page(session: u64) -> OwnedFd {
    Draft::page(Role::Server, session, "echo".parse().unwrap()).make()
}

fn board() -> OwnedFd {
    Draft::board("echo".parse().unwrap()).make()
}

rows! { of_clients: holds_up_no_client {
    as_the_page(Doorbell::Socket, |_| vec![lingering_socket(), Draft::lane().make(), board()]);
    as_the_lane(Doorbell::Socket, |it| vec![server_page(it), lingering_socket(), board()]);
    as_the_board(Doorbell::Socket, |it| vec![server_page(it), Draft::lane().make(), lingering_socket()]);
    behind_a_page_that_is_none(Doorbell::Socket, |_| vec![pipe(), lingering_socket(), lingering_socket()]);
    behind_a_lane_that_is_none(Doorbell::Socket, |it| vec![server_page(it), pipe(), lingering_socket()]);
    behind_a_board_that_is_none(Doorbell::Eventfd, |it| {
        vec![server_page(it), Draft::lane().make(), pipe(), lingering_socket()]
    });
    as_the_eventfd(Doorbell::Eventfd, |it| {
        vec![server_page(it), Draft::lane().make(), board(), lingering_socket()]
    });
    where_no_eventfd_was_agreed(Doorbell::Socket, |it| {
        vec![server_page(it), Draft::lane().make(), board(), lingering_socket()]
    });
} }

/// Looking at it, and not only closing it, would wait for the file's server.
#[test]
fn a_file_whose_fuse_server_never_answers_blocks_no_reactor() {
    let Some(silent) = Silent::new(c"file") else { return };
    holds_up_no_reactor(ServerConfig::default(), rung_by_eventfd, |_, (rogue, session)| {
        let (page, lane) = (page(session), Draft::lane().make());
        rogue.join(session, &[page.as_fd(), lane.as_fd(), silent.as_fd()]);
        rogue
    });
    is_closed(silent);
}

#[test]
fn a_file_whose_fuse_server_never_answers_blocks_no_client() {
    let Some(silent) = Silent::new(c"file") else { return };
    let fds = |it| vec![server_page(it), Draft::lane().make(), board()];
    holds_up_no_client_with(Doorbell::Eventfd, fds, &[silent.as_fd()]);
    is_closed(silent);
}

/// A descriptor that can no longer be closed is in use.
#[test]
fn a_user_whose_files_block_the_reaper_is_refused_until_they_are_closed() {
    let dir = Dir::new();
    // In a process of its own, since a process has one reaper. Before the file exists, since exec would close it, and
    // wait.
    let _server = Process::start("server", &dir.run_dir);
    let Some(silent) = Silent::new(c"file") else { return };
    let mut good = Client::<Echo>::with_config(&dir.run_dir, client_config());
    good.call(&vec![1]).unwrap();
    // No violation in itself: messages that no record refers to.
    let attachment = Message::Attachment(Attachment { id: 1, generation: 0, len: 4096 });
    let sessions: Vec<_> = (0..20).map(|_| Rogue::connect(&dir.run_dir, "echo").open()).collect();
    for session in &sessions {
        pass::send(session.link.arrived(), &encode(&attachment, 1), &[silent.as_fd()]).unwrap();
    }
    drop(sessions);
    until("nothing of this user is closed any more", || {
        let newcomer = Client::<Echo>::with_config(&dir.run_dir, client_config()).call(&vec![1]);
        newcomer.is_err_and(|error| error.to_string().contains("cannot be closed"))
    });
    assert_eq!(good.call(&vec![2]).unwrap(), [2], "who is in stays");
    drop(silent);
    until("it is closed", || {
        Client::<Echo>::with_config(&dir.run_dir, client_config()).call(&vec![3]).is_ok()
    });
}

/// The file's server answers from now on. A process that ends before that would wait for itself.
fn is_closed(silent: Silent) {
    drop(silent);
    until("the reaper is done", || bellwire_memfd::reaper::backlog() == 0);
}
