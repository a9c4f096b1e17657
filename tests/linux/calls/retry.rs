//! What is sent again when a provider goes, and what is not.

use std::thread;

use bellwire::{CallError, Client, Executed, ServerStats, Service};
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Port, Word};

use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::rogue::{RogueListener, RogueSession};
use crate::support::services::{Echo, Hold, echo};
use crate::support::test_server::{Dir, client_config, provide};

/// The same service, for a client that may ask twice.
#[derive(Debug)]
struct HoldTwice;

impl Service for HoldTwice {
    const NAME: &'static str = Hold::NAME;
    const IDEMPOTENT: bool = true;
    type Request = u64;
    type Response = u64;
}

/// What the first provider does with the request that it is sent.
#[derive(Clone, Copy)]
enum Ends {
    BeforeTaking,
    AfterTaking,
    Violating,
}

/// A client whose provider ends in the given way in the middle of a call, when a successor is there already: what the
/// client gets, and the counters of the successor.
fn call_across<S: Service<Request = u64, Response = u64>>(
    ends: Ends,
) -> (Result<u64, CallError>, ServerStats) {
    across::<S, _>(ends, |client| client.call(&5))
}

fn across<S: Service<Request = u64, Response = u64>, R: Send + 'static>(
    ends: Ends,
    call: impl FnOnce(&mut Client<S>) -> R + Send + 'static,
) -> (R, ServerStats) {
    let dir = Dir::new();
    let first = RogueListener::bind(&dir.run_dir, S::NAME);
    let run_dir = dir.run_dir.clone();
    let caller = thread::spawn(move || {
        let mut client = Client::<S>::with_config(&run_dir, client_config());
        call(&mut client)
    });
    let mut session = first.open(1);
    until_request(&session);
    // No lock protects a rogue: the successor takes the name while the first session lasts.
    let successor = provide::<S>(&dir.run_dir, |_, number| Ok(number * 10));
    match ends {
        Ends::BeforeTaking => drop(session),
        Ends::AfterTaking => {
            take(&session);
            drop(session);
        }
        Ends::Violating => {
            take(&session);
            session.put(Header::new(Kind::Response, Status::Ok, 77, 0), &[]);
            session.is_left();
        }
    }
    let answer = caller.join().unwrap();
    let stats = successor.stop();
    (answer, stats)
}

fn until_request(session: &RogueSession) {
    use bellwire_core::PeerMemory;
    use bellwire_core::sync::Ordering;
    let tail = || session.link.peer().load(Word::Tail, Ordering::Acquire);
    until("the request is there", || tail() > 0);
}

fn take(session: &RogueSession) {
    let mut lanes = session.lanes();
    let (own, peer) = (session.link.own(), session.link.peer());
    let taken = ServeMachine::new(9).next(&mut lanes, own, peer, &mut Vec::new()).unwrap();
    assert!(matches!(taken, Some(Incoming::Request { id: 1, len: 8, .. })));
}

#[test]
fn a_request_that_cannot_have_run_is_sent_to_the_successor() {
    let (answer, stats) = call_across::<Hold>(Ends::BeforeTaking);
    assert_eq!(answer.unwrap(), 50);
    assert_eq!((stats.accepted, stats.answered), (1, 1));
}

#[test]
fn a_batch_that_cannot_have_run_is_sent_to_the_successor() {
    let (answers, stats) = across::<Hold, _>(Ends::BeforeTaking, |client| {
        client.call_batch(&[5, 6])?.collect::<Result<Vec<u64>, _>>().map_err(CallError::from)
    });
    assert_eq!(answers.unwrap(), [50, 60]);
    assert_eq!((stats.accepted, stats.answered), (1, 1));
}

#[test]
fn a_request_that_may_have_run_is_not_sent_again() {
    let (answer, stats) = call_across::<Hold>(Ends::AfterTaking);
    let error = answer.unwrap_err();
    assert!(matches!(error, CallError::PeerGone { executed: Executed::Maybe }), "{error}");
    assert_eq!(stats.accepted, 0);
}

#[test]
fn an_idempotent_request_is_sent_again_once() {
    let (answer, stats) = call_across::<HoldTwice>(Ends::AfterTaking);
    assert_eq!(answer.unwrap(), 50);
    assert_eq!((stats.accepted, stats.answered), (1, 1));
}

#[test]
fn after_a_violation_nothing_is_sent_again_not_even_if_idempotent() {
    let (answer, stats) = call_across::<HoldTwice>(Ends::Violating);
    let error = answer.unwrap_err();
    assert!(matches!(error, CallError::ProtocolViolation(_)), "{error}");
    assert_eq!(stats.accepted, 0);
}

#[test]
fn without_a_successor_the_first_error_is_returned() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::<HoldTwice>::with_config(&dir.run_dir, client_config());
    let session = client.connect().unwrap();
    assert!(session.is_open());
    server.kill();
    let error = client.call(&1).unwrap_err();
    assert!(matches!(error, CallError::PeerGone { executed: Executed::No }), "{error}");
    let error = client.call(&1).unwrap_err();
    assert!(matches!(error, CallError::Absent { .. }), "{error}");
}

#[test]
fn a_call_after_a_restart_runs_once_on_the_successor() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    server.kill();
    let successor = provide::<Echo>(&dir.run_dir, echo);
    // The client has not polled since: it sends to the dead provider, and then to its successor.
    assert_eq!(client.call(&vec![2]).unwrap(), [2]);
    drop(client);
    let stats = successor.stop();
    assert_eq!((stats.accepted, stats.answered), (1, 1));
}
