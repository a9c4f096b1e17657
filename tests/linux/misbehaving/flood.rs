//! Actions that are no violation if done once: done endlessly, or at the wrong moment, they do not disturb other
//! clients.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bellwire::{CallError, Client, ServerConfig};
use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::{Header, Kind, Message, Status};
use bellwire_core::{Bell, Geometry, OwnMemory, PeerMemory, Port, Word};

use crate::support::guard::{scaled, until};
use crate::support::rogue::{EndlessClient, Rogue, RogueListener, RogueSession, encode};
use crate::support::services::Echo;
use crate::support::test_server::{Dir, TestServer, client_config};

/// How often a good client calls while the rogue continues.
const CALLS: u64 = 200;

/// The rogue does this over and over again, and the server's good client is served; in the end the rogue's session is
/// as good as before.
#[track_caller]
fn disturbs_no_other_client(act: impl FnMut(&mut RogueSession, u64) + Send + 'static) {
    let mut act = act;
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    let over = Arc::new(AtomicBool::new(false));
    let (begin, begun) = channel();
    let flood = {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let mut times = 0;
            while !over.load(Ordering::Relaxed) {
                act(&mut rogue, times);
                times += 1;
                if times == 1 {
                    begin.send(()).unwrap();
                }
            }
            rogue
        })
    };
    begun.recv().unwrap();
    for call in 0..CALLS {
        let request = call.to_le_bytes().to_vec();
        assert_eq!(good.call(&request).unwrap(), request);
    }
    over.store(true, Ordering::Relaxed);
    let mut rogue = flood.join().unwrap();
    let answered = rogue.link.peer().load(Word::Tail, Ordering::Acquire);
    rogue.put(Header::new(Kind::Request, Status::Ok, 1 << 40, 0), &[]);
    until("it is answered", || rogue.link.peer().load(Word::Tail, Ordering::Acquire) > answered);
    drop((good, rogue));
    assert_eq!(fixture.close().poisoned, 0);
}

#[test]
fn a_doorbell_rung_without_end() {
    disturbs_no_other_client(|rogue, _| rogue.link.ring(Bell::Data));
}

#[test]
fn a_socket_rung_without_end() {
    disturbs_no_other_client(|rogue, _| {
        let _ = bellwire_memfd::pass::send(rogue.link.arrived(), &encode(&Message::Ring, 0), &[]);
    });
}

#[test]
fn event_indexes_that_flicker() {
    disturbs_no_other_client(|rogue, times| {
        for word in [Word::WantData, Word::WantSpace, Word::Doorbell, Word::RungAt, Word::Parks] {
            rogue.set(word, times.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
    });
}

#[test]
fn a_state_that_flickers() {
    disturbs_no_other_client(|rogue, times| rogue.set(Word::State, 1 + times % 3));
}

/// One byte of a payload is another with each look: the answer holds the one or the other.
#[test]
fn a_payload_that_changes_while_it_is_read() {
    const LEN: u32 = 4000;
    let fixture = TestServer::open();
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    for id in 1..=50 {
        let at = (rogue.tail % Geometry::DEFAULT.size()) as usize + 16;
        if at + 2 * LEN as usize > Geometry::DEFAULT.size() as usize {
            // Where a lane ends is no matter here.
            break;
        }
        let before = rogue.link.peer().load(Word::Tail, Ordering::Acquire);
        rogue.put(Header::new(Kind::Request, Status::Ok, id, LEN), &[0; LEN as usize]);
        let mut bytes = [1_u8, 2].into_iter().cycle();
        until("it is answered", || {
            rogue.link.own().write(at, &[bytes.next().unwrap(); LEN as usize]);
            rogue.link.peer().load(Word::Tail, Ordering::Acquire) > before
        });
        let mut answer = vec![0; LEN as usize + 16];
        rogue.link.peer().read((before % Geometry::DEFAULT.size()) as usize, &mut answer);
        assert_eq!(
            answer[..4],
            LEN.to_le_bytes(),
            "the length that was checked is the length that is used"
        );
        assert!(answer[16..].iter().all(|byte| *byte <= 2));
        rogue.set(Word::Head, rogue.link.peer().load(Word::Tail, Ordering::Acquire));
    }
    drop(rogue);
    assert_eq!(fixture.close().poisoned, 0);
}

/// A server wakes its client, changes every word that it may, and answers nothing.
#[test]
fn words_that_flicker_under_a_parked_client_extend_no_deadline() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let rogue = listener.meet(|| client.connect().map(|_| ()).unwrap());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let called = client.call_within(&vec![1], Duration::from_millis(50));
            over.store(true, Ordering::Relaxed);
            called
        });
        let mut times = 0_u64;
        while !over.load(Ordering::Relaxed) {
            times += 1;
            rogue.set(Word::WantData, times);
            rogue.set(Word::WantSpace, times);
            rogue.set(Word::RungAt, times);
            rogue.link.ring(Bell::Space);
        }
        let error = caller.join().unwrap().unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    });
}

#[test]
fn a_handshake_that_is_repeated_a_thousand_times() {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    for times in 0..1000_u64 {
        let rogue = Rogue::connect(fixture.run_dir(), "echo");
        // The rogue stops after nothing, HELLO, half a HELLO, WELCOME.
        match times % 4 {
            0 => {}
            1 => rogue.send(&Message::Hello(rogue.hello), &[]),
            2 => rogue.send_bytes(&encode(&Message::Hello(rogue.hello), 0)[..70], &[]),
            _ => drop(rogue.enter()),
        }
        drop(rogue);
        if times % 50 == 0 {
            assert_eq!(good.call(&times.to_le_bytes().to_vec()).unwrap(), times.to_le_bytes());
        }
    }
    until("the server has seen all of them", || fixture.stats().handshakes_failed == 1000);
    let mut late: Client<Echo> = fixture.client();
    assert_eq!(late.call(&vec![1]).unwrap(), [1]);
    drop((good, late));
    let stats = fixture.close();
    assert_eq!(
        (stats.admitted, stats.handshakes_failed, stats.poisoned),
        (2, 1000, 0),
        "{stats:?}"
    );
}

#[test]
fn a_handshake_that_arrives_byte_by_byte() {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let rogue = Rogue::connect(fixture.run_dir(), "echo");
    for byte in encode(&Message::Hello(rogue.hello), 0) {
        // It is refused with the first.
        if bellwire_memfd::pass::send(std::os::fd::AsFd::as_fd(&rogue.socket), &[byte], &[])
            .is_err()
        {
            break;
        }
        assert_eq!(good.call(&vec![byte]).unwrap(), [byte]);
    }
    rogue.is_refused(bellwire::RefuseCode::Protocol, "1 bytes");
    drop(good);
    assert_eq!(fixture.close().handshakes_failed, 1);
}

#[test]
fn a_handshake_that_stops_halfway_ends_at_its_deadline_and_delays_no_other_client() {
    let handshake_timeout = scaled(Duration::from_millis(50));
    let fixture = TestServer::with(ServerConfig::default().handshake_timeout(handshake_timeout));
    let mut good: Client<Echo> = fixture.client();
    let silent = Rogue::connect(fixture.run_dir(), "echo");
    let halfway = Rogue::connect(fixture.run_dir(), "echo");
    halfway.enter();
    for rogue in [silent, halfway] {
        assert_eq!(good.call(&vec![1]).unwrap(), [1]);
        rogue.is_refused(bellwire::RefuseCode::Protocol, "in time");
    }
    drop(good);
    assert_eq!(fixture.close().handshakes_failed, 2);
}

#[test]
fn a_client_that_sends_without_pause_leaves_the_others_their_turns() {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let endless = EndlessClient::start(fixture.run_dir());
    for call in 0..CALLS {
        let request = call.to_le_bytes().to_vec();
        assert_eq!(good.call(&request).unwrap(), request);
    }
    assert!(!endless.stop(), "all of it was taken before {CALLS} calls were answered");
}

#[test]
fn a_message_without_its_last_part_delays_its_own_session_alone() {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let mut rogues: Vec<_> =
        (0..8).map(|_| Rogue::connect(fixture.run_dir(), "echo").open()).collect();
    for rogue in &mut rogues {
        rogue.put(Header::new(Kind::Request, Status::Ok, 1, 0).part(4000, true), &[7; 4000]);
    }
    for rogue in &rogues {
        rogue.sees(Word::Head, 4016);
        assert_eq!(good.call(&vec![1; 5000]).unwrap(), vec![1; 5000]);
    }
    // Broken off, it is forgotten, and the next one is answered.
    let mut last = rogues.pop().unwrap();
    last.put(Header::new(Kind::Cancel, Status::Ok, 1, 0), &[]);
    last.put(Header::new(Kind::Request, Status::Ok, 2, 0), &[]);
    last.sees(Word::Tail, 16);
    drop((good, rogues, last));
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.accepted), (0, 9), "{stats:?}");
}
