//! Clients that are odd, slow or many in the handshake, while a good client of the same server goes on. What is refused of them
//! is in `misbehaving/to_server/`.

use std::os::fd::{AsFd, OwnedFd};

use bellwire::{Client, Doorbell, RefuseCode, ServerStats};
use bellwire_core::wire::{Hello, Message, Role};

use crate::support::guard::until;
use crate::support::memory::Draft;
use crate::support::rogue::{Rogue, encode, hello, service};
use crate::support::services::{AsRequested, Echo};
use crate::support::test_server::TestServer;

/// A server under attack, and its good client.
struct AttackedServer {
    good: Client<Echo>,
    fixture: TestServer,
}

impl AttackedServer {
    fn begin() -> Self {
        let fixture = TestServer::open();
        let good = fixture.client();
        Self { fixture, good }
    }

    fn rogue(&self) -> Rogue {
        Rogue::connect(self.fixture.run_dir(), "echo")
    }

    /// The good client still is served, and a new one is admitted: the counters show how many rogues were not.
    fn end(mut self, handshakes_failed: u64) -> ServerStats {
        assert_eq!(self.good.call(&b"still here".to_vec()).unwrap(), b"still here");
        let mut late = self.fixture.client::<AsRequested>();
        assert_eq!(late.call(&AsRequested::ANSWER).unwrap(), b"fine");
        drop((self.good, late));
        let stats = self.fixture.close();
        assert_eq!((stats.handshakes_failed, stats.poisoned), (handshakes_failed, 0), "{stats:?}");
        stats
    }
}

fn fresh_hello() -> Hello {
    hello(service("echo"))
}

#[test]
fn a_client_that_leaves_after_its_hello_is_no_lack_of_a_resource() {
    const ROUNDS: u64 = 100;
    let attacked = AttackedServer::begin();
    let hello = encode(&Message::Hello(fresh_hello()), 0);
    for _ in 0..ROUNDS {
        attacked.rogue().send_bytes(&hello, &[]);
    }
    until("all have left", || attacked.fixture.stats().handshakes_failed == ROUNDS);
    let incidents = attacked.fixture.recorded_incidents();
    assert!(incidents.is_empty(), "leaving is no cause: {incidents:?}");
    attacked.end(ROUNDS);
}

#[test]
fn a_client_that_cannot_ring_an_eventfd_is_given_the_socket() {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    rogue.send(&Message::Hello(Hello { rings_eventfd: false, ..fresh_hello() }), &[]);
    let Some((Message::Welcome(welcome), fds)) = rogue.receive() else { panic!("not let in") };
    assert_eq!((welcome.doorbell, fds.len()), (Doorbell::Socket, 3));
    drop(rogue);
    attacked.end(1);
}

/// What a client sends with JOIN. Unmodified, it is what an honest one sends.
pub(crate) struct Joining {
    pub(crate) page: Draft,
    pub(crate) lane: Draft,
    pub(crate) session: u64,
    /// Sent instead of page and lane.
    pub(crate) fds: Option<Vec<OwnedFd>>,
}

pub(crate) fn join(rogue: &Rogue, alter: impl FnOnce(&mut Joining)) {
    let (welcome, _fds) = rogue.enter();
    let session = welcome.session;
    let page = Draft::page(Role::Client, session, rogue.service);
    let mut joining = Joining { page, lane: Draft::lane(), session, fds: None };
    alter(&mut joining);
    let Joining { page, lane, session, fds } = joining;
    let fds = fds.unwrap_or_else(|| vec![page.make(), lane.make()]);
    rogue.join(session, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
}

#[test]
fn an_honest_join_of_the_same_making_is_let_in() {
    // Otherwise the tests below would prove nothing.
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    join(&rogue, |_| {});
    assert!(matches!(rogue.receive(), Some((Message::Ready(_), _))));
    drop(rogue);
    attacked.end(0);
}

#[test]
fn a_client_that_leaves_at_any_step_leaves_nothing_behind() {
    let attacked = AttackedServer::begin();
    drop(attacked.rogue());
    let after_hello = attacked.rogue();
    after_hello.send(&Message::Hello(fresh_hello()), &[]);
    drop(after_hello);
    let welcomed = attacked.rogue();
    welcomed.enter();
    drop(welcomed);
    let joined = attacked.rogue();
    join(&joined, |_| {});
    drop(joined);
    until("all sessions are freed", || {
        let stats = attacked.fixture.stats();
        stats.sessions == 1 && stats.admitted + stats.handshakes_failed == 5
    });
}

#[test]
fn three_hundred_half_open_handshakes_block_no_good_client() {
    let mut attacked = AttackedServer::begin();
    let mut halfway = Vec::new();
    for at in 0..300 {
        let rogue = attacked.rogue();
        if at % 2 == 0 {
            rogue.send(&Message::Hello(fresh_hello()), &[]);
        }
        halfway.push(rogue);
        if at % 50 == 0 {
            assert_eq!(attacked.good.call(&vec![1]).unwrap(), [1]);
        }
    }
    let mut late = attacked.fixture.client::<AsRequested>();
    assert_eq!(late.call(&AsRequested::ANSWER).unwrap(), b"fine");
    drop(late);
    // The connection that was silent longest was evicted.
    halfway.remove(1).is_refused(RefuseCode::Quota, "in the handshake");
    drop(halfway);
    until("all have left", || attacked.fixture.stats().handshakes_failed == 300);
    attacked.end(300);
}
