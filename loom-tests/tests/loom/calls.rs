//! Both directions at once.

use bellwire_loom_tests::{Session, Sleep, check, check_both};
use loom::thread;

/// So many rounds of `in_flight` calls at once; both ends park.
fn calls_return(preemptions: Option<usize>, rounds: u64, in_flight: u64, len: usize) {
    check_both(preemptions, move |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        let thread = thread::spawn(move || server.serve(rounds * in_flight, len));
        for answered in (0..rounds).map(|round| round * in_flight) {
            for _ in 0..in_flight {
                client.send(0);
            }
            client.waits(answered + 1..=answered + in_flight, len);
        }
        thread.join().unwrap();
    });
}

/// Unbounded; 1 call.
#[test]
fn a_call_returns() {
    calls_return(None, 1, 1, 16);
}

/// Preemption bound 3; 2 calls, one after the other.
#[test]
fn two_successive_calls_return() {
    calls_return(Some(3), 2, 1, 0);
}

/// Preemption bound 3; 2 calls in flight at once.
#[test]
fn two_calls_in_flight_return() {
    calls_return(Some(3), 1, 2, 16);
}

/// Preemption bound 2; 4 calls in flight whose answers fill the server's lane of 128 bytes (3 of 32): the
/// server parks for space and for data at once.
#[test]
fn answers_that_met_a_full_lane_arrive() {
    check_both(Some(2), |sleep| {
        let (mut client, mut server) = Session::open(128, sleep);
        client.publish(4, 0);
        let thread = thread::spawn(move || server.serve(4, 16));
        client.waits(1..=4, 16);
        thread.join().unwrap();
    });
}

/// Unbounded; 3 answers of 32 fill the server's lane of 128 bytes, a fourth is pending. The client takes the three by either
/// path and never parks: it checks for a server that waits when a quarter is due.
#[test]
fn a_client_that_never_parks_wakes_a_server_that_waits_for_room() {
    for is_fast in [false, true] {
        check_both(None, move |sleep| {
            let (mut client, mut server) = Session::open(128, sleep);
            client.publish(4, 0);
            server.takes(1..=4);
            (1..=4).for_each(|id| server.respond(id, 16));
            server.commit();
            let thread = thread::spawn(move || server.serve(4, 16));
            for id in 1..=3 {
                let answer = if is_fast { client.wait().ok() } else { client.poll() };
                assert_eq!(answer, Some((id, 16)));
            }
            thread.join().unwrap();
            assert_eq!(client.poll(), Some((4, 16)));
        });
    }
}

/// Unbounded; a large answer and eight empty ones fill the server's lane of 256 bytes, four more are pending and
/// are written, as soon as there is room, over the large one, which the client copies meanwhile. (It is
/// larger than the reserve, which would hide that its room came back too early.)
#[test]
fn an_answer_is_copied_before_its_room_is_given_back() {
    check(None, || {
        let (mut client, mut server) = Session::open(256, Sleep::Futex);
        client.publish(13, 0);
        server.takes(1..=13);
        server.respond(1, 80);
        (2..=13).for_each(|id| server.respond(id, 0));
        assert!(!server.flush());
        let thread = thread::spawn(move || {
            server.flush();
            server
        });
        client.waits(1..=1, 80);
        let mut server = thread.join().unwrap();
        assert!(server.flush());
        client.waits(2..=13, 0);
    });
}

/// Unbounded; the same for requests.
#[test]
fn a_request_is_copied_before_its_room_is_given_back() {
    check(None, || {
        let (mut client, mut server) = Session::open(256, Sleep::Futex);
        client.publish(1, 80);
        client.publish(8, 0);
        let thread = thread::spawn(move || client.fill(0));
        assert_eq!(server.take(), Some((1, 80)));
        let sent = thread.join().unwrap();
        server.takes(2..=sent);
        assert_eq!(server.take(), None);
    });
}
