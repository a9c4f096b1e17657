//! Handlers that are futures.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwire::{
    AsyncClient, CallError, Caller, Client, ErrorKind, Executed, HandlerError, Server,
    ServerConfig, ServerStats, Service, Session, Status,
};
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Semaphore};

use super::{current, several};
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::services;
use crate::support::test_server::{Dir, Reconciled, client_config};

services! {
    /// What its handler does depends on the number.
    Waits("waits"): u64 => u64;
}

/// Waits until it is released.
const HOLD: u64 = 1 << 32;
const PANIC: u64 = HOLD + 1;
const FAIL: u64 = HOLD + 2;
/// Waits for as many as there are.
const TOGETHER: u64 = HOLD + 3;
/// Keeps its thread until the fixture says so.
const BLOCK: u64 = HOLD + 4;
const IN_FLIGHT: usize = 200;

/// A server whose handlers wait, in a runtime of its own.
struct Waiting {
    server: Reconciled,
    dir: Dir,
    runtime: Runtime,
    gate: Arc<Semaphore>,
    begun: Receiver<u64>,
    dropped: Receiver<u64>,
    unblock: Sender<()>,
}

/// Reports that a future has ended, in whatever way.
struct Ended(Sender<u64>, u64);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
    }
}

impl Waiting {
    fn open(config: ServerConfig) -> Self {
        Self::open_in(several(), config)
    }

    fn open_in(runtime: Runtime, config: ServerConfig) -> Self {
        let (dir, gate) = (Dir::new(), Arc::new(Semaphore::new(0)));
        let ((begins, begun), (drops, dropped)) = (channel(), channel());
        let (unblock, blocked) = channel();
        let blocked = Arc::new(Mutex::new(blocked));
        let (held, together) = (Arc::clone(&gate), Arc::new(Barrier::new(IN_FLIGHT)));
        let mut builder = Server::builder_with_config(&dir.run_dir, config);
        let handler = move |_: Caller, asked: u64| {
            let (held, together) = (Arc::clone(&held), Arc::clone(&together));
            let blocked = Arc::clone(&blocked);
            let (begins, ended) = (begins.clone(), Ended(drops.clone(), asked));
            async move {
                let _ended = ended;
                begins.send(asked).unwrap();
                match asked {
                    HOLD => held.acquire().await?.forget(),
                    TOGETHER => {
                        together.wait().await;
                    }
                    BLOCK => blocked.lock().unwrap().recv()?,
                    PANIC => panic!("a future panics, as it was asked to"),
                    FAIL => return Err(HandlerError::with_code(7, "out of paper")),
                    _ => tokio::task::yield_now().await,
                }
                Ok(asked + 1)
            }
        };
        let entered = runtime.enter();
        builder.serve_async::<Waits, _>(handler).unwrap();
        drop(entered);
        let server = builder.start().unwrap().into();
        Self { dir, server, runtime, gate, begun, dropped, unblock }
    }

    fn client(&self) -> Client<Waits> {
        Client::with_config(&self.dir.run_dir, client_config())
    }

    fn close(self) -> ServerStats {
        self.server.stop()
    }
}

/// The next answer.
fn reply(session: &mut Session<Waits>) -> Result<u64, CallError> {
    session.wait_reply(TEST_TIMEOUT)?.1
}

#[test]
fn any_number_of_calls_wait_at_once_without_a_thread_for_each() {
    let fixture = Waiting::open(ServerConfig::default());
    let mut client = fixture.client();
    let each = |_, answer: Result<u64, CallError>| assert_eq!(answer.unwrap(), TOGETHER + 1);
    client.connect().unwrap().call_many(&[TOGETHER; IN_FLIGHT], each).unwrap();
    assert_eq!(client.call(&7).unwrap(), 8);
    drop(client);
    assert_eq!(fixture.close().accepted, IN_FLIGHT as u64 + 1);
}

services! {
    /// Asks [`Waits`], and answers with its answer.
    Relays("relays"): u64 => u64;
}

#[test]
fn a_deadline_that_passes_ends_the_handler_and_the_call_that_it_waits_for() {
    let fixture = Waiting::open(ServerConfig::default());
    let run_dir = &fixture.dir.run_dir;
    let asked = Arc::new(AsyncClient::<Waits>::with_config(run_dir, client_config()));
    let mut builder = Server::builder(run_dir);
    let entered = fixture.runtime.enter();
    let relay = move |_: Caller, number: u64| {
        let asked = Arc::clone(&asked);
        async move { Ok(asked.call(&number).await?) }
    };
    builder.serve_async::<Relays, _>(relay).unwrap();
    drop(entered);
    let relays = builder.start().unwrap();
    let mut client = Client::<Relays>::with_config(run_dir, client_config());
    let mut limit = Duration::from_millis(20);
    // At the first ones, the request may not have come so far.
    while fixture.begun.try_recv().is_err() {
        let late = client.call_within(&HOLD, limit).unwrap_err();
        assert!(matches!(late, CallError::Deadline { .. }), "{late}");
        limit *= 2;
    }
    assert_eq!(fixture.dropped.recv_timeout(TEST_TIMEOUT).unwrap(), HOLD, "while it waited");
    assert_eq!(client.call(&7).unwrap(), 8);
    drop(client);
    relays.stop();
}

#[test]
fn a_future_that_fails_or_panics_fails_its_call_alone() {
    let fixture = Waiting::open(ServerConfig::default());
    let mut client = fixture.client();
    let failed = client.call(&FAIL).unwrap_err();
    assert!(
        matches!(&failed, CallError::Handler { code: Some(7), reason } if &**reason == "out of paper")
    );
    let panicked = client.call(&PANIC).unwrap_err();
    assert!(matches!(panicked, CallError::Declined { status: Status::Panicked }), "{panicked}");
    assert_eq!(panicked.executed(), Executed::Maybe);
    let session = client.connect().unwrap();
    assert!(matches!(
        session.raw().call(b"short"),
        Err(CallError::Declined { status: Status::Malformed })
    ));
    // The items of a batch are handled one after another.
    let mut answers = session.call_batch(&[1, FAIL, 3]).unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), 2);
    let failed = CallError::from(answers.next().unwrap().unwrap_err());
    assert!(matches!(failed, CallError::Handler { code: Some(7), .. }), "{failed}");
    assert_eq!(answers.next().unwrap().unwrap(), 4);
    session.post(&5).unwrap();
    session.flush(TEST_TIMEOUT).unwrap();
    assert_eq!(client.call(&7).unwrap(), 8);
    drop(client);
    until("the post is handled", || fixture.server.stats().posted == 1);
}

#[test]
fn a_future_is_dropped_when_its_client_cancels_and_when_the_client_is_gone() {
    let fixture = Waiting::open(ServerConfig::default());
    let mut client = fixture.client();
    let session = client.connect().unwrap();
    let ticket = session.submit(&HOLD).unwrap();
    assert_eq!(fixture.begun.recv().unwrap(), HOLD);
    assert!(session.abandon(ticket));
    assert_eq!(fixture.dropped.recv().unwrap(), HOLD, "while it waited");
    assert_eq!(session.call(&7).unwrap(), 8, "and the session goes on");
    session.submit(&HOLD).unwrap();
    session.submit(&HOLD).unwrap();
    let begun: Vec<u64> = fixture.begun.iter().take(3).collect();
    assert_eq!(begun, [7, HOLD, HOLD]);
    assert_eq!(fixture.dropped.recv().unwrap(), 7);
    drop(client);
    assert_eq!([fixture.dropped.recv(), fixture.dropped.recv()], [Ok(HOLD), Ok(HOLD)]);
    assert_eq!(fixture.gate.available_permits(), 0);
    let stats = fixture.close();
    assert_eq!((stats.accepted, stats.lost), (4, 2));
}

#[test]
fn a_stopping_server_waits_for_its_futures_and_then_drops_the_rest() {
    let fixture = Waiting::open(ServerConfig::default());
    let mut client = fixture.client();
    let session = client.connect().unwrap();
    session.submit(&HOLD).unwrap();
    assert_eq!(fixture.begun.recv().unwrap(), HOLD);
    let (gate, server) = (Arc::clone(&fixture.gate), fixture.server);
    let stopping = std::thread::spawn(move || server.stop());
    // It refuses what comes after: then it is stopping.
    until("it stops", || session.call(&1).is_err());
    gate.add_permits(1);
    assert_eq!(reply(session).unwrap(), HOLD + 1);
    assert_eq!(stopping.join().unwrap().lost, 0);

    let brief = ServerConfig::default().drain_timeout(Duration::from_millis(10));
    let fixture = Waiting::open(brief);
    let mut client = fixture.client();
    let session = client.connect().unwrap();
    session.submit(&HOLD).unwrap();
    assert_eq!(fixture.begun.recv().unwrap(), HOLD);
    assert_eq!(fixture.server.stop().lost, 1);
    assert_eq!(fixture.dropped.recv().unwrap(), HOLD);
    let error = reply(session).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (ErrorKind::Stopping, Executed::Maybe));
}

#[test]
fn a_call_fails_when_the_runtime_of_its_handler_ends() {
    let Waiting { dir, server, runtime, begun, gate, .. } = Waiting::open(ServerConfig::default());
    let mut client = Client::<Waits>::with_config(&dir.run_dir, client_config());
    let session = client.connect().unwrap();
    session.submit(&HOLD).unwrap();
    assert_eq!(begun.recv().unwrap(), HOLD);
    drop(runtime);
    let error = reply(session).unwrap_err();
    assert!(
        matches!(&error, CallError::Handler { reason, .. } if reason.contains("runtime")),
        "{error}"
    );
    let never = session.call(&1).unwrap_err();
    assert_eq!(never.executed(), Executed::No, "{never}");
    drop((client, gate));
    server.stop();
}

#[test]
fn a_session_starts_no_more_futures_than_it_may_have_in_flight() {
    let fixture = Waiting::open(ServerConfig::default().max_in_flight(3));
    let mut client = fixture.client();
    let session = client.connect().unwrap();
    for _ in 0..5 {
        session.submit(&HOLD).unwrap();
    }
    for _ in 0..3 {
        fixture.begun.recv().unwrap();
    }
    until("all that may run are taken", || fixture.server.stats().accepted >= 3);
    assert!(fixture.begun.try_recv().is_err(), "the others stay in the lane");
    fixture.gate.add_permits(5);
    for _ in 0..5 {
        assert_eq!(reply(session).unwrap(), HOLD + 1);
    }
}

#[test]
fn all_sessions_together_have_a_limit_and_one_that_ends_gives_its_futures_back() {
    let fixture = Waiting::open(ServerConfig::default().max_queued(3));
    let begin = |count, begun| {
        let mut client = fixture.client();
        for _ in 0..count {
            client.connect().unwrap().submit(&HOLD).unwrap();
        }
        for _ in 0..begun {
            assert_eq!(fixture.begun.recv_timeout(TEST_TIMEOUT).unwrap(), HOLD);
        }
        client
    };
    let (first, mut second) = (begin(3, 3), begin(2, 1));
    // Every session may have one: so the two before have been looked at when a third one's is answered.
    assert_eq!(fixture.client().call(&7).unwrap(), 8);
    until("it is counted", || fixture.server.stats().answered == 1);
    assert_eq!(fixture.server.stats().accepted, 5, "one waits for the others");
    assert_eq!(fixture.begun.recv().unwrap(), 7);
    drop(first);
    until("two sessions are over", || fixture.server.stats().sessions == 1);
    let mut fourth = begin(2, 2);
    fixture.gate.add_permits(4);
    for client in [&mut second, &mut fourth] {
        for _ in 0..2 {
            assert_eq!(reply(client.session().unwrap()).unwrap(), HOLD + 1);
        }
    }
}

#[test]
fn a_call_that_is_cancelled_before_its_future_begins_did_not_run() {
    // Nobody drives it yet.
    let fixture = Waiting::open_in(current(), ServerConfig::default());
    let mut client = fixture.client();
    let session = client.connect().unwrap();
    let ticket = session.submit(&1).unwrap();
    until("it is taken", || fixture.server.stats().accepted == 1);
    assert!(session.abandon(ticket));
    until("it is refused", || fixture.server.stats().refused == 1);
    let answer = std::thread::scope(|scope| {
        let called = scope.spawn(|| session.call(&7));
        fixture.runtime.block_on(async {
            while !called.is_finished() {
                tokio::task::yield_now().await;
            }
        });
        called.join().unwrap()
    });
    assert_eq!(answer.unwrap(), 8);
    assert_eq!(fixture.begun.try_iter().collect::<Vec<_>>(), [7]);
}

#[test]
fn a_future_that_outlives_its_session_ends_none_of_the_next_one() {
    let fixture = Waiting::open(ServerConfig::default());
    let mut client = fixture.client();
    client.connect().unwrap().submit(&BLOCK).unwrap();
    assert_eq!(fixture.begun.recv().unwrap(), BLOCK);
    drop(client);
    until("its session is over", || fixture.server.stats().sessions == 0);
    // In the same place, with the same number.
    let mut client = fixture.client();
    let session = client.connect().unwrap();
    session.submit(&HOLD).unwrap();
    assert_eq!(fixture.begun.recv().unwrap(), HOLD);
    fixture.unblock.send(()).unwrap();
    assert_eq!(fixture.dropped.recv().unwrap(), BLOCK);
    fixture.gate.add_permits(1);
    assert_eq!(reply(session).unwrap(), HOLD + 1);
}

#[test]
fn an_item_that_is_malformed_fails_alone() {
    #[derive(Debug)]
    struct Flags;
    impl Service for Flags {
        const NAME: &'static str = "flags";
        type Request = bool;
        type Response = bool;
    }
    /// A client that claims the same types.
    #[derive(Debug)]
    struct Untrue;
    impl Service for Untrue {
        const NAME: &'static str = Flags::NAME;
        const SCHEMA: u64 = Flags::SCHEMA;
        type Request = u8;
        type Response = bool;
    }
    let (dir, runtime) = (Dir::new(), several());
    let _entered = runtime.enter();
    let mut builder = Server::builder(&dir.run_dir);
    builder.serve_async::<Flags, _>(|_, flag| async move { Ok(!flag) }).unwrap();
    let server = builder.start().unwrap();
    let mut client = Client::<Untrue>::with_config(&dir.run_dir, client_config());
    let mut answers = client.connect().unwrap().call_batch(&[1, 7, 0]).unwrap();
    assert!(!answers.next().unwrap().unwrap());
    let malformed = CallError::from(answers.next().unwrap().unwrap_err());
    assert_eq!(malformed.kind(), ErrorKind::Malformed, "{malformed}");
    assert!(answers.next().unwrap().unwrap());
    drop(answers);
    drop(client);
    server.stop();
}

#[test]
fn outside_of_a_runtime_there_is_none_to_serve_in() {
    let dir = Dir::new();
    let mut builder = Server::builder(&dir.run_dir);
    let error = builder.serve_async::<Waits, _>(|_, asked| async move { Ok(asked) }).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
}
