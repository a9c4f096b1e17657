//! The promises. A serving end is a script: what it does at each step.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bellwire_core::call::{Reply, SubmitError, Ticket};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::PushError;
use bellwire_core::serve::ServeCounts;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Status};
use bellwire_core::{
    Deadline, Executed, Geometry, PeerFault, PeerMemory, Port, SpinPolicy, Whose, Word,
};

use super::endpoints::{Endpoints, Next, Taken};
use super::{Transport, session, session_in, until};

/// What an event index holds when its end does not wait.
const NOBODY: u64 = u64::MAX;
/// Long enough to park, for a wait in vain.
const SHORT: Duration = Duration::from_millis(5);

fn never() -> Deadline {
    Deadline::NEVER
}

fn tiny() -> Geometry {
    Geometry::new(4096).unwrap()
}

fn payload(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(167) ^ at ^ at >> 8) as u8).collect()
}

/// Answers each request with itself.
fn echo(endpoints: &mut dyn Endpoints) -> Next {
    if !endpoints.flush() {
        return Next::Park;
    }
    while let Some(taken) = endpoints.take() {
        if let Taken::Request(id, payload) = taken {
            endpoints.answer(id, &payload);
        }
    }
    Next::Park
}

/// Takes what comes and answers nothing.
fn swallow(endpoints: &mut dyn Endpoints) -> Next {
    while endpoints.take().is_some() {}
    Next::Park
}

fn caller_waits_for_data(endpoints: &dyn Endpoints) -> bool {
    endpoints.load(Word::WantData) != NOBODY
}

fn caller_waits_for_room(endpoints: &dyn Endpoints) -> bool {
    endpoints.load(Word::WantSpace) != NOBODY
}

fn wait<P: Port>(drive: &mut CallDriver<P>) -> Result<(Ticket, Vec<u8>), CallFailed> {
    let mut buffer = Vec::new();
    let reply = drive.wait_for_reply(&mut never(), &mut buffer)?;
    assert_eq!((reply.status, reply.attached), (Status::Ok, false));
    buffer.truncate(reply.len);
    Ok((reply.ticket, buffer))
}

fn call<P: Port>(drive: &mut CallDriver<P>, payload: &[u8]) -> Vec<u8> {
    let ticket = drive.submit(payload).unwrap();
    let (answered, answer) = wait(drive).unwrap();
    assert_eq!(answered, ticket);
    answer
}

/// Fills the lane; the requests that went in.
fn fill<P: Port>(drive: &mut CallDriver<P>, payload: &[u8]) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    loop {
        match drive.submit(payload) {
            Ok(ticket) => tickets.push(ticket),
            Err(CallFailed::Submit(SubmitError::Push(PushError::Full { .. }))) => return tickets,
            Err(error) => panic!("{error}"),
        }
    }
}

fn full(error: &CallFailed) -> bool {
    matches!(error, CallFailed::Submit(SubmitError::Push(PushError::Full { .. })))
}

fn submit_or_wait_for_room<P: Port>(drive: &mut CallDriver<P>, payload: &[u8]) -> Ticket {
    loop {
        match drive.submit(payload) {
            Ok(ticket) => return ticket,
            Err(error) => assert!(full(&error), "{error}"),
        }
        drive.wait_for_room(&mut never()).unwrap();
    }
}

pub(crate) fn every_size_comes_back_whole<T: Transport>() {
    let mut drive = session::<T>(echo);
    let max = drive.max_payload();
    let boundaries = [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 4079, 4080, 4081, max - 17, max - 16];
    for len in boundaries.into_iter().chain((0..max).step_by(97)).chain([max - 1, max, 0, max]) {
        let sent = payload(len, len);
        assert!(call(&mut drive, &sent) == sent, "{len} bytes");
    }
}

pub(crate) fn one_byte_more_than_the_largest_is_refused_and_the_session_goes_on<T: Transport>() {
    let mut drive = session::<T>(echo);
    let limit = drive.max_payload();
    let whose = Whose::Own;
    let (len, limit) = (limit as u64 + 1, limit as u64);
    let too_large = PushError::TooLarge { len, limit, whose };
    let too_large = CallFailed::Submit(SubmitError::Push(too_large));
    assert_eq!(drive.submit(&vec![0; len as usize]), Err(too_large));
    assert_eq!(drive.in_flight(), 0);
    assert_eq!(call(&mut drive, b"still here"), b"still here");
}

pub(crate) fn a_lane_wraps_many_times<T: Transport>() {
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, echo);
    // Coprime with the lane's size in records: each position is a record's start at some time.
    for round in 0..600 {
        let sent = payload(round, round * 211 % 1800);
        assert!(call(&mut drive, &sent) == sent, "round {round}");
    }
}

pub(crate) fn answers_out_of_order_find_their_requests<T: Transport>() {
    const DEPTH: usize = 32;
    let mut waiting = Vec::new();
    let mut drive = session::<T>(move |endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            waiting.push((id, payload));
        }
        if waiting.len() == DEPTH {
            // Last in, first out, and then the two halves swapped.
            waiting.reverse();
            waiting.rotate_left(DEPTH / 2);
            for (id, payload) in waiting.drain(..) {
                endpoints.answer(id, &payload);
            }
        }
        Next::Park
    });
    for round in 0..8 {
        let sent: Vec<_> = (0..DEPTH)
            .map(|at| {
                let payload = payload(round * DEPTH + at, at * 5);
                (drive.submit(&payload).unwrap(), payload)
            })
            .collect();
        assert_eq!(drive.in_flight(), DEPTH);
        let mut came: Vec<_> = (0..DEPTH).map(|_| wait(&mut drive).unwrap()).collect();
        assert_ne!(came, sent, "they came in another order");
        came.sort();
        assert!(came == sent);
        assert_eq!(drive.in_flight(), 0);
    }
}

pub(crate) fn an_answer_that_no_longer_fits_waits_for_room<T: Transport>() {
    // Small requests, answers of half a lane: each but the first finds the lane full.
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, |endpoints| {
        if !endpoints.flush() {
            return Next::Park;
        }
        while let Some(taken) = endpoints.take() {
            let Taken::Request(id, request) = taken else { panic!("{taken:?}") };
            endpoints.answer(id, &payload(usize::from(request[0]), 1900));
        }
        Next::Park
    });
    let tickets: Vec<_> = (0..20).map(|at| drive.submit(&[at]).unwrap()).collect();
    for (at, ticket) in tickets.into_iter().enumerate() {
        let (answered, answer) = wait(&mut drive).unwrap();
        assert_eq!(answered, ticket);
        assert!(answer == payload(at, 1900), "answer {at}");
    }
}

pub(crate) fn a_full_lane_has_room_again<T: Transport>() {
    let mut served = false;
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, move |endpoints| {
        // Does nothing until the caller parks for room.
        served |= caller_waits_for_room(endpoints);
        if served { echo(endpoints) } else { Next::Again }
    });
    let mut tickets = fill(&mut drive, &[7; 100]);
    assert!(tickets.len() > 20, "{}", tickets.len());
    for _ in 0..5 {
        tickets.push(submit_or_wait_for_room(&mut drive, &[7; 100]));
    }
    for ticket in tickets {
        assert_eq!(wait(&mut drive).unwrap(), (ticket, vec![7; 100]));
    }
}

pub(crate) fn who_only_polls_gets_room_and_gives_it<T: Transport>() {
    // The serving end parks when its lane is full; the calling end never waits, and never arms.
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, echo);
    let (mut buffer, mut random) = (Vec::new(), 1_usize);
    for round in 0..300 {
        let mut sent = Vec::new();
        for _ in 0..6 {
            // Many of them so large that the rest of the lane is a pad.
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let len = drive.max_payload() - (random >> 40) % [2000, 1000, 17][round % 3];
            let payload = payload(round, len);
            until("there is room", || {
                let polled = drive.submit(&payload);
                sent.extend(polled.map(|ticket| (ticket, payload.clone())));
                drive.port().relax();
                polled.is_ok() || {
                    come(&mut drive, &mut sent, &mut buffer);
                    false
                }
            });
        }
        until("all are answered", || {
            drive.port().relax();
            come(&mut drive, &mut sent, &mut buffer);
            sent.is_empty()
        });
    }
    assert_eq!(drive.parks(), 0);
}

/// Takes the answers that are there, which come in the order of their requests.
fn come<P: Port>(
    drive: &mut CallDriver<P>,
    sent: &mut Vec<(Ticket, Vec<u8>)>,
    buffer: &mut Vec<u8>,
) {
    while let Some(reply) = drive.try_reply(buffer).unwrap() {
        let (ticket, payload) = sent.remove(0);
        assert_eq!(reply.ticket, ticket);
        assert!(buffer[..reply.len] == payload);
    }
}

pub(crate) fn who_only_polls_gives_back_the_room_of_a_pad<T: Transport>() {
    // Answers are as long as their requests ask for.
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, |endpoints| {
        if !endpoints.flush() {
            return Next::Park;
        }
        while let Some(Taken::Request(id, request)) = endpoints.take() {
            let len = u16::from_le_bytes(request.try_into().unwrap());
            endpoints.answer(id, &payload(0, len.into()));
        }
        Next::Park
    });
    let poll = |drive: &mut CallDriver<T::Port>, len| {
        let mut reply = None;
        until("the answer comes", || {
            drive.port().relax();
            reply = drive.try_reply(&mut Vec::new()).unwrap();
            reply.is_some()
        });
        assert_eq!(reply.map(|reply| reply.len), Some(len));
    };
    let ask = |drive: &mut CallDriver<T::Port>, len: u16| drive.submit(&len.to_le_bytes()).unwrap();
    // Half the lane, whose room is then freed; then a little, which leaves less than half to the end.
    ask(&mut drive, 2000);
    poll(&mut drive, 2000);
    ask(&mut drive, 496);
    // The third is behind a pad, and waits for the room of the second: far less than a quarter of the lane.
    ask(&mut drive, 2000);
    until("the serving end waits for room", || {
        drive.port().relax();
        drive.port().peer().load(Word::WantSpace, Ordering::Acquire) != NOBODY
    });
    poll(&mut drive, 496);
    poll(&mut drive, 2000);
}

pub(crate) fn a_wait_ends_at_its_deadline_and_the_answer_still_comes<T: Transport>() {
    let mut held = None;
    let mut drive = session::<T>(move |endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            // The first waits until there is a second.
            match held.take() {
                None => held = Some((id, payload)),
                Some((first, held)) => {
                    endpoints.answer(first, &held);
                    endpoints.answer(id, &payload);
                }
            }
        }
        Next::Park
    });
    for span in [Duration::ZERO, SHORT] {
        let first = drive.submit(b"first").unwrap();
        let began = drive.port().now();
        let failed = drive.wait_for_reply(&mut Deadline::within(span), &mut Vec::new());
        assert_eq!(failed, Err(CallFailed::Deadline(Executed::Maybe)));
        assert!(drive.port().now() >= began.after(span));
        assert_eq!(drive.in_flight(), 1);
        let second = drive.submit(b"second").unwrap();
        assert_eq!(wait(&mut drive).unwrap(), (first, b"first".to_vec()));
        assert_eq!(wait(&mut drive).unwrap(), (second, b"second".to_vec()));
    }
}

pub(crate) fn a_wait_for_room_ends_at_its_deadline<T: Transport>() {
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, |_| Next::Park);
    fill(&mut drive, &[0; 100]);
    let began = drive.port().now();
    let failed = drive.wait_for_room(&mut Deadline::within(SHORT));
    assert_eq!(failed, Err(CallFailed::Deadline(Executed::No)));
    assert!(drive.port().now() >= began.after(SHORT));
    assert!(drive.ended().is_none());
}

pub(crate) fn another_thread_cancels_a_parked_wait<T: Transport>() {
    let mut drive = session::<T>(swallow);
    let ticket = drive.submit(b"for nobody").unwrap();
    T::cancel_when_parked(drive.port());
    let failed = drive.wait_for_reply(&mut never(), &mut Vec::new());
    assert_eq!(failed, Err(CallFailed::Cancelled(Executed::Maybe)));
    T::take_cancel(drive.port());
    assert!(drive.abandon(ticket));
    let ends = drive.wait_for_reply(&mut Deadline::within(SHORT), &mut Vec::new());
    assert_eq!(ends, Err(CallFailed::Deadline(Executed::Maybe)), "it was cancelled once");
}

pub(crate) fn an_abandoned_request_is_cancelled_and_its_answer_dropped<T: Transport>() {
    let mut first = None;
    let mut drive = session::<T>(move |endpoints| {
        while let Some(taken) = endpoints.take() {
            match taken {
                Taken::Request(id, _) if first.is_none() => first = Some(id),
                Taken::Request(id, payload) => endpoints.answer(id, &payload),
                // Its answer is due all the same.
                Taken::Cancel(id) => {
                    assert_eq!(Some(id), first);
                    endpoints.answer(id, b"nobody wants this");
                }
            }
        }
        Next::Park
    });
    let unwanted = drive.submit(b"unwanted").unwrap();
    assert!(drive.abandon(unwanted));
    assert!(!drive.abandon(unwanted), "it is not in flight any more");
    assert_eq!(drive.in_flight(), 0);
    assert_eq!(call(&mut drive, b"wanted"), b"wanted");
}

pub(crate) fn a_close_ends_a_wait_for_data<T: Transport>() {
    let mut said = false;
    let mut drive = session::<T>(move |endpoints| {
        while endpoints.take().is_some() {}
        if !said && caller_waits_for_data(endpoints) {
            said = true;
            endpoints.close();
        }
        Next::Again
    });
    drive.submit(b"in vain").unwrap();
    assert_eq!(wait(&mut drive), Err(CallFailed::PeerGone(Executed::Maybe)));
    assert_eq!(drive.ended(), Some(CallFailed::PeerGone(Executed::No)));
    assert_eq!(drive.submit(b"more"), Err(CallFailed::PeerGone(Executed::No)));
}

pub(crate) fn a_close_ends_a_wait_for_room<T: Transport>() {
    let mut said = false;
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, move |endpoints| {
        if !said && caller_waits_for_room(endpoints) {
            said = true;
            endpoints.close();
        }
        Next::Again
    });
    fill(&mut drive, &[0; 100]);
    // It reports that something came: the Close record, which is read with the answers.
    match drive.wait_for_room(&mut never()) {
        Ok(()) => assert_eq!(drive.try_reply(&mut Vec::new()), Ok(None)),
        Err(error) => assert_eq!(error, CallFailed::PeerGone(Executed::No)),
    }
    assert_eq!(drive.ended(), Some(CallFailed::PeerGone(Executed::No)));
}

pub(crate) fn what_was_published_before_the_close_is_read<T: Transport>() {
    let mut drive = session::<T>(|endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            endpoints.answer(id, &payload);
            if payload == b"last" {
                endpoints.close();
            }
        }
        Next::Park
    });
    let first = drive.submit(b"first").unwrap();
    let last = drive.submit(b"last").unwrap();
    assert_eq!(wait(&mut drive).unwrap().0, first);
    assert_eq!(wait(&mut drive).unwrap().0, last);
    assert_eq!(wait(&mut drive), Err(CallFailed::PeerGone(Executed::Maybe)));
    assert_eq!(drive.closed(), Some(CloseReason::Normal));
}

pub(crate) fn a_peer_that_goes_ends_a_wait_for_data<T: Transport>() {
    let mut drive = session::<T>(|endpoints| {
        while endpoints.take().is_some() {}
        if caller_waits_for_data(endpoints) { Next::Vanish } else { Next::Again }
    });
    drive.submit(b"in vain").unwrap();
    assert_eq!(wait(&mut drive), Err(CallFailed::PeerGone(Executed::Maybe)));
    assert_eq!(drive.submit(b"more"), Err(CallFailed::PeerGone(Executed::No)));
    assert_eq!(drive.closed(), None, "it did not say close");
}

pub(crate) fn a_peer_that_goes_ends_a_wait_for_room<T: Transport>() {
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, |endpoints| {
        if caller_waits_for_room(endpoints) { Next::Vanish } else { Next::Again }
    });
    fill(&mut drive, &[0; 100]);
    let gone = drive.wait_for_room(&mut never());
    assert_eq!(gone, Err(CallFailed::PeerGone(Executed::No)));
    assert_eq!(drive.submit(b"more"), Err(CallFailed::PeerGone(Executed::No)));
}

pub(crate) fn what_was_published_before_the_end_is_read<T: Transport>() {
    let mut drive = session::<T>(|endpoints| match endpoints.take() {
        Some(Taken::Request(id, payload)) => {
            endpoints.answer(id, &payload);
            Next::Vanish
        }
        _ => Next::Park,
    });
    assert_eq!(call(&mut drive, b"the last thing"), b"the last thing");
    assert_eq!(wait(&mut drive), Err(CallFailed::PeerGone(Executed::Maybe)));
}

pub(crate) fn a_request_that_was_taken_may_have_run<T: Transport>() {
    let mut drive = session::<T>(|endpoints| match endpoints.take() {
        Some(_) => Next::Vanish,
        None => Next::Park,
    });
    let taken = drive.submit(b"taken").unwrap();
    assert_eq!(wait(&mut drive), Err(CallFailed::PeerGone(Executed::Maybe)));
    assert_eq!(drive.executed(taken), Executed::Maybe);
}

pub(crate) fn a_request_that_was_not_taken_has_not_run<T: Transport>() {
    let mut drive = session::<T>(|endpoints| {
        // Not before both are published.
        if endpoints.load(Word::Tail) < 64 {
            return Next::Again;
        }
        endpoints.take().expect("the first of two");
        Next::Vanish
    });
    let taken = drive.submit(b"taken").unwrap();
    let left = drive.submit(b"left").unwrap();
    assert!(wait(&mut drive).is_err());
    assert_eq!(drive.executed(taken), Executed::Maybe);
    assert_eq!(drive.executed(left), Executed::No);
}

/// A serving end that stores a word once the caller waits, and the fault that the caller finds.
fn lie<T: Transport>(
    mut tell: impl FnMut(&mut dyn Endpoints) + Send + 'static,
    is_expected: impl Fn(PeerFault) -> bool,
) {
    let mut told = false;
    let mut drive = session::<T>(move |endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            if payload == b"honest" {
                endpoints.answer(id, &payload);
            }
        }
        if !told && endpoints.counts().accepted == 2 && caller_waits_for_data(endpoints) {
            told = true;
            tell(endpoints);
        }
        Next::Again
    });
    assert_eq!(call(&mut drive, b"honest"), b"honest");
    drive.submit(b"lie").unwrap();
    let failed =
        drive.wait_for_reply(&mut Deadline::within(Duration::from_secs(30)), &mut Vec::new());
    let Err(CallFailed::Peer(fault)) = failed else { panic!("{failed:?}") };
    assert!(is_expected(fault), "{fault}");
    assert_eq!(drive.ended(), Some(CallFailed::Peer(fault)));
    assert_eq!(drive.submit(b"more"), Err(CallFailed::Peer(fault)));
    assert_eq!(drive.try_reply(&mut Vec::new()), Err(CallFailed::Peer(fault)));
}

pub(crate) fn a_tail_that_goes_back_poisons<T: Transport>() {
    lie::<T>(
        |endpoints| {
            endpoints.store(Word::Tail, 0);
            endpoints.ring();
        },
        |fault| matches!(fault, PeerFault::TailWentBack { now: 0, .. }),
    );
}

pub(crate) fn a_tail_beyond_the_lane_poisons<T: Transport>() {
    lie::<T>(
        |endpoints| {
            endpoints.store(Word::Tail, 1 << 40);
            endpoints.ring();
        },
        |fault| matches!(fault, PeerFault::TailTooFar { tail, .. } if tail == 1 << 40),
    );
}

pub(crate) fn a_misaligned_tail_poisons<T: Transport>() {
    lie::<T>(
        |endpoints| {
            endpoints.store(Word::Tail, 41);
            endpoints.ring();
        },
        |fault| fault == PeerFault::Misaligned { at: 41 },
    );
}

pub(crate) fn a_head_beyond_what_was_published_poisons<T: Transport>() {
    head_lie::<T>(1 << 40, |fault| matches!(fault, PeerFault::HeadTooFar { .. }));
}

pub(crate) fn a_head_that_goes_back_poisons<T: Transport>() {
    head_lie::<T>(0, |fault| matches!(fault, PeerFault::HeadWentBack { now: 0, .. }));
}

pub(crate) fn a_misaligned_head_poisons<T: Transport>() {
    head_lie::<T>(4096 - 8, |fault| matches!(fault, PeerFault::Misaligned { .. }));
}

/// The serving end stores a false Head while the caller waits for room.
fn head_lie<T: Transport>(head: u64, is_expected: impl Fn(PeerFault) -> bool) {
    let mut told = false;
    let mut drive = session_in::<T>(tiny(), SpinPolicy::NEVER, move |endpoints| {
        if !told && caller_waits_for_room(endpoints) {
            told = true;
            // Honest first, so that there is something to go back from.
            endpoints.store(Word::Head, 2048);
        } else if told && endpoints.load(Word::Tail) > 4096 {
            endpoints.store(Word::Head, head);
        }
        endpoints.ring();
        Next::Again
    });
    let room = drive.max_payload();
    let fault = loop {
        let failed = match drive.submit(&vec![0; room]) {
            Ok(_) => continue,
            Err(error) if full(&error) => drive.wait_for_room(&mut never()).err(),
            Err(error) => Some(error),
        };
        match failed {
            None => {}
            Some(CallFailed::Peer(fault)) => break fault,
            Some(error) => panic!("{error}"),
        }
    };
    assert!(is_expected(fault), "{fault}");
    assert_eq!(drive.ended(), Some(CallFailed::Peer(fault)));
}

/// What a serving end counted, and how often it rang.
type Books = (ServeCounts, u64);

/// Reports the counters of a serving end once it has answered this many requests.
struct Report {
    after: u64,
    tell: Option<Sender<Books>>,
}

impl Report {
    fn after(answers: u64) -> (Self, Receiver<Books>) {
        let (tell, told) = channel();
        (Self { after: answers, tell: Some(tell) }, told)
    }

    fn look(&mut self, endpoints: &dyn Endpoints) {
        if endpoints.counts().answered == self.after
            && let Some(tell) = self.tell.take()
        {
            tell.send((endpoints.counts(), endpoints.rings())).unwrap();
        }
    }
}

pub(crate) fn hot_calls_ring_nobody<T: Transport>() {
    const CALLS: u64 = 2000;
    let (mut report, told) = Report::after(CALLS);
    let mut drive = session::<T>(move |endpoints| {
        echo(endpoints);
        // Never parks.
        report.look(endpoints);
        Next::Again
    });
    let mut buffer = Vec::new();
    for call in 0..CALLS {
        let ticket = drive.submit(&call.to_le_bytes()).unwrap();
        let reply: Reply = loop {
            if let Some(reply) = drive.try_reply(&mut buffer).unwrap() {
                break reply;
            }
            drive.port().relax();
            std::thread::yield_now();
        };
        assert_eq!((reply.ticket, &buffer[..reply.len]), (ticket, &call.to_le_bytes()[..]));
    }
    let (counts, rings) = told.recv().unwrap();
    assert_eq!((counts.accepted, counts.in_flight()), (CALLS, 0));
    assert_eq!((drive.rings(), drive.parks(), rings), (0, 0, 0));
}

/// Waits until the serving end has armed its doorbell for the next record.
fn until_server_is_armed<P: Port>(drive: &CallDriver<P>) {
    let peer = |word| drive.port().peer().load(word, Ordering::Acquire);
    while peer(Word::WantData) == NOBODY {
        drive.port().relax();
        std::thread::yield_now();
    }
}

pub(crate) fn parked_ends_are_rung_once_per_message_and_direction<T: Transport>() {
    const CALLS: u64 = 200;
    let (mut report, told) = Report::after(CALLS);
    let mut held = None;
    let mut drive = session::<T>(move |endpoints| {
        if held.is_none() {
            held = endpoints.take();
        }
        let Some(Taken::Request(id, payload)) = &held else { return Next::Park };
        if !caller_waits_for_data(endpoints) {
            return Next::Again;
        }
        endpoints.answer(*id, payload);
        held = None;
        report.look(endpoints);
        Next::Park
    });
    for call_number in 0..CALLS {
        until_server_is_armed(&drive);
        let sent = call_number.to_le_bytes();
        assert_eq!(call(&mut drive, &sent), sent);
    }
    let (_, rings) = told.recv().unwrap();
    assert_rings::<T>([drive.rings(), rings], CALLS);
    assert!(drive.parks() >= CALLS || !T::SLEEPS_AT_ONCE);
}

/// Checks that each end was rung once for each of `count` messages, or saw it by itself before it slept.
fn assert_rings<T: Transport>(rings: [u64; 2], count: u64) {
    let least = if T::SLEEPS_AT_ONCE { count } else { 0 };
    assert!(rings.iter().all(|rings| (least..=count).contains(rings)), "{rings:?} of {count}");
}

pub(crate) fn a_batch_is_one_publication_and_one_ring<T: Transport>() {
    const BATCH: u64 = 50;
    let (mut report, told) = Report::after(BATCH);
    let mut taken = Vec::new();
    let mut drive = session::<T>(move |endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            taken.push((id, payload));
        }
        if (taken.len() as u64) < BATCH {
            return Next::Park;
        }
        if !caller_waits_for_data(endpoints) {
            return Next::Again;
        }
        for (id, payload) in taken.drain(..) {
            endpoints.prepare(id, &payload);
        }
        endpoints.commit();
        report.look(endpoints);
        Next::Park
    });
    until_server_is_armed(&drive);
    let tickets: Vec<_> = (0..BATCH).map(|at| drive.push(&at.to_le_bytes()).unwrap()).collect();
    assert_eq!(drive.rings(), 0, "nothing is published yet");
    drive.commit();
    for ticket in tickets {
        assert_eq!(wait(&mut drive).unwrap().0, ticket);
    }
    let (_, rings) = told.recv().unwrap();
    assert_rings::<T>([drive.rings(), rings], 1);
    assert!(drive.parks() == 1 || !T::SLEEPS_AT_ONCE);
}
