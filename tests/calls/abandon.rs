//! Handlers that run after their callers have abandoned the request.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use bellwire::{
    BatchAnswers, CallError, Caller, Client, ErrorKind, Server, ServerBuilder, ServerConfig,
    Service, Status,
};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::Hold;
use crate::support::test_server::{Dir, TestServer, client_config};

/// Answers [`AnswersWhenAbandoned::QUICK`] at once, and anything else once its caller has abandoned it.
struct AnswersWhenAbandoned;

impl AnswersWhenAbandoned {
    const QUICK: u64 = 0;
}

impl Service for AnswersWhenAbandoned {
    const NAME: &'static str = "answers-when-abandoned";
    type Request = u64;
    type Response = u64;
}

/// A server of it, and what its handlers report: each number twice, on arrival and when its caller has abandoned it.
struct ObservedServer {
    server: Server,
    reports: Receiver<u64>,
    dir: Dir,
}

impl ObservedServer {
    fn with(config: ServerConfig, is_whole: bool) -> Self {
        let (sender, reports) = channel();
        let sender = Mutex::new(sender);
        let wait = move |caller: &Caller, number: u64| {
            if number != AnswersWhenAbandoned::QUICK {
                sender.lock().unwrap().send(number).unwrap();
                until("nobody waits", || caller.is_abandoned());
                sender.lock().unwrap().send(number).unwrap();
            }
            number
        };
        let dir = Dir::new();
        let mut builder = Server::builder_with_config(&dir.run_dir, config);
        serve(&mut builder, wait, is_whole);
        Self { server: builder.start().unwrap(), reports, dir }
    }

    /// With one worker.
    fn new(is_whole: bool) -> Self {
        Self::with(ServerConfig::default().workers(1), is_whole)
    }

    fn client(&self) -> Client<AnswersWhenAbandoned> {
        Client::with_config(&self.dir.run_dir, client_config())
    }

    fn next_report(&self) -> u64 {
        self.reports.recv_timeout(TEST_TIMEOUT).expect("the handler says nothing")
    }

    /// The worker is idle, and has begun nothing that it did not report.
    fn assert_idle(&self) {
        assert_eq!(
            self.client().call(&AnswersWhenAbandoned::QUICK).unwrap(),
            AnswersWhenAbandoned::QUICK
        );
        assert_eq!(self.reports.try_iter().count(), 0, "the rest of the batch was handled");
    }
}

fn serve(
    builder: &mut ServerBuilder,
    wait: impl Fn(&Caller, u64) -> u64 + Send + Sync + 'static,
    is_whole: bool,
) {
    if !is_whole {
        builder
            .serve::<AnswersWhenAbandoned>(move |caller, number| Ok(wait(caller, number)))
            .unwrap();
        return;
    }
    let all = move |caller: &Caller, batch: &[u64], answers: &mut BatchAnswers<'_, u64>| {
        for number in batch {
            if answers.is_abandoned() {
                return;
            }
            answers.push(&wait(caller, *number));
        }
    };
    builder.serve_batches::<AnswersWhenAbandoned>(all).unwrap();
}

#[test]
fn a_handler_learns_that_its_client_left_and_a_batch_ends_with_the_current_item() {
    for is_whole in [false, true] {
        let observed = ObservedServer::new(is_whole);
        let mut client = observed.client();
        client.connect().unwrap().submit_batch(&[1, 2, 3]).unwrap();
        assert_eq!(observed.next_report(), 1);
        drop(client);
        assert_eq!(observed.next_report(), 1);
        observed.assert_idle();
        let stats = observed.server.stop();
        assert_eq!((stats.accepted, stats.answered, stats.lost), (2, 1, 1));
    }
}

#[test]
fn a_handler_learns_that_its_request_was_cancelled_and_the_session_stays_open() {
    for is_whole in [false, true] {
        let observed = ObservedServer::new(is_whole);
        let mut client = observed.client();
        let session = client.connect().unwrap();
        let ticket = session.submit_batch(&[1, 2, 3]).unwrap();
        assert_eq!(observed.next_report(), 1);
        assert!(session.abandon(ticket));
        assert_eq!(observed.next_report(), 1);
        observed.assert_idle();
        let ticket = session.submit(&4).unwrap();
        assert_eq!(observed.next_report(), 4);
        assert!(session.abandon(ticket));
        assert_eq!(observed.next_report(), 4);
        assert_eq!(
            session.call(&AnswersWhenAbandoned::QUICK).unwrap(),
            AnswersWhenAbandoned::QUICK
        );
        drop(client);
        observed.server.stop();
    }
}

/// With a worker the client is gone by then; on the reactor thread it gets what was answered.
#[test]
fn a_handler_learns_that_the_drain_timeout_is_over() {
    for (workers, is_whole) in [(0, false), (0, true), (1, false), (1, true)] {
        let drain_timeout = Duration::from_millis(10);
        let config = ServerConfig::default().workers(workers).drain_timeout(drain_timeout);
        let observed = ObservedServer::with(config, is_whole);
        let mut client = observed.client();
        let session = client.connect().unwrap();
        session.submit_batch(&[1, 2, 3]).unwrap();
        assert_eq!(observed.next_report(), 1);
        let ObservedServer { server, reports, dir: _dir } = observed;
        let stats = server.stop();
        assert_eq!(reports.try_iter().collect::<Vec<_>>(), [1], "only the item at hand");
        let answers = session.wait_batch(TEST_TIMEOUT);
        if workers > 0 {
            assert!(matches!(answers, Err(CallError::Closed { .. })));
            assert_eq!((stats.answered, stats.lost), (0, 1));
            continue;
        }
        let answers: Vec<_> = answers.unwrap().1.unwrap().collect();
        assert_eq!(*answers[0].as_ref().unwrap(), 1);
        for left in &answers[1..] {
            let error = &**left.as_ref().unwrap_err();
            assert!(matches!(error, CallError::Declined { status: Status::Stopping }), "{error}");
        }
        assert_eq!((answers.len(), stats.answered, stats.lost), (3, 1, 0));
    }
}

#[test]
fn a_batch_is_handled_to_its_end_while_the_server_waits() {
    let fixture = TestServer::with(ServerConfig::default().workers(1).drain_timeout(TEST_TIMEOUT));
    let mut client = fixture.client::<Hold>();
    let session = client.session().unwrap();
    session.submit_batch(&[1, 2, 3]).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    let gate = fixture.gate();
    let (server, dir) = fixture.into_server();
    let stopping = thread::spawn(move || server.stop());
    // Clients find nobody once it is stopping. A request would count as lost if its client left before it was withdrawn.
    until("the server is stopping", || {
        let error = Client::<Hold>::new(&dir.run_dir).connect().err();
        matches!(error.map(|error| error.kind()), Some(ErrorKind::Absent | ErrorKind::PeerGone))
    });
    gate.open();
    let (_, answers) = session.wait_batch(TEST_TIMEOUT).unwrap();
    assert_eq!(answers.unwrap().map(Result::unwrap).collect::<Vec<_>>(), [1, 2, 3]);
    drop(client);
    assert_eq!(stopping.join().unwrap().lost, 0);
}
