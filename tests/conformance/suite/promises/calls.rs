//! Calls of any size and order, full lanes, deadlines and cancellation.

use std::time::Duration;

use bellwire_core::call::{SubmitError, Ticket};
use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::PushError;
use bellwire_core::sync::Ordering;
use bellwire_core::{Deadline, Executed, LimitOwner, PeerMemory, Port, SpinPolicy, Word};

use super::super::endpoints::{Next, Taken};
use super::super::{Transport, session, session_in, until};
use super::{
    NOBODY, SHORT, call, caller_waits_for_room, echo, fill, full, never, payload, swallow, tiny,
    wait,
};

fn submit_or_wait_for_room<P: Port>(driver: &mut CallDriver<P>, payload: &[u8]) -> Ticket {
    loop {
        match driver.submit(payload) {
            Ok(ticket) => return ticket,
            Err(error) => assert!(full(&error), "{error}"),
        }
        driver.wait_for_room(&mut never()).unwrap();
    }
}

pub(crate) fn messages_of_every_size_round_trip<T: Transport>() {
    let mut driver = session::<T>(echo);
    let max = driver.end().lanes().max_payload();
    let boundaries = [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 4079, 4080, 4081, max - 17, max - 16];
    for len in boundaries.into_iter().chain((0..max).step_by(97)).chain([max - 1, max, 0, max]) {
        let sent = payload(len, len);
        assert!(call(&mut driver, &sent) == sent, "{len} bytes");
    }
}

pub(crate) fn one_byte_more_than_the_largest_is_refused_and_the_session_stays_open<T: Transport>() {
    let mut driver = session::<T>(echo);
    let limit = driver.end().lanes().max_payload();
    let owner = LimitOwner::Own;
    let (len, limit) = (limit as u64 + 1, limit as u64);
    let too_large = PushError::TooLarge { len, limit, owner };
    let too_large = CallFailed::Submit(SubmitError::Push(too_large));
    assert_eq!(driver.submit(&vec![0; len as usize]), Err(too_large));
    assert_eq!(driver.in_flight(), 0);
    assert_eq!(call(&mut driver, b"still here"), b"still here");
}

pub(crate) fn a_lane_wraps_many_times<T: Transport>() {
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, echo);
    // Coprime with the lane's size in records: each position is a record's start at some time.
    for round in 0..600 {
        let sent = payload(round, round * 211 % 1800);
        assert!(call(&mut driver, &sent) == sent, "round {round}");
    }
}

pub(crate) fn answers_out_of_order_find_their_requests<T: Transport>() {
    const DEPTH: usize = 32;
    let mut waiting = Vec::new();
    let mut driver = session::<T>(move |endpoints| {
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
                (driver.submit(&payload).unwrap(), payload)
            })
            .collect();
        assert_eq!(driver.in_flight(), DEPTH);
        let mut came: Vec<_> = (0..DEPTH).map(|_| wait(&mut driver).unwrap()).collect();
        assert_ne!(came, sent, "they came in another order");
        came.sort();
        assert!(came == sent);
        assert_eq!(driver.in_flight(), 0);
    }
}

pub(crate) fn an_answer_that_no_longer_fits_waits_for_room<T: Transport>() {
    // Small requests, answers of half a lane: each but the first finds the lane full.
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, |endpoints| {
        if !endpoints.flush() {
            return Next::Park;
        }
        while let Some(taken) = endpoints.take() {
            let Taken::Request(id, request) = taken else { panic!("{taken:?}") };
            endpoints.answer(id, &payload(usize::from(request[0]), 1900));
        }
        Next::Park
    });
    let tickets: Vec<_> = (0..20).map(|at| driver.submit(&[at]).unwrap()).collect();
    for (at, ticket) in tickets.into_iter().enumerate() {
        let (answered, answer) = wait(&mut driver).unwrap();
        assert_eq!(answered, ticket);
        assert!(answer == payload(at, 1900), "answer {at}");
    }
}

pub(crate) fn a_full_lane_has_room_again<T: Transport>() {
    let mut served = false;
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, move |endpoints| {
        // Does nothing until the caller parks for room.
        served |= caller_waits_for_room(endpoints);
        if served { echo(endpoints) } else { Next::Again }
    });
    let mut tickets = fill(&mut driver, &[7; 100]);
    assert!(tickets.len() > 20, "{}", tickets.len());
    for _ in 0..5 {
        tickets.push(submit_or_wait_for_room(&mut driver, &[7; 100]));
    }
    for ticket in tickets {
        assert_eq!(wait(&mut driver).unwrap(), (ticket, vec![7; 100]));
    }
}

pub(crate) fn an_end_that_only_polls_gets_and_returns_room<T: Transport>() {
    // The serving end parks when its lane is full; the calling end never waits, and never arms.
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, echo);
    let (mut buffer, mut random) = (Vec::new(), 1_usize);
    for round in 0..300 {
        let mut sent = Vec::new();
        for _ in 0..6 {
            // Many of them so large that the rest of the lane is a pad.
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let len =
                driver.end().lanes().max_payload() - (random >> 40) % [2000, 1000, 17][round % 3];
            let payload = payload(round, len);
            until("there is room", || {
                let polled = driver.submit(&payload);
                sent.extend(polled.map(|ticket| (ticket, payload.clone())));
                driver.port().relax();
                polled.is_ok() || {
                    take_answers(&mut driver, &mut sent, &mut buffer);
                    false
                }
            });
        }
        until("all are answered", || {
            driver.port().relax();
            take_answers(&mut driver, &mut sent, &mut buffer);
            sent.is_empty()
        });
    }
    assert_eq!(driver.parks(), 0);
}

/// Takes the answers that are there, which come in the order of their requests.
fn take_answers<P: Port>(
    driver: &mut CallDriver<P>,
    sent: &mut Vec<(Ticket, Vec<u8>)>,
    buffer: &mut Vec<u8>,
) {
    while let Some(reply) = driver.try_reply(buffer).unwrap() {
        let (ticket, payload) = sent.remove(0);
        assert_eq!(reply.ticket, ticket);
        assert!(buffer[..reply.len] == payload);
    }
}

pub(crate) fn an_end_that_only_polls_returns_the_room_of_a_pad<T: Transport>() {
    // Answers are as long as their requests ask for.
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, |endpoints| {
        if !endpoints.flush() {
            return Next::Park;
        }
        while let Some(Taken::Request(id, request)) = endpoints.take() {
            let len = u16::from_le_bytes(request.try_into().unwrap());
            endpoints.answer(id, &payload(0, len.into()));
        }
        Next::Park
    });
    let poll = |driver: &mut CallDriver<T::Port>, len| {
        let mut reply = None;
        until("the answer comes", || {
            driver.port().relax();
            reply = driver.try_reply(&mut Vec::new()).unwrap();
            reply.is_some()
        });
        assert_eq!(reply.map(|reply| reply.len), Some(len));
    };
    let ask =
        |driver: &mut CallDriver<T::Port>, len: u16| driver.submit(&len.to_le_bytes()).unwrap();
    // Half the lane, whose room is then freed; then a little, which leaves less than half to the end.
    ask(&mut driver, 2000);
    poll(&mut driver, 2000);
    ask(&mut driver, 496);
    // The third is behind a pad, and waits for the room of the second: far less than a quarter of the lane.
    ask(&mut driver, 2000);
    until("the serving end waits for room", || {
        driver.port().relax();
        driver.port().peer().load(Word::WantSpace, Ordering::Acquire) != NOBODY
    });
    poll(&mut driver, 496);
    poll(&mut driver, 2000);
}

pub(crate) fn a_wait_ends_at_its_deadline_and_the_answer_still_arrives<T: Transport>() {
    let mut held = None;
    let mut driver = session::<T>(move |endpoints| {
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
        let first = driver.submit(b"first").unwrap();
        let began = driver.port().now();
        let failed = driver.wait_for_reply(&mut Deadline::within(span), &mut Vec::new());
        assert_eq!(failed, Err(CallFailed::Deadline(Executed::Maybe)));
        assert!(driver.port().now() >= began.after(span));
        assert_eq!(driver.in_flight(), 1);
        let second = driver.submit(b"second").unwrap();
        assert_eq!(wait(&mut driver).unwrap(), (first, b"first".to_vec()));
        assert_eq!(wait(&mut driver).unwrap(), (second, b"second".to_vec()));
    }
}

pub(crate) fn a_wait_for_room_ends_at_its_deadline<T: Transport>() {
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, |_| Next::Park);
    fill(&mut driver, &[0; 100]);
    let began = driver.port().now();
    let failed = driver.wait_for_room(&mut Deadline::within(SHORT));
    assert_eq!(failed, Err(CallFailed::Deadline(Executed::No)));
    assert!(driver.port().now() >= began.after(SHORT));
    assert!(driver.ended().is_none());
}

pub(crate) fn another_thread_cancels_a_parked_wait<T: Transport>() {
    let mut driver = session::<T>(swallow);
    let ticket = driver.submit(b"for nobody").unwrap();
    T::cancel_when_parked(driver.port());
    let failed = driver.wait_for_reply(&mut never(), &mut Vec::new());
    assert_eq!(failed, Err(CallFailed::Cancelled(Executed::Maybe)));
    T::take_cancel(driver.port());
    assert!(driver.abandon(ticket));
    let ends = driver.wait_for_reply(&mut Deadline::within(SHORT), &mut Vec::new());
    assert_eq!(ends, Err(CallFailed::Deadline(Executed::Maybe)), "it was cancelled once");
}

pub(crate) fn an_abandoned_request_is_cancelled_and_its_answer_dropped<T: Transport>() {
    let mut first = None;
    let mut driver = session::<T>(move |endpoints| {
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
    let unwanted = driver.submit(b"unwanted").unwrap();
    assert!(driver.abandon(unwanted));
    assert!(!driver.abandon(unwanted), "it is not in flight any more");
    assert_eq!(driver.in_flight(), 0);
    assert_eq!(call(&mut driver, b"wanted"), b"wanted");
}
