//! A client that shares its page and its lane and writes arbitrary values there. Each test is one protocol violation.

use bellwire::{Client, IncidentCause, PeerFault, ServerStats};
use bellwire_core::Word;
use bellwire_core::wire::{Header, Kind, Status};

use crate::support::guard::until;
use crate::support::rogue::{Rogue, RogueSession};
use crate::support::services::Echo;
use crate::support::test_server::TestServer;

fn request(id: u64, len: u32) -> Header {
    Header::new(Kind::Request, Status::Ok, id, len)
}

/// A violation that was detected.
#[derive(Debug)]
pub(crate) struct Caught {
    /// The fault that the server reports.
    pub(crate) fault: PeerFault,
    /// Its final counters.
    pub(crate) stats: ServerStats,
}

impl Caught {
    /// The fault names itself so in its message.
    #[track_caller]
    pub(crate) fn is(&self, part: &str) {
        let text = self.fault.to_string();
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

/// Commits the violation on a session that was correct before. The server closes it, counts it as poisoned once,
/// reports why, and continues with its other sessions.
#[track_caller]
pub(crate) fn poisons(violation: impl FnOnce(&mut RogueSession)) -> Caught {
    poisons_in(TestServer::open(), violation)
}

#[track_caller]
pub(crate) fn poisons_in(fixture: TestServer, violation: impl FnOnce(&mut RogueSession)) -> Caught {
    let mut good: Client<Echo> = fixture.client();
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    rogue.put(request(1, 5), b"hello");
    rogue.sees(Word::Tail, 32);
    violation(&mut rogue);
    rogue.is_poisoned();
    assert_eq!(good.call(&vec![2]).unwrap(), [2]);
    let mut late: Client<Echo> = fixture.client();
    assert_eq!(late.call(&vec![3]).unwrap(), [3]);
    drop((good, late));
    let recorded_incidents = fixture.recorded_incidents();
    let [IncidentCause::ProtocolViolation(fault)] = recorded_incidents[..] else {
        panic!("{recorded_incidents:?}")
    };
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.poisoned, stats.handshakes_failed), (3, 1, 0), "{stats:?}");
    Caught { fault, stats }
}

#[test]
fn a_request_that_reuses_an_id_is_not_run() {
    let Caught { stats, .. } = poisons(|rogue| rogue.put(request(1, 16), &[0; 16]));
    // Three of good clients, and "hello".
    assert_eq!(stats.accepted, 4);
}

#[test]
fn requests_after_a_violation_are_not_run() {
    let Caught { stats, .. } = poisons(|rogue| {
        rogue.write(request(2, 0), &[]);
        rogue.write(Header { kind: 200, ..request(3, 0) }, &[]);
        rogue.write(request(4, 0), &[]);
        rogue.publish();
    });
    // Three of good clients, "hello", and the one before the violation.
    assert_eq!(stats.accepted, 5);
}

#[test]
fn invalid_advisory_words_poison_no_session() {
    // They decide how often this client is rung, and that is its own affair.
    let fixture = TestServer::open();
    let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
    for (word, value) in [
        (Word::WantData, 1),
        (Word::WantSpace, u64::MAX - 1),
        (Word::Doorbell, 77),
        (Word::Doorbell, u64::MAX),
        (Word::RungAt, u64::MAX),
        (Word::State, u64::MAX),
        (Word::Rings, u64::MAX),
    ] {
        rogue.set(word, value);
    }
    rogue.put(request(1, 5), b"hello");
    rogue.sees(Word::Tail, 32);
    drop(rogue);
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.answered), (0, 1));
}

#[test]
fn many_violations_at_once_disturb_no_honest_client() {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let rogues: Vec<_> =
        (0..32).map(|_| Rogue::connect(fixture.run_dir(), "echo").open()).collect();
    for (at, rogue) in rogues.iter().enumerate() {
        rogue.set(Word::Tail, 1 << (at + 20));
        assert_eq!(good.call(&vec![at as u8]).unwrap(), [at as u8]);
    }
    for mut rogue in rogues {
        rogue.is_poisoned();
    }
    drop(good);
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.answered), (32, 32));
}

/// A client that closes its socket without a Close record is gone, though its process lives: the socket stays
/// readable for ever, and the reactor polled it for ever.
#[test]
fn the_session_of_a_client_that_hangs_up_without_a_close_is_released() {
    let fixture = TestServer::open();
    let rogues: Vec<_> = (0..3).map(|_| Rogue::connect(fixture.run_dir(), "echo").open()).collect();
    until("all are connected", || fixture.stats().sessions == 3);
    drop(rogues);
    until("all sessions are freed", || fixture.stats().sessions == 0);
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.poisoned), (3, 0));
}
