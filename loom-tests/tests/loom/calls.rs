//! Both directions at once, through the call and serve machines.

use bellwire_core::call::{CallMachine, SubmitError};
use bellwire_core::lane::PushError;
use bellwire_core::serve::{Incoming, ServeMachine};
use bellwire_core::wire::Status;
use bellwire_loom_tests::{End, Session, Sleep, check, check_both};
use loom::thread;

/// Serves until `requests` are answered, parking when there is nothing to do.
fn serve(mut end: End, requests: u64, answer: usize) {
    let mut machine = ServeMachine::new(8);
    let mut buffer = Vec::new();
    loop {
        while let Some(incoming) = end.incoming(&mut machine, &mut buffer) {
            let Incoming::Request { id, len, .. } = incoming else {
                panic!("nothing is cancelled")
            };
            assert!(buffer[..len].iter().all(|byte| *byte == id.to_le_bytes()[0]));
            end.respond(&mut machine, id, &vec![id.to_le_bytes()[0]; answer]);
        }
        let blocked = !end.flush(&mut machine);
        if machine.counts().answered == requests && !blocked {
            return;
        }
        end.sleep(blocked);
    }
}

/// Waits for one answer, and checks that it is the one to `id`.
fn answer(end: &mut End, calls: &mut CallMachine, id: u64, len: usize) {
    let mut buffer = Vec::new();
    let reply = end.wait_for_reply(calls, &mut buffer);
    assert_eq!((reply.ticket.id(), reply.status, reply.len), (id, Status::Ok, len));
    assert!(buffer[..len].iter().all(|byte| *byte == id.to_le_bytes()[0]));
}

/// So many calls, of which `in_flight` at once; both ends park.
fn calls_come_back(preemptions: Option<usize>, calls: u64, in_flight: usize, len: usize) {
    check_both(preemptions, move |sleep| {
        let (mut client, server) = Session::ends(128, sleep);
        let thread = thread::spawn(move || serve(server, calls, len));
        let mut machine = CallMachine::new();
        let ids: Vec<u64> = (1..=calls).collect();
        for ids in ids.chunks(in_flight) {
            for id in ids {
                assert_eq!(client.submit(&mut machine, &[]).unwrap().id(), *id);
            }
            ids.iter().for_each(|id| answer(&mut client, &mut machine, *id, len));
        }
        thread.join().unwrap();
    });
}

/// Unbounded; 1 call.
#[test]
fn a_call_comes_back() {
    calls_come_back(None, 1, 1, 16);
}

/// Preemption bound 3; 2 calls, one after the other.
#[test]
fn two_calls_come_back_one_after_the_other() {
    calls_come_back(Some(3), 2, 1, 0);
}

/// Preemption bound 3; 2 calls in flight at once.
#[test]
fn two_calls_in_flight_come_back() {
    calls_come_back(Some(3), 2, 2, 16);
}

/// Preemption bound 2; 4 calls in flight whose answers fill the server's lane of 128 bytes (3 of 32): the
/// server parks for space and for data at once.
#[test]
fn answers_that_met_a_full_lane_come_back() {
    check_both(Some(2), |sleep| {
        let (mut client, server) = Session::ends(128, sleep);
        let mut calls = CallMachine::new();
        for _ in 1..=4 {
            client.submit(&mut calls, &[]).unwrap();
        }
        let thread = thread::spawn(move || serve(server, 4, 16));
        for id in 1..=4 {
            answer(&mut client, &mut calls, id, 16);
        }
        // Room freed since the last check is checked for when an end arms; here no end does.
        client.commit();
        thread.join().unwrap();
    });
}

/// Unbounded; a large answer and eight empty ones fill the server's lane of 256 bytes, four more are owed and
/// are written, as soon as there is room, over the large one, which the client copies meanwhile. (It is
/// larger than the reserve, which would hide that its room came back too early.)
#[test]
fn an_answer_is_copied_before_its_room_is_given_back() {
    check(None, || {
        let (mut client, mut server) = Session::ends(256, Sleep::Futex);
        let mut calls = CallMachine::new();
        let mut machine = ServeMachine::new(16);
        for _ in 1..=13 {
            client.submit(&mut calls, &[]).unwrap();
            server.incoming(&mut machine, &mut Vec::new()).expect("just sent");
        }
        server.respond(&mut machine, 1, &[1; 80]);
        for id in 2..=13 {
            server.respond(&mut machine, id, &[]);
        }
        assert!(machine.is_blocked());
        let thread = thread::spawn(move || {
            server.flush(&mut machine);
            (server, machine)
        });
        answer(&mut client, &mut calls, 1, 80);
        let (mut server, mut machine) = thread.join().unwrap();
        assert!(server.flush(&mut machine));
        for id in 2..=13 {
            answer(&mut client, &mut calls, id, 0);
        }
    });
}

/// Unbounded; the same for requests.
#[test]
fn a_request_is_copied_before_its_room_is_given_back() {
    check(None, || {
        let (mut client, mut server) = Session::ends(256, Sleep::Futex);
        let mut calls = CallMachine::new();
        let mut machine = ServeMachine::new(16);
        client.submit(&mut calls, &[1; 80]).unwrap();
        for _ in 2..=9 {
            client.submit(&mut calls, &[]).unwrap();
        }
        let thread = thread::spawn(move || {
            let mut sent = 9;
            for _ in 10..=13 {
                match client.submit(&mut calls, &[]) {
                    Ok(ticket) => sent = ticket.id(),
                    Err(error) => {
                        assert!(
                            matches!(error, SubmitError::Push(PushError::Full { .. })),
                            "{error}"
                        );
                    }
                }
            }
            sent
        });
        let mut buffer = Vec::new();
        let first = server.incoming(&mut machine, &mut buffer);
        assert_eq!(first, Some(Incoming::Request { id: 1, len: 80, batch: false }));
        assert_eq!(buffer, [1; 80]);
        let sent = thread.join().unwrap();
        for id in 2..=sent {
            let incoming = server.incoming(&mut machine, &mut buffer);
            assert_eq!(incoming, Some(Incoming::Request { id, len: 0, batch: false }));
        }
        assert_eq!(server.incoming(&mut machine, &mut buffer), None);
    });
}
