//! Another thread of the own process cancels: a cancel word is waited for together with the tail.

use bellwire_core::Executed;
use bellwire_core::drive::CallFailed;
use bellwire_loom_tests::{Session, check_both};
use loom::thread;

const CANCELLED: CallFailed = CallFailed::Cancelled(Executed::Maybe);

/// Unbounded; 2 threads: cancel against park.
#[test]
fn a_cancel_ends_a_wait() {
    check_both(None, |sleep| {
        let (mut client, _server) = Session::open(128, sleep);
        let thread = thread::spawn(client.driver().port_mut().canceller());
        assert_eq!(client.wait(), Err(CANCELLED));
        thread.join().unwrap();
    });
}

/// Preemption bound 4; 3 threads: a cancel against an answer that arrives. Whichever came first, the answer is read
/// exactly once, and the session goes on.
#[test]
fn a_cancel_loses_no_answer() {
    check_both(Some(4), |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        client.send(0);
        let canceller = thread::spawn(client.driver().port_mut().canceller());
        let serving = thread::spawn(move || server.serve(1, 16));
        let answer = client.wait().or_else(|error| {
            assert_eq!(error, CANCELLED);
            client.wait()
        });
        assert_eq!(answer, Ok((1, 16)));
        canceller.join().unwrap();
        serving.join().unwrap();
        assert_eq!(client.poll(), None);
    });
}
