//! Lanes that grow and shrink during their session.

use std::time::Duration;

use bellwire_core::call::SubmitError;
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::{Armed, Epoch, FULL_LIMIT, MOST_ATTACHED, MOST_OUTSTANDING, PushError};
use bellwire_core::resize::ResizeError;
use bellwire_core::sim::{Act, Peer, Serving, Sim, SimEnd, SimPort, SimServer, Step, Taken};
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Deadline, Limits, SpinPolicy};

use crate::pair::{Pair, growing, limited, payload, size};

/// Bad luck.
const NEVER: usize = usize::MAX;
const MILLI: Duration = Duration::from_millis(1);

pub(crate) fn echo() -> SimServer<impl FnMut(&[u8]) -> (Status, Vec<u8>)> {
    SimServer::new(|request: &[u8]| (Status::Ok, request.to_vec()))
}

pub(crate) fn drive_in(sim: Sim, peer: impl Peer + Send + 'static) -> CallDriver<SimPort> {
    let (port, lanes) = sim.start(peer);
    CallDriver::new(port, lanes, SpinPolicy::NEVER)
}

/// Calls an echo, and checks what comes back.
pub(crate) fn call(drive: &mut CallDriver<SimPort>, id: u64, len: usize) {
    let ticket = drive.submit(&payload(id, len)).unwrap();
    let mut buffer = Vec::new();
    let reply = drive.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer).unwrap();
    assert_eq!((reply.ticket, reply.status, reply.len), (ticket, Status::Ok, len));
    assert_eq!(&buffer[..len], &payload(id, len));
}

fn is_full(error: &CallFailed) -> bool {
    matches!(error, CallFailed::Submit(SubmitError::Push(PushError::Full { .. })))
}

#[test]
fn both_lanes_grow_to_what_a_message_needs_and_keep_it() {
    let mut drive = drive_in(growing(), echo());
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
        let before = drive.lane_stats()[0].size;
        call(&mut drive, len as u64, len);
        epoch += u32::from(lane > before);
        for (which, lane_now) in drive.lane_stats().into_iter().enumerate() {
            assert_eq!((lane_now.size, lane_now.epoch), (lane, epoch), "lane {which}, {len} bytes");
        }
    }
    // Nothing was foreseen: each message was alone in its lane.
    assert_eq!(drive.port().end().acts(Act::Offer), 4);
    assert_eq!(drive.port().at_peer(|end| end.acts(Act::Offer)), 4);
}

/// The switch and all that follows it become visible by one move of the tail.
#[test]
fn the_sender_goes_on_without_waiting_and_what_it_wrote_arrives_in_order() {
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
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    /// Mostly small, seldom near `most`.
    pub(crate) fn len(&mut self, most: usize) -> usize {
        let most = most >> (2 * self.roll(7));
        self.roll(most + 1)
    }
}

/// Holds up to `hold` requests back and answers them in any order by payloads of any length: the request's number,
/// and as many bytes as it asks for.
pub(crate) fn shuffling(mut dice: Dice, hold: usize) -> impl FnMut(&SimEnd) -> Step + Send {
    let mut serving = None;
    let mut held: Vec<(u64, Vec<u8>)> = Vec::new();
    move |end: &SimEnd| {
        let serving = serving.get_or_insert_with(|| Serving::new(end, hold as u64 + 1));
        serving.wake_up();
        serving.flush();
        match serving.take() {
            Ok(Some(Taken::Request { id, payload, .. })) => {
                held.push((id, payload));
                if held.len() < hold && dice.roll(8) > 0 {
                    serving.commit();
                    return Step::Again;
                }
            }
            Ok(Some(Taken::Cancel { .. }) | None) => {}
            Err(step) => return step,
        }
        if !held.is_empty() {
            let (id, asked) = held.swap_remove(dice.roll(held.len()));
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
    drive: &mut CallDriver<SimPort>,
    dice: &mut Dice,
    (requests, window, most): (u64, usize, usize),
    (pause, trim): (usize, usize),
) -> u64 {
    let mut waiting = std::collections::BTreeMap::new();
    let (mut sent, mut lacked) = (0, 0);
    let mut buffer = Vec::new();
    while sent < requests || !waiting.is_empty() {
        if dice.roll(trim) == 0 {
            match drive.trim() {
                Ok(()) => {}
                Err(CallFailed::Submit(SubmitError::Short(_))) => lacked += 1,
                Err(error) => assert!(is_full(&error), "{error}"),
            }
        }
        if sent < requests && waiting.len() < window && dice.roll(pause) > 0 {
            let (len, asked) = (dice.len(most), dice.len(most));
            match drive.push(&request(sent, asked, len)) {
                Ok(ticket) => {
                    waiting.insert(ticket.id(), (sent, asked));
                    sent += 1;
                }
                Err(CallFailed::Submit(SubmitError::Short(_))) => {
                    (sent, lacked) = (sent + 1, lacked + 1);
                }
                Err(error) => {
                    assert!(is_full(&error), "{error}");
                    drive.wait_for_room(&mut { Deadline::NEVER }).unwrap();
                }
            }
            if dice.roll(3) > 0 {
                drive.commit();
            }
        } else if !waiting.is_empty() {
            drive.commit();
            drive.wait_for_data(&mut { Deadline::NEVER }).unwrap();
        }
        loop {
            let reply = match drive.try_reply(&mut buffer) {
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
fn lanes_grow_while_many_requests_are_in_flight_and_answers_come_in_any_order() {
    for seed in 1..=8 {
        let mut drive = drive_in(growing(), shuffling(Dice(seed * 77), 20));
        let lacked = pipeline(&mut drive, &mut Dice(seed), (400, 50, 100_000), (4, NEVER));
        assert_eq!((lacked, drive.in_flight()), (0, 0));
        for lane in drive.lane_stats() {
            assert!(lane.grows >= 1 && lane.size >= 65_536, "{lane:?}");
        }
    }
}

/// Neither end has read anything and neither lane has room; each needs a larger one, and gets it.
#[test]
fn two_full_lanes_grow_at_once_and_nobody_waits() {
    let mut pair = Pair::new(growing());
    for from in [0, 1] {
        let mut id = 0;
        while pair.push(from, id, 100).is_ok() {
            id += 1;
        }
        let _ = pair.commit(from);
    }
    for from in [0, 1] {
        pair.send(from, 100, 10_000).unwrap();
        let _ = pair.commit(from);
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
        let mut drive = drive_in(growing(), shuffling(Dice(5), 1));
        let (mut sent, mut answered) = (0, 0);
        let mut buffer = Vec::new();
        // Nothing is read before the own lane is full.
        while answered < 300 {
            if sent < 300 {
                match drive.push(&request(sent, theirs, own)) {
                    Ok(_) => {
                        sent += 1;
                        continue;
                    }
                    Err(error) => assert!(is_full(&error), "{error}"),
                }
            }
            drive.commit();
            if sent < 300 {
                drive.wait_for_room(&mut { Deadline::NEVER }).unwrap();
            } else {
                drive.wait_for_data(&mut { Deadline::NEVER }).unwrap();
            }
            while let Some(reply) = drive.try_reply(&mut buffer).unwrap() {
                assert_eq!(reply.len, theirs);
                answered += 1;
            }
        }
    }
}

/// Grows the lane of end 0 as often as it may without its peer following, and returns what it met then.
fn outstanding(pair: &mut Pair) -> ResizeError {
    for number in 2..=MOST_OUTSTANDING as u32 + 1 {
        pair.send(0, number.into(), 1500 << (number - 1)).unwrap();
        assert_eq!(pair.epoch(0).number, number);
    }
    pair.send(0, 99, 1500 << (MOST_OUTSTANDING + 1)).unwrap_err()
}

#[test]
fn one_epoch_more_than_may_be_outstanding_meets_a_full_lane_and_is_rung() {
    let mut pair = Pair::new(growing());
    let missing = match outstanding(&mut pair) {
        ResizeError::Push(PushError::Full { missing }) => missing,
        error => panic!("{error}"),
    };
    assert_eq!(missing, 16, "the first switch");
    assert_eq!(pair.ends[0].acts(Act::Offer), MOST_OUTSTANDING as u64);
    assert!(matches!(pair.arm(0, true), Armed::Sleep { head: Some(0), .. }));
    // What fits goes out meanwhile.
    pair.push(0, 50, 10).unwrap();
    assert!(!pair.has_room(0));
    let switch = pair.peek(1).unwrap().unwrap();
    assert_eq!(switch.kind, Kind::Switch);
    pair.follow(1, &switch).unwrap();
    assert!(pair.commit(1).space, "who waits for an epoch is rung when it is followed");
    assert!(pair.has_room(0));
    pair.send(0, 99, 1500 << (MOST_OUTSTANDING + 1)).unwrap();
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1), [2, 3, 4, 5, 50, 99]);
}

/// One step smaller than needed was offered: it counts.
#[test]
fn an_epoch_that_was_offered_and_not_used_counts_as_outstanding() {
    let mut pair = Pair::new(growing());
    for number in 2..=MOST_OUTSTANDING as u64 {
        pair.send(0, number, 1500 << (number - 1)).unwrap();
    }
    let next = pair.epoch(0).size.doubled();
    let epoch = pair.lanes[0].next_epoch(pair.ends[0].peer(), next).unwrap();
    bellwire_core::Port::offer(&mut pair.ends[0].clone(), epoch).unwrap();
    pair.lanes[0].offer(epoch);
    let full = pair.lanes[0].next_epoch(pair.ends[0].peer(), next);
    assert!(matches!(full, Err(PushError::Full { missing: 16 })), "{full:?}");
    // It is used when it is large enough, and no step when not.
    pair.send(0, 8, next.max_payload()).unwrap();
    assert_eq!(pair.epoch(0), epoch);
    assert!(matches!(pair.send(0, 9, 200_000), Err(ResizeError::Push(PushError::Full { .. }))));
}

#[test]
fn a_caller_that_waits_for_an_epoch_is_woken_when_the_peer_follows() {
    let wakes = bellwire_core::Instant::default().after(5 * MILLI);
    let mut server = echo();
    let sleepy = move |end: &SimEnd| {
        if end.now() < wakes { Step::Busy(wakes) } else { server.step(end) }
    };
    let mut drive = drive_in(growing(), sleepy);
    let (mut sent, mut len) = (0, 1500);
    let error = loop {
        match drive.submit(&payload(sent, len)) {
            Ok(_) => (sent, len) = (sent + 1, len * 2),
            Err(error) => break error,
        }
    };
    assert!(is_full(&error), "{error}");
    assert_eq!(drive.port().end().acts(Act::Offer), MOST_OUTSTANDING as u64);
    drive.wait_for_room(&mut { Deadline::NEVER }).unwrap();
    let mut buffer = Vec::new();
    let mut answered = 0;
    while drive.submit(&payload(sent, len)).inspect_err(|error| assert!(is_full(error))).is_err() {
        drive.wait_for_room(&mut { Deadline::NEVER }).unwrap();
        answered += u64::from(drive.try_reply(&mut buffer).unwrap().is_some());
    }
    while answered <= sent {
        let reply = drive.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer).unwrap();
        assert_eq!(&buffer[..reply.len], &payload(answered, 1500 << answered));
        answered += 1;
    }
}

#[test]
fn one_attachment_more_than_may_be_outstanding_meets_a_full_lane_and_is_rung() {
    let mut pair = Pair::new(growing());
    let attach = |pair: &mut Pair, id: u64| {
        let Pair { ends: [end, _], lanes: [lanes, _] } = pair;
        lanes.can_attach(end.peer(), 100)?;
        end.pass(id, &payload(id, 100)).unwrap();
        let header = Header::new(Kind::Attach, Status::Ok, id, 0);
        lanes.push_attached(end.own(), end.peer(), header, 100)
    };
    for id in 0..MOST_ATTACHED as u64 {
        attach(&mut pair, id).unwrap();
    }
    assert_eq!(attach(&mut pair, 99), Err(PushError::Full { missing: 16 }));
    assert_eq!(pair.ends[0].acts(Act::Pass), MOST_ATTACHED as u64);
    assert!(matches!(pair.arm(0, true), Armed::Sleep { head: Some(0), .. }));
    // The lane itself has room.
    pair.push(0, 50, 0).unwrap();
    let record = pair.peek(1).unwrap().unwrap();
    assert_eq!((record.kind, record.id), (Kind::Attach, 0));
    assert_eq!(pair.ends[1].take(0).unwrap(), payload(0, 100));
    pair.lanes[1].take(&record);
    assert!(pair.commit(1).space, "it is the first of many in the lane, and its taker is heard");
    assert!(pair.has_room(0));
    attach(&mut pair, 99).unwrap();
    assert_eq!(pair.lanes[0].sent().attaches, MOST_ATTACHED as u64 + 1);
}

#[test]
fn requests_and_answers_travel_in_memory_of_their_own_among_others() {
    let sim = Sim { lane: size(65_536), ..growing() };
    let mut drive = drive_in(sim, echo().attaching(5000));
    let mut buffer = Vec::new();
    let mut expected = Vec::new();
    for id in 1..=100_u64 {
        let len = id as usize * 97;
        let sent = if id % 3 == 0 {
            let pass = |port: &SimPort, id| port.end().pass(id, &payload(id, len));
            drive.submit_attached(len as u64, false, pass)
        } else {
            drive.submit(&payload(id, len))
        };
        match sent {
            Ok(ticket) => assert_eq!(ticket.id(), id),
            Err(error) => panic!("{error}"),
        }
        expected.push((id, len));
        if id % 7 > 0 && id < 100 {
            continue;
        }
        for (id, len) in expected.drain(..) {
            let reply = drive.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer).unwrap();
            assert_eq!((reply.ticket.id(), reply.attached), (id, len >= 5000));
            let answer = if reply.attached {
                drive.port().end().take(id).unwrap()
            } else {
                buffer[..reply.len].to_vec()
            };
            assert_eq!(answer, payload(id, len));
        }
    }
    assert_eq!(drive.port().end().acts(Act::Pass), 33);
    assert_eq!(drive.lane_stats()[0].attaches, 33);
    assert_eq!(
        drive.lane_stats()[1].attaches,
        (1..=100).filter(|id| id * 97 >= 5000).count() as u64
    );
}

/// Answers in memory of their own that found the lane full, or too many of their kind, wait like others.
#[test]
fn attached_answers_that_found_no_room_are_passed_when_there_is() {
    for (requests, others) in [(MOST_ATTACHED as u64 * 3, 0), (20, 1000)] {
        let handler = move |request: &[u8]| {
            let id = u64::from_le_bytes(request.try_into().unwrap());
            let len = if id % 2 == 0 { 6000 } else { others };
            (Status::Ok, payload(id, len))
        };
        let server = SimServer::new(handler).attaching(if others == 0 { 0 } else { 6000 });
        let mut drive = drive_in(Sim { lane: size(65_536), ..growing() }, server);
        for id in 1..=requests {
            drive.push(&id.to_le_bytes()).unwrap();
        }
        drive.commit();
        drive.port().run_for(MILLI);
        let mut buffer = Vec::new();
        for id in 1..=requests {
            let reply = drive.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer).unwrap();
            assert_eq!(reply.ticket.id(), id, "in order");
            let answer = if reply.attached {
                drive.port().end().take(id).unwrap()
            } else {
                buffer[..reply.len].to_vec()
            };
            assert_eq!(answer, payload(id, if id % 2 == 0 { 6000 } else { others }));
        }
    }
}

#[test]
fn a_lane_that_is_idle_for_long_enough_shrinks_at_the_next_send() {
    let mut drive = drive_in(growing(), echo().shrinking_after(10 * MILLI));
    drive.set_shrink_after(10 * MILLI);
    call(&mut drive, 1, 100_000);
    call(&mut drive, 2, 10);
    for _ in 0..9 {
        drive.port().run_for(MILLI);
        call(&mut drive, 3, 10);
        assert!(drive.lane_stats().iter().all(|lane| lane.size == 262_144), "not yet");
    }
    drive.port().run_for(2 * MILLI);
    // The server shrinks when it wakes up for this; the caller, when it does.
    call(&mut drive, 4, 10);
    call(&mut drive, 5, 10);
    for lane in drive.lane_stats() {
        assert_eq!((lane.size, lane.epoch, lane.grows, lane.shrinks), (4096, 3, 1, 1));
    }
    call(&mut drive, 6, 100_000);
    assert!(drive.lane_stats().iter().all(|lane| lane.grows == 2));
}

#[test]
fn a_lane_that_is_used_does_not_shrink() {
    let mut drive = drive_in(growing(), echo().shrinking_after(10 * MILLI));
    drive.set_shrink_after(10 * MILLI);
    for round in 0..50 {
        // The shortest message that needs a lane of 256 KiB.
        call(&mut drive, round, 65_536 - 47);
        for _ in 0..3 {
            drive.port().run_for(3 * MILLI);
            call(&mut drive, round, 10);
        }
    }
    for lane in drive.lane_stats() {
        assert_eq!((lane.size, lane.epoch, lane.shrinks), (262_144, 2, 0));
    }
}

/// Sends 32 MiB in messages of 1000 bytes, one each `every` but `together` at a time, through a lane that has been
/// made for one of `first` bytes. Both ends do the same. Returns the sizes of the lanes.
fn paced(first: usize, together: u32, every: Duration) -> [Vec<u64>; 2] {
    let mut drive = drive_in(growing(), echo().shrinking_after(150 * MILLI));
    drive.set_shrink_after(150 * MILLI);
    call(&mut drive, 1, first);
    let mut buffer = Vec::new();
    let mut sizes = [Vec::new(), Vec::new()];
    for _ in 0..(32 << 10) / together {
        for _ in 0..together {
            drive.submit(&payload(0, 1000)).unwrap();
        }
        drive.port().run_for(every * together);
        for _ in 0..together {
            drive.try_reply(&mut buffer).unwrap().unwrap();
        }
        for (sizes, lane) in sizes.iter_mut().zip(drive.lane_stats()) {
            if sizes.last() != Some(&lane.size) {
                sizes.push(lane.size);
            }
        }
    }
    sizes
}

#[test]
fn a_deep_lane_through_which_much_goes_at_once_becomes_a_large_one_and_stays_so() {
    const MICRO: Duration = Duration::from_micros(1);
    for sizes in paced(20_000, 40, 10 * MICRO) {
        assert_eq!(sizes, [64 << 10, 1 << 20], "8 MiB in 80 ms");
    }
    for sizes in paced(20_000, 60, 10 * MICRO) {
        assert_eq!(
            sizes,
            [64 << 10, 1 << 20],
            "at three quarters, when the next size is offered, too"
        );
    }
    for sizes in paced(20_000, 40, 20 * MICRO) {
        assert_eq!(sizes, [64 << 10], "8 MiB in 160 ms");
    }
    for sizes in paced(20_000, 1, 10 * MICRO) {
        assert_eq!(sizes, [64 << 10, 4096], "it is not deep, nor used");
    }
}

/// No end waits here: the check at each quarter of the lane does it.
#[test]
fn who_never_waits_shrinks_too_within_a_quarter_of_the_lane() {
    let mut drive = drive_in(growing(), echo());
    drive.set_shrink_after(10 * MILLI);
    let mut buffer = Vec::new();
    let mut sent = 0;
    let mut poll = |drive: &mut CallDriver<SimPort>, len: usize| {
        drive.submit(&payload(0, len)).unwrap();
        drive.port().run_for(MILLI);
        drive.try_reply(&mut buffer).unwrap().unwrap();
        sent += len as u64;
    };
    poll(&mut drive, 100_000);
    for _ in 0..2 * 262_144 / 4 / 1000 {
        poll(&mut drive, 1000);
    }
    assert_eq!(drive.lane_stats()[0].size, 4096);
}

#[test]
fn a_trim_makes_both_lanes_small_and_says_when() {
    let mut drive = drive_in(growing(), echo());
    call(&mut drive, 1, 50_000);
    assert!(drive.is_trimmed(), "nobody asked");
    let in_flight = drive.submit(&payload(2, 20_000)).unwrap();
    drive.trim().unwrap();
    assert_eq!((drive.lane_stats()[0].size, drive.lane_stats()[0].shrinks), (4096, 1));
    assert!(!drive.is_trimmed());
    let mut buffer = Vec::new();
    let reply = drive.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer).unwrap();
    assert_eq!((reply.ticket, &buffer[..reply.len]), (in_flight, &payload(2, 20_000)[..]));
    assert_eq!(drive.try_reply(&mut buffer).unwrap(), None);
    while !drive.is_trimmed() {
        drive.wait_for_data(&mut { Deadline::NEVER }).unwrap();
        assert_eq!(drive.try_reply(&mut buffer).unwrap(), None);
    }
    assert_eq!((drive.lane_stats()[1].size, drive.lane_stats()[1].shrinks), (4096, 1));
    let offers = drive.port().end().acts(Act::Offer);
    drive.trim().unwrap();
    assert!(!drive.is_trimmed(), "each is answered");
    assert_eq!(drive.port().end().acts(Act::Offer), offers, "there is nothing to give back");
    drive.port().run_for(MILLI);
    assert_eq!(drive.try_reply(&mut buffer).unwrap(), None);
    assert!(drive.is_trimmed());
    call(&mut drive, 3, 50_000);
}

/// An epoch that was offered early holds memory too.
#[test]
fn a_trim_leaves_what_was_offered_and_not_used() {
    let mut pair = Pair::new(growing());
    while pair.push(0, 1, 100).is_ok() {}
    assert!(!pair.maintenance(0), "an offer is nothing to publish");
    assert_eq!(pair.lanes[0].offered(), Some(Epoch { number: 2, size: size(8192) }));
    pair.shrink(0).unwrap();
    assert_eq!(pair.epoch(0), Epoch { number: 3, size: size(4096) });
    assert_eq!(pair.lanes[0].offered(), None);
    pair.push(0, 2, 5).unwrap();
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1).last(), Some(&2));
}

#[test]
fn the_next_epoch_is_offered_when_three_quarters_are_full_and_then_only_switched_to() {
    let mut pair = Pair::new(growing());
    let mut used = 0;
    while used < 3072 - 128 - 32 {
        pair.push(0, 1, 112).unwrap();
        used += 128;
        assert!(!pair.maintenance(0));
        assert_eq!(pair.lanes[0].offered(), None, "{used} bytes used");
    }
    while pair.push(0, 1, 112).is_ok() {
        pair.maintenance(0);
    }
    assert_eq!(pair.lanes[0].offered(), Some(Epoch { number: 2, size: size(8192) }));
    assert_eq!(pair.ends[0].acts(Act::Offer), 1);
    let to = pair.lanes[0].should_grow().expect("it is full, and one was offered");
    pair.grow(0, to).unwrap();
    assert_eq!(pair.epoch(0), Epoch { number: 2, size: size(8192) });
    assert_eq!(pair.ends[0].acts(Act::Offer), 1, "only a switch");
    pair.push(0, 2, 112).unwrap();
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1).last(), Some(&2));
}

/// The limit of shared memory leaves no room for the next epoch until a message was taken; a waiter for room in the
/// lane need not wait for that.
#[test]
fn an_early_offer_that_is_not_possible_does_not_change_what_is_waited_for() {
    let limits = Limits { max_shared_bytes_per_session: 4096 * 4, ..Limits::default() };
    let mut pair = Pair::new(limited(limits, limits));
    for _ in 0..10 {
        pair.push(0, 1, 112).unwrap();
    }
    let Pair { ends: [end, _], lanes: [lanes, _] } = &mut pair;
    lanes.can_attach(end.peer(), 4096).unwrap();
    end.pass(2, &payload(2, 4096)).unwrap();
    let header = Header::new(Kind::Attach, Status::Ok, 2, 0);
    lanes.push_attached(end.own(), end.peer(), header, 4096).unwrap();
    let missing = loop {
        match pair.push(0, 1, 112) {
            Ok(()) => {}
            Err(PushError::Full { missing }) => break missing,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(missing <= 128);
    assert!(!pair.maintenance(0));
    assert_eq!((pair.lanes[0].offered(), pair.ends[0].acts(Act::Offer)), (None, 0));
    let _ = pair.commit(0);
    assert!(!pair.has_room(0));
    pair.take(1).unwrap();
    let _ = pair.commit(1);
    assert!(pair.has_room(0));
}

#[test]
fn an_offered_epoch_that_is_too_small_is_a_stepping_stone() {
    let mut pair = Pair::new(growing());
    while pair.push(0, 1, 112).is_ok() {}
    pair.maintenance(0);
    assert_eq!(pair.lanes[0].offered(), Some(Epoch { number: 2, size: size(8192) }));
    pair.send(0, 2, 10_000).unwrap();
    assert_eq!(pair.epoch(0), Epoch { number: 3, size: size(32_768) });
    assert_eq!(pair.ends[0].acts(Act::Offer), 2);
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1).last(), Some(&2));
    let stats = pair.lanes[1].received();
    assert_eq!((stats.epoch, stats.grows), (3, 2));
}

/// Without an offer it takes a full lane for half of the last 32 records.
#[test]
fn a_lane_that_is_often_full_grows_and_one_that_seldom_is_does_not() {
    for (every, grows) in [(1, true), (2, true), (3, false), (8, false)] {
        let mut pair = Pair::new(growing());
        while pair.push(0, 0, 112).is_ok() {}
        let _ = pair.commit(0);
        let mut should = false;
        for id in 0..200 {
            if id % every == 0 {
                assert!(matches!(pair.push(0, id, 112), Err(PushError::Full { .. })));
                should |= pair.lanes[0].should_grow().is_some();
            }
            // Room for one record; or for as many as fit until the next is to find the lane full.
            for _ in 0..if id % every == 0 { every } else { 0 } {
                pair.take(1);
            }
            let _ = pair.commit(1);
            pair.push(0, id, 112).unwrap();
            let _ = pair.commit(0);
        }
        assert_eq!(should, grows, "every {every}");
    }
}

#[test]
fn a_lane_that_was_often_full_grows_no_further_than_its_cap() {
    let mut drive = drive_in(growing(), shuffling(Dice(9), 30));
    let mut dice = Dice(3);
    assert_eq!(pipeline(&mut drive, &mut dice, (30_000, 20_000, 600), (1000, NEVER)), 0);
    let [own, _] = drive.lane_stats();
    assert!(own.size > 4096 && own.size <= FULL_LIMIT, "{own:?}");
    // A message that needs it exceeds the limit; after that, fullness does not.
    let mut pair = Pair::new(growing());
    pair.send(0, 0, FULL_LIMIT as usize / 4).unwrap();
    let _ = pair.commit(0);
    assert_eq!(pair.take_all(1), [0]);
    let _ = pair.commit(1);
    for _ in 0..100 {
        while pair.push(0, 1, 5000).is_ok() {}
        pair.maintenance(0);
        assert_eq!((pair.lanes[0].offered(), pair.lanes[0].should_grow()), (None, None));
        let _ = pair.commit(0);
        pair.take(1);
        let _ = pair.commit(1);
    }
}

/// A larger lane is no help against a peer that does not read.
#[test]
fn a_peer_that_never_reads_gets_no_second_growth() {
    let mut drive = drive_in(growing(), |_: &SimEnd| Step::Parked(None));
    for _ in 0..10 {
        while drive.submit(&[0; 100]).is_ok() {}
        let failed = drive.wait_for_room(&mut Deadline::within(MILLI)).unwrap_err();
        assert!(matches!(failed, CallFailed::Deadline(_)), "{failed}");
    }
    let [own, _] = drive.lane_stats();
    assert_eq!((own.epoch, own.size), (2, 8192));
    assert_eq!(drive.port().end().acts(Act::Offer), 1);
}

/// The answers of a server find the lane full as often; it grows step by step, as its peer reads.
#[test]
fn a_servers_lane_grows_by_fullness_as_far_as_its_peer_reads() {
    let mut drive = drive_in(Sim { lane: size(65_536), ..growing() }, echo());
    let mut buffer = Vec::new();
    let mut sizes = vec![4096];
    for round in 0..10 {
        for id in 0..400 {
            drive.push(&payload(round * 1000 + id, 100)).unwrap();
        }
        drive.commit();
        drive.port().run_for(MILLI);
        for id in 0..400 {
            let reply = drive.wait_for_reply(&mut { Deadline::NEVER }, &mut buffer).unwrap();
            assert_eq!(&buffer[..reply.len], &payload(round * 1000 + id, 100));
            sizes.push(drive.lane_stats()[1].size);
        }
    }
    assert!(sizes.is_sorted() && sizes.last() > Some(&8192) && sizes.last() <= Some(&FULL_LIMIT));
}

/// The largest lane size is agreed: fullness respects it too.
#[test]
fn fullness_grows_no_lane_past_what_was_agreed() {
    let limits = Limits { max_lane: size(8192), ..Limits::default() };
    let mut drive = drive_in(limited(limits, Limits::default()), shuffling(Dice(9), 30));
    assert_eq!(pipeline(&mut drive, &mut Dice(3), (3000, 500, 600), (1000, NEVER)), 0);
    let [own, _] = drive.lane_stats();
    assert_eq!((own.size, own.grows), (8192, 1));
}
