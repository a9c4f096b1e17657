//! Lanes that grow and shrink during their session.

mod fullness;
mod outstanding;
mod shrink;

use std::time::Duration;

use bellwire_core::call::{Reply, SubmitError};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::{Epoch, PushError};
use bellwire_core::wire::Status;
use bellwire_core::{Deadline, SpinPolicy};
use bellwire_sim::{Act, Peer, Serving, Sim, SimEnd, SimPort, SimServer, Step, Taken};

use crate::pair::{Pair, growing, payload, size};

/// Bad luck.
const NEVER: usize = usize::MAX;
const MILLI: Duration = Duration::from_millis(1);

pub(crate) fn echo() -> SimServer<impl FnMut(&[u8]) -> (Status, Vec<u8>)> {
    SimServer::new(|request: &[u8]| (Status::Ok, request.to_vec()))
}

pub(crate) fn driver_in(sim: Sim, peer: impl Peer + Send + 'static) -> CallDriver<SimPort> {
    let (port, lanes) = sim.start(peer);
    CallDriver::new(port, lanes, SpinPolicy::NEVER)
}

/// The next answer, once it is there, and its bytes, from wherever they are.
pub(crate) fn reply_of(driver: &mut CallDriver<SimPort>) -> (Reply, Vec<u8>) {
    let mut bytes = Vec::new();
    let reply = driver.wait_for_reply(&mut { Deadline::NEVER }, &mut bytes).unwrap();
    bytes.truncate(reply.len);
    let attached = reply.attached.then(|| driver.port().end().take(reply.ticket.id()).unwrap());
    (reply, attached.unwrap_or(bytes))
}

/// Calls an echo, and checks what comes back.
pub(crate) fn call(driver: &mut CallDriver<SimPort>, id: u64, len: usize) {
    let ticket = driver.submit(&payload(id, len)).unwrap();
    let (reply, bytes) = reply_of(driver);
    assert_eq!((reply.ticket, reply.status), (ticket, Status::Ok));
    assert_eq!(bytes, payload(id, len));
}

fn is_full(error: &CallFailed) -> bool {
    matches!(error, CallFailed::Submit(SubmitError::Push(PushError::Full { .. })))
}

#[test]
fn both_lanes_grow_for_a_message_and_keep_their_size() {
    let mut driver = driver_in(growing(), echo());
    let mut epoch = 1;
    for (len, lane) in [
        (10, 4096),
        (2000, 4096),
        (2001, 8192),
        (4048, 8192),
        (4049, 16_384),
        (100_000, 262_144),
        (7, 262_144),
        (3_000_000, 8 << 20),
    ] {
        let before = driver.lane_stats()[0].size;
        call(&mut driver, len as u64, len);
        epoch += u32::from(lane > before);
        for (which, lane_now) in driver.lane_stats().into_iter().enumerate() {
            assert_eq!((lane_now.size, lane_now.epoch), (lane, epoch), "lane {which}, {len} bytes");
        }
    }
    // Nothing was foreseen: each message was alone in its lane.
    assert_eq!(driver.port().end().acts(Act::Offer), 4);
    assert_eq!(driver.port().at_peer(|end| end.acts(Act::Offer)), 4);
}

/// The switch and all that follows it become visible by one move of the tail.
#[test]
fn the_sender_switches_without_waiting_and_its_records_arrive_in_order() {
    let mut pair = Pair::new(growing());
    let lens = [100, 1900, 3000, 5, 9000, 20_000, 3];
    for (id, len) in (1..).zip(lens) {
        pair.send(0, id, len).unwrap();
    }
    assert_eq!(pair.epoch(0), Epoch { number: 4, size: size(65_536) });
    assert_eq!(pair.take(1), None, "nothing was published yet");
    let _ = pair.commit(0);
    let taken: Vec<_> = std::iter::from_fn(|| pair.take(1)).collect();
    assert_eq!(taken, (1..).zip(lens).collect::<Vec<_>>());
    assert_eq!(pair.ends[1].acts(Act::Follow), 3);
}

/// A small generator: the test is the same every time.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    /// Mostly small, seldom near `most`.
    pub(crate) fn len(&mut self, most: usize) -> usize {
        let most = most >> (2 * self.below(7));
        self.below(most + 1)
    }
}

/// Holds up to `hold` requests back and answers them in any order by payloads of any length: the request's number,
/// and as many bytes as it asks for.
pub(crate) fn shuffling(mut rng: Rng, hold: usize) -> impl FnMut(&SimEnd) -> Step + Send {
    let mut serving = None;
    let mut held: Vec<(u64, Vec<u8>)> = Vec::new();
    move |end: &SimEnd| {
        let serving = serving.get_or_insert_with(|| Serving::new(end, hold as u64 + 1));
        serving.wake_up();
        serving.flush();
        match serving.take() {
            Ok(Some(Taken::Request { id, payload, .. })) => {
                held.push((id, payload));
                if held.len() < hold && rng.below(8) > 0 {
                    serving.commit();
                    return Step::Again;
                }
            }
            Ok(Some(Taken::Cancel { .. }) | None) => {}
            Err(step) => return step,
        }
        if !held.is_empty() {
            let (id, asked) = held.swap_remove(rng.below(held.len()));
            serving.respond(id, Status::Ok, &answer(&asked));
            serving.commit();
            return Step::Again;
        }
        serving.commit();
        if serving.closed().is_some() { Step::Parked(None) } else { serving.park() }
    }
}

/// A request for `answer` bytes, of `len` bytes itself, at least 16.
pub(crate) fn request(id: u64, answer: usize, len: usize) -> Vec<u8> {
    let mut request = payload(id, len.max(16));
    request[..8].copy_from_slice(&id.to_le_bytes());
    request[8..16].copy_from_slice(&(answer as u64).to_le_bytes());
    request
}

fn answer(request: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
    let (id, len) = (word(0), word(8) as usize);
    assert_eq!(request, self::request(id, len, request.len()), "request {id}");
    payload(!id, len)
}

/// Keeps up to `window` requests in flight until `requests` were sent, and checks each answer. With probability 1 /
/// `pause` it waits for an answer before that; with 1 / `trim` it trims first. Returns how often either end had a
/// shortage.
pub(crate) fn pipeline(
    driver: &mut CallDriver<SimPort>,
    rng: &mut Rng,
    (requests, window, most): (u64, usize, usize),
    (pause, trim): (usize, usize),
) -> u64 {
    let mut waiting = std::collections::BTreeMap::new();
    let (mut sent, mut lacked) = (0, 0);
    let mut buffer = Vec::new();
    while sent < requests || !waiting.is_empty() {
        if rng.below(trim) == 0 {
            match driver.trim() {
                Ok(()) => {}
                Err(CallFailed::Submit(SubmitError::Short(_))) => lacked += 1,
                Err(error) => assert!(is_full(&error), "{error}"),
            }
        }
        if sent < requests && waiting.len() < window && rng.below(pause) > 0 {
            let (len, asked) = (rng.len(most), rng.len(most));
            match driver.push(&request(sent, asked, len)) {
                Ok(ticket) => {
                    waiting.insert(ticket.id(), (sent, asked));
                    sent += 1;
                }
                Err(CallFailed::Submit(SubmitError::Short(_))) => {
                    (sent, lacked) = (sent + 1, lacked + 1);
                }
                Err(error) => {
                    assert!(is_full(&error), "{error}");
                    driver.wait_for_room(&mut { Deadline::NEVER }).unwrap();
                }
            }
            if rng.below(3) > 0 {
                driver.commit();
            }
        } else if !waiting.is_empty() {
            driver.commit();
            driver.wait_for_data(&mut { Deadline::NEVER }).unwrap();
        }
        loop {
            let reply = match driver.try_reply(&mut buffer) {
                Ok(Some(reply)) => reply,
                Ok(None) => break,
                Err(CallFailed::Short(_)) => {
                    lacked += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let (id, asked) = waiting.remove(&reply.ticket.id()).expect("answered once");
            match reply.status {
                Status::Ok => assert_eq!(&buffer[..reply.len], &payload(!id, asked)),
                status => {
                    assert_eq!((status, reply.len), (Status::Short, 0));
                    lacked += 1;
                }
            }
        }
    }
    lacked
}

#[test]
fn lanes_grow_with_many_requests_in_flight_and_answers_in_any_order() {
    for seed in 1..=8 {
        let mut driver = driver_in(growing(), shuffling(Rng(seed * 77), 20));
        let lacked = pipeline(&mut driver, &mut Rng(seed), (400, 50, 100_000), (4, NEVER));
        assert_eq!((lacked, driver.in_flight()), (0, 0));
        for lane in driver.lane_stats() {
            assert!(lane.grows >= 1 && lane.size >= 65_536, "{lane:?}");
        }
    }
}

/// Neither end has read anything and neither lane has room; each needs a larger one, and gets it.
#[test]
fn two_full_lanes_grow_at_once_without_waiting() {
    let mut pair = Pair::new(growing());
    for from in [0, 1] {
        let mut id = 0;
        while pair.push(from, id, 100).is_ok() {
            id += 1;
        }
        let _ = pair.commit(from);
    }
    for from in [0, 1] {
        pair.publish(from, 100, 10_000);
    }
    for at in [0, 1] {
        let mut taken = pair.take_all(at);
        assert_eq!(taken.pop(), Some(100));
        assert_eq!(taken, (0..taken.len() as u64).collect::<Vec<_>>());
    }
}

/// The same through the loops that block: a lost wake is a deadlock, which the simulator finds.
#[test]
fn two_full_lanes_grow_against_each_other_without_a_deadlock() {
    for (own, theirs) in [(100, 3000), (3000, 100), (3000, 3000), (9000, 50_000)] {
        let mut driver = driver_in(growing(), shuffling(Rng(5), 1));
        let (mut sent, mut answered) = (0, 0);
        let mut buffer = Vec::new();
        // Nothing is read before the own lane is full.
        while answered < 300 {
            if sent < 300 {
                match driver.push(&request(sent, theirs, own)) {
                    Ok(_) => {
                        sent += 1;
                        continue;
                    }
                    Err(error) => assert!(is_full(&error), "{error}"),
                }
            }
            driver.commit();
            if sent < 300 {
                driver.wait_for_room(&mut { Deadline::NEVER }).unwrap();
            } else {
                driver.wait_for_data(&mut { Deadline::NEVER }).unwrap();
            }
            while let Some(reply) = driver.try_reply(&mut buffer).unwrap() {
                assert_eq!(reply.len, theirs);
                answered += 1;
            }
        }
    }
}
