//! Another thread of the own process cancels: a cancel word is waited for together with the tail.

use bellwire_core::call::CallMachine;
use bellwire_loom_tests::{Session, check_both};
use loom::thread;

/// Unbounded; 2 threads: cancel against park.
#[test]
fn a_cancel_ends_a_wait() {
    check_both(None, |sleep| {
        let (_server, mut client) = Session::ends(128, sleep);
        let session = client.session();
        let thread = thread::spawn(move || session.cancel(1));
        while !client.sleep_or_cancel(false, true) {}
        thread.join().unwrap();
    });
}

/// Preemption bound 4; 3 threads: a cancel against an answer that arrives. Whichever came first, the answer
/// is read exactly once, before or after.
#[test]
fn a_cancel_loses_no_answer() {
    check_both(Some(4), |sleep| {
        let (mut server, mut client) = Session::ends(128, sleep);
        let session = client.session();
        let canceller = thread::spawn(move || session.cancel(1));
        let sender = thread::spawn(move || server.send(1, 16));
        let mut answer = client.take();
        let mut cancelled = false;
        while answer.is_none() && !cancelled {
            cancelled = client.sleep_or_cancel(false, true);
            answer = client.take();
        }
        canceller.join().unwrap();
        sender.join().unwrap();
        let late = client.take();
        assert_eq!(answer.or(late).expect("sent by now").id, 1);
        assert!(answer.is_none() || late.is_none());
    });
}

/// Preemption bound 3; 3 threads: a cancel of a call, then another call on the same session.
#[test]
fn a_session_goes_on_after_a_cancel() {
    check_both(Some(3), |sleep| {
        let (mut client, mut server) = Session::ends(128, sleep);
        let session = client.session();
        let mut calls = CallMachine::new();
        let mut buffer = Vec::new();
        client.submit(&mut calls, &[]).unwrap();
        let canceller = thread::spawn(move || session.cancel(0));
        let sender = thread::spawn(move || {
            let mut machine = bellwire_core::serve::ServeMachine::new(1);
            let mut buffer = Vec::new();
            server.incoming(&mut machine, &mut buffer).expect("published before");
            server.respond(&mut machine, 1, &[7; 16]);
        });
        while !client.sleep_or_cancel(false, true) {}
        let reply = client.wait_for_reply(&mut calls, &mut buffer);
        assert_eq!((reply.len, &buffer[..]), (16, &[7; 16][..]));
        canceller.join().unwrap();
        sender.join().unwrap();
    });
}
