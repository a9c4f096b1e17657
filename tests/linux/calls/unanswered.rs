use std::thread;
use std::time::Duration;

use bellwire::{CallError, Client, CloseReason, ErrorKind, Executed, Fault};
use bellwire_core::call::MAX_WINDOW;
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::wire::Status;
use bellwire_core::{Bell, Port};

use crate::support::rogue::RogueListener;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

#[test]
fn a_request_that_is_never_answered_ends_no_deadline_of_later_calls() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let run_dir = dir.run_dir.clone();
    let caller = thread::spawn(move || {
        let mut client = Client::<Echo>::with_config(&run_dir, client_config());
        let session = client.connect().unwrap();
        let never = session.submit(&vec![]).unwrap();
        // The window counts from the oldest request that waits for its answer.
        for _ in 1..MAX_WINDOW {
            session.call(&vec![]).unwrap();
        }
        assert!(matches!(session.submit(&vec![]), Err(CallError::WouldBlock)));
        let error = session.call_within(&vec![], Duration::from_millis(20)).unwrap_err();
        session.abandon(never);
        error
    });
    // Answers all but the first.
    let session = listener.open(1);
    let (own, peer) = (session.link.own(), session.link.peer());
    let (mut lanes, mut machine) = (session.lanes(), ServeMachine::new(u64::MAX));
    loop {
        match machine.next(&mut lanes, own, peer, &mut Vec::new()).unwrap() {
            Some(Incoming::Request { id, .. }) if id > 1 => {
                machine.respond(&mut lanes, own, peer, id, Status::Ok, &[]).unwrap();
            }
            Some(Incoming::Closed(_)) => break,
            Some(_) => {}
            None => thread::yield_now(),
        }
        let wake = lanes.commit(own, peer);
        if wake.data {
            session.link.ring(Bell::Data);
        }
        if caller.is_finished() {
            break;
        }
    }
    let error = caller.join().unwrap();
    assert!(
        matches!(error, CallError::Deadline { executed: Executed::No } | CallError::WouldBlock),
        "{error}"
    );
}

#[test]
fn a_client_that_is_closed_for_a_violation_is_at_fault_and_does_not_try_again() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let run_dir = dir.run_dir.clone();
    let caller = thread::spawn(move || {
        Client::<Echo>::with_config(&run_dir, client_config()).call(&vec![1]).unwrap_err()
    });
    let session = listener.open(1);
    let (own, peer) = (session.link.own(), session.link.peer());
    let _ = session.lanes().close(own, peer, CloseReason::Poisoned);
    session.link.ring(Bell::Data);
    let error = caller.join().unwrap();
    assert!(matches!(error, CallError::Closed { reason: CloseReason::Poisoned, .. }), "{error}");
    assert_eq!((error.kind(), error.fault()), (ErrorKind::ProtocolViolation, Fault::Caller));
}
