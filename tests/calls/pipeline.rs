//! Many requests in flight.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwire::{CallError, Client, Doorbell, ServerConfig, Session, Ticket};
use bellwire_core::Geometry;

use crate::support::child::Process;
use crate::support::guard::PATIENCE;
use crate::support::roles::parse_stats;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer, patient, reconcile, reconcile_session};

/// Set it to run the random test again as it ran before.
const SEED: &str = "BELLWIRE_TEST_SEED";

struct Random(u64);

impl Random {
    fn new() -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
        let seed = seed.unwrap_or(clock.as_nanos() as u64) | 1;
        println!("{SEED}={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Bytes of which many have a size near a boundary, and all end in their own checksum.
    fn payload(&mut self, max: usize) -> Vec<u8> {
        let len = match self.below(8) {
            0 => self.below(40),
            1 => max - self.below(40),
            2 => (16 << self.below(9)) + self.below(3) - 1,
            3..6 => self.below(300),
            _ => self.below(max + 1),
        };
        let mut bytes: Vec<u8> = (0..len).map(|_| self.next() as u8).collect();
        if len >= 4 {
            let sum = checksum(&bytes[..len - 4]);
            bytes[len - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    // FNV-1a
    bytes
        .iter()
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some((payload, sum)) = bytes.split_last_chunk::<4>() else { return true };
    checksum(payload) == u32::from_le_bytes(*sum)
}

/// Takes what answers have come: each was asked for, comes once, whole, and in the order of the requests.
fn take(
    session: &mut Session<Echo>,
    sent: &mut HashMap<Ticket, Vec<u8>>,
    last: &mut Option<Ticket>,
) {
    while let Some((ticket, answer)) = session.try_reply().unwrap() {
        let answer = answer.unwrap();
        let expected = sent.remove(&ticket).expect("it was asked for, and not answered before");
        assert!(is_whole(&answer), "{ticket:?}");
        assert!(answer == expected, "{ticket:?}");
        assert!(last.is_none_or(|last| last < ticket), "{ticket:?} after {last:?}");
        *last = Some(ticket);
    }
}

#[test]
fn an_answer_to_any_request_is_waited_for_and_no_longer_than_asked() {
    for doorbell in [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket] {
        let fixture = TestServer::with(ServerConfig::default().workers(1));
        let mut client = fixture.client_with::<Hold>(patient().doorbell(doorbell));
        let session = client.session().unwrap();
        let sent = [1, 2].map(|number| session.submit(&number).unwrap());
        let early = session.wait_reply(Duration::from_millis(5));
        assert!(matches!(early, Err(CallError::Deadline { .. })), "{doorbell:?}: {early:?}");
        assert_eq!(session.stats().in_flight, 2, "{doorbell:?}: nobody gave up");
        fixture.release();
        for (number, expected) in [1, 2].into_iter().zip(sent) {
            let (ticket, answer) = session.wait_reply(PATIENCE).unwrap();
            assert_eq!((ticket, answer.unwrap()), (expected, number), "{doorbell:?}");
        }
        reconcile_session(session);
        fixture.close();
        let gone = client.session().unwrap().wait_reply(PATIENCE);
        assert!(matches!(gone, Err(CallError::PeerGone { .. })), "{doorbell:?}: {gone:?}");
    }
}

#[test]
fn a_batch_that_did_not_come_in_time_is_still_on_its_way() {
    let fixture = TestServer::with(ServerConfig::default().workers(1));
    let mut client = fixture.client_with::<Hold>(patient());
    let session = client.session().unwrap();
    let sent = session.submit_batch(&[1, 2]).unwrap();
    let early = session.wait_batch(Duration::from_millis(5)).map(drop);
    assert!(matches!(early, Err(CallError::Deadline { .. })), "{early:?}");
    assert_eq!(session.stats().in_flight, 1, "nobody gave up");
    fixture.release();
    let (ticket, replies) = session.wait_batch(PATIENCE).unwrap();
    let answers: Result<Vec<_>, _> = replies.unwrap().collect();
    assert_eq!((ticket, answers.unwrap()), (sent, vec![1, 2]));
    reconcile_session(session);
}

#[test]
fn random_sizes_and_depths_lose_duplicate_and_reorder_nothing() {
    const ROUNDS: usize = 400;
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, patient());
    let session = client.connect().unwrap();
    // The lanes need not grow for any; `resize` has the larger ones.
    let max = Geometry::DEFAULT.max_payload();
    let mut random = Random::new();
    let mut sent = HashMap::new();
    let mut last = None;
    let mut made = 0;
    for _ in 0..ROUNDS {
        // A depth is how many may be in flight while this round is sent.
        let depth = 1 + random.below(64);
        for _ in 0..random.below(2 * depth) {
            let request = random.payload(max);
            loop {
                match session.submit(&request) {
                    Ok(ticket) => break assert!(sent.insert(ticket, request).is_none()),
                    Err(CallError::WouldBlock) => take(session, &mut sent, &mut last),
                    Err(error) => panic!("{error}"),
                }
            }
            made += 1;
            while sent.len() >= depth {
                take(session, &mut sent, &mut last);
                thread::yield_now();
            }
        }
        if random.below(4) == 0 {
            // Waits, parked or not, past all that is in flight.
            let request = random.payload(max);
            assert!(session.call(&request).unwrap() == request);
            made += 1;
        }
    }
    while !sent.is_empty() {
        take(session, &mut sent, &mut last);
        thread::yield_now();
    }
    assert!(session.try_reply().unwrap().is_none());
    reconcile_session(session);
    let stats = session.stats();
    assert_eq!((stats.made, stats.answered, stats.in_flight), (made, made, 0));
    let stats = parse_stats(&server.ask("stop"));
    reconcile(&stats);
    assert_eq!((stats.accepted, stats.answered), (made, made));
}
