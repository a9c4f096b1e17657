//! Backpressure policies, with a provider in a process of its own that reads nothing.

use std::thread;
use std::time::Duration;

use bellwire::{
    Backpressure, CallError, Client, ClientConfig, Executed, Geometry, Limits, Session, Ticket,
};

use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::parked::Thread;
use crate::support::roles::parse_stats;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, client_config, reconcile, reconcile_session};

const LEAST: u64 = 4096;
const MOST: u64 = 16 << 10;
const SOON: Duration = Duration::from_millis(10);

/// A provider whose only thread is held at its gate by request 0.
struct Slow {
    server: Process,
    client: Client<Hold>,
    sent: u64,
    _dir: Dir,
}

fn config(backpressure: Backpressure) -> ClientConfig {
    let lane = Geometry::new(LEAST).unwrap();
    let limits = Limits { max_lane: Geometry::new(MOST).unwrap(), ..Limits::default() };
    client_config()
        .backpressure(backpressure)
        .lane(client_config().lane.size(lane).max_learned(lane).limits(limits))
}

impl Slow {
    fn with(config: ClientConfig) -> Self {
        let dir = Dir::new();
        let mut server = Process::start("server", &dir.run_dir);
        let mut client = Client::with_config(&dir.run_dir, config);
        client.connect().unwrap().submit(&0).unwrap();
        assert_eq!(server.next_line(), "came 0");
        Self { server, client, sent: 1, _dir: dir }
    }

    fn chosen(backpressure: Backpressure) -> Self {
        Self::with(config(backpressure))
    }

    fn session(&mut self) -> &mut Session<Hold> {
        self.client.session().unwrap()
    }

    /// How large the lane is, how often it grew, and how often this end slept.
    fn lane(&mut self) -> (u64, u64, u64) {
        let stats = self.session().stats();
        (stats.requests.size, stats.requests.grows, stats.parks)
    }

    /// Sends until the lane is full.
    fn fill(&mut self, send: impl Fn(&mut Session<Hold>, u64) -> Result<Ticket, CallError>) {
        loop {
            let number = self.sent;
            match send(self.session(), number) {
                Ok(_) => self.sent += 1,
                Err(error) => return assert!(is_full(&error), "{error}"),
            }
        }
    }

    /// Waits in vain, again until it has slept: on a slow machine the time may be over before it does.
    fn sleeps<T: std::fmt::Debug>(
        &mut self,
        wait: impl Fn(&mut Session<Hold>) -> Result<T, CallError>,
    ) {
        until("it sleeps", || {
            let parks = self.lane().2;
            assert!(is_late(&wait(self.session())));
            self.lane().2 > parks
        });
    }

    /// Lets the provider continue. Exactly the requests that were sent are answered, in order.
    fn close(mut self, more: u64) {
        self.server.send_line("open");
        let sent = self.sent;
        for number in 0..sent {
            let (_, answer) = self.session().wait_reply(TEST_TIMEOUT).unwrap();
            assert_eq!(answer.unwrap(), number);
        }
        assert!(self.session().try_reply().unwrap().is_none());
        reconcile_session(self.session());
        drop(self.client);
        self.server.send_line("stop");
        let reply = std::iter::from_fn(|| self.server.try_next_line());
        let last = reply.filter(|line| line != "opened" && !line.starts_with("came")).last();
        let stats = parse_stats(&last.unwrap());
        reconcile(&stats);
        assert_eq!(stats.accepted, sent + more);
    }
}

fn is_full(error: &CallError) -> bool {
    matches!(error, CallError::WouldBlock) && error.executed() == Executed::No
}

fn is_late<T: std::fmt::Debug>(answer: &Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Deadline { executed: Executed::No }))
}

#[test]
fn backpressure_fail_returns_at_once_and_the_lane_keeps_its_size() {
    let mut slow = Slow::chosen(Backpressure::Fail);
    let parks = slow.lane().2;
    slow.fill(|session, number| session.submit(&number));
    assert!(slow.sent > 50, "{} fit into {LEAST} bytes", slow.sent);
    let session = slow.session();
    assert!(is_full(&session.call(&9).unwrap_err()));
    assert!(is_full(&session.raw().call(&[9; 8]).unwrap_err()));
    assert!(is_full(&session.raw().submit(&[9; 8]).unwrap_err()));
    assert!(is_full(&session.call_batch(&[9, 9]).unwrap_err()));
    assert!(is_full(&session.submit_batch(&[9, 9]).unwrap_err()));
    let mut failed = Vec::new();
    session
        .call_many(&[7, 8], |nth, answer| failed.push((nth, is_full(&answer.unwrap_err()))))
        .unwrap();
    assert_eq!(failed, [(0, true), (1, true)]);
    assert_eq!(slow.lane(), (LEAST, 0, parks));
    slow.close(0);
}

#[test]
fn backpressure_wait_lasts_to_the_deadline_and_the_lane_keeps_its_size() {
    let mut slow = Slow::with(config(Backpressure::Wait).timeout(SOON));
    slow.fill(|session, number| session.backpressure(Backpressure::Fail).submit(&number));
    slow.sleeps(|session| session.call_within(&9, SOON));
    slow.sleeps(|session| session.submit(&9));
    slow.sleeps(|session| session.submit_batch(&[9, 9]));
    slow.sleeps(|session| session.call_batch(&[9, 9]).map(drop));
    slow.sleeps(|session| session.call_many(&[9], |_, _| panic!("it was not sent")));
    assert_eq!(slow.lane().1, 0);
    slow.close(0);
}

#[test]
fn backpressure_wait_ends_when_there_is_room_and_the_lane_keeps_its_size() {
    let mut slow = Slow::chosen(Backpressure::Wait);
    slow.fill(|session, number| session.backpressure(Backpressure::Fail).submit(&number));
    let caller = Thread::this();
    let Slow { server, client, .. } = &mut slow;
    let session = client.session().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            caller.wait_until_parked();
            server.send_line("open");
        });
        assert_eq!(session.call(&(1 << 40)).unwrap(), 1 << 40);
    });
    let requests: Vec<u64> = (0..20_000).collect();
    let mut answered = 0;
    session
        .call_many(&requests, |nth, answer| {
            assert_eq!(answer.unwrap(), nth as u64);
            answered += 1;
        })
        .unwrap();
    assert_eq!((answered, slow.lane().0, slow.lane().1), (requests.len(), LEAST, 0));
    slow.close(1 + requests.len() as u64);
}

#[test]
fn backpressure_wait_sends_a_message_above_the_lane_in_parts() {
    let dir = Dir::new();
    let _server = Process::start("server", &dir.run_dir);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config(Backpressure::Wait));
    let session = client.connect().unwrap();
    for len in [2000, 2100, 50_000, 300_000] {
        let request = vec![7; len];
        assert!(session.call(&request).unwrap() == request, "{len} bytes");
    }
    let items = vec![vec![9; 1500]; 20];
    let answers: Result<Vec<_>, _> = session.call_batch(&items).unwrap().collect();
    assert!(answers.unwrap() == items);
    let requests = session.stats().requests;
    assert_eq!((requests.size, requests.grows, requests.attaches), (LEAST, 0, 0));
    // The same with the default policy.
    session.backpressure(Backpressure::Adapt).call(&vec![7; 5000]).unwrap();
    assert_eq!(session.stats().requests.grows, 1);
}

#[test]
fn backpressure_grow_grows_to_the_limit_and_then_waits_or_fails() {
    let mut slow = Slow::chosen(Backpressure::Grow);
    let parks = slow.lane().2;
    slow.fill(|session, number| session.submit(&number));
    assert_eq!(slow.lane(), (MOST, 2, parks));
    assert!(is_full(&slow.session().submit_batch(&[9, 9]).unwrap_err()));
    slow.sleeps(|session| session.call_within(&9, SOON));
    assert_eq!(slow.lane().1, 2);
    slow.close(0);
}

#[test]
fn many_calls_grow_the_lane_instead_of_waiting_for_room() {
    let mut slow = Slow::chosen(Backpressure::Grow);
    let caller = Thread::this();
    let Slow { server, client, .. } = &mut slow;
    let session = client.session().unwrap();
    let requests: Vec<u64> = (0..20_000).collect();
    let mut answered = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            caller.wait_until_parked();
            server.send_line("open");
        });
        session.call_many(&requests, |_, answer| answered += u64::from(answer.is_ok())).unwrap();
    });
    assert_eq!((answered, slow.lane().0, slow.lane().1), (20_000, MOST, 2));
    slow.close(answered);
}

#[test]
fn by_default_the_lane_adapts_and_submit_fails() {
    let mut slow = Slow::chosen(Backpressure::default());
    let parks = slow.lane().2;
    slow.fill(|session, number| session.submit(&number));
    // Three quarters were full: the next size was offered by then. Its reader has not come there, so that is all.
    assert_eq!(slow.lane(), (2 * LEAST, 1, parks));
    assert!(is_late(&slow.session().call_within(&9, SOON)));
    slow.close(0);
}

#[test]
fn a_choice_for_one_call_leaves_the_session_as_it_was() {
    let mut slow = Slow::chosen(Backpressure::Fail);
    slow.fill(|session, number| session.submit(&number));
    assert!(is_late(&slow.session().backpressure(Backpressure::Wait).call_within(&9, SOON)));
    assert!(is_full(&slow.session().call(&9).unwrap_err()));
    assert_eq!(slow.lane().1, 0);
    let number = slow.sent;
    slow.session().backpressure(Backpressure::Grow).submit(&number).unwrap();
    slow.sent += 1;
    assert_eq!(slow.lane().1, 1);
    slow.fill(|session, number| session.submit(&number));
    assert_eq!(slow.lane().1, 1, "it grew once, and not again");
    slow.close(0);
}
