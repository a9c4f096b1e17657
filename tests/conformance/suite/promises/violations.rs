//! Words that a peer may not store poison the session.

use std::time::Duration;

use bellwire_core::drive::CallFailed;
use bellwire_core::{Deadline, PeerFault, SpinPolicy, Word};

use super::super::endpoints::{Endpoints, Next, Taken};
use super::super::{Transport, session, session_in};
use super::{call, caller_waits_for_data, caller_waits_for_room, full, never, tiny};

/// A serving end that stores a word once the caller waits, and the fault that the caller finds.
fn violation<T: Transport>(
    mut violate: impl FnMut(&mut dyn Endpoints) + Send + 'static,
    is_expected: impl Fn(PeerFault) -> bool,
) {
    let mut has_violated = false;
    let mut driver = session::<T>(move |endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            if payload == b"honest" {
                endpoints.answer(id, &payload);
            }
        }
        if !has_violated && endpoints.counts().accepted == 2 && caller_waits_for_data(endpoints) {
            has_violated = true;
            violate(endpoints);
        }
        Next::Again
    });
    assert_eq!(call(&mut driver, b"honest"), b"honest");
    driver.submit(b"x").unwrap();
    let failed =
        driver.wait_for_reply(&mut Deadline::within(Duration::from_secs(30)), &mut Vec::new());
    let Err(CallFailed::Peer(fault)) = failed else { panic!("{failed:?}") };
    assert!(is_expected(fault), "{fault}");
    assert_eq!(driver.ended(), Some(CallFailed::Peer(fault)));
    assert_eq!(driver.submit(b"more"), Err(CallFailed::Peer(fault)));
    assert_eq!(driver.try_reply(&mut Vec::new()), Err(CallFailed::Peer(fault)));
}

pub(crate) fn a_tail_that_goes_back_poisons<T: Transport>() {
    violation::<T>(
        |endpoints| {
            endpoints.store(Word::Tail, 0);
            endpoints.ring();
        },
        |fault| matches!(fault, PeerFault::TailWentBack { now: 0, .. }),
    );
}

pub(crate) fn a_tail_beyond_the_lane_poisons<T: Transport>() {
    violation::<T>(
        |endpoints| {
            endpoints.store(Word::Tail, 1 << 40);
            endpoints.ring();
        },
        |fault| matches!(fault, PeerFault::TailTooFar { tail, .. } if tail == 1 << 40),
    );
}

pub(crate) fn a_misaligned_tail_poisons<T: Transport>() {
    violation::<T>(
        |endpoints| {
            endpoints.store(Word::Tail, 41);
            endpoints.ring();
        },
        |fault| fault == PeerFault::Misaligned { at: 41 },
    );
}

pub(crate) fn a_head_beyond_the_published_tail_poisons<T: Transport>() {
    wrong_head::<T>(1 << 40, |fault| matches!(fault, PeerFault::HeadTooFar { .. }));
}

pub(crate) fn a_head_that_goes_back_poisons<T: Transport>() {
    wrong_head::<T>(0, |fault| matches!(fault, PeerFault::HeadWentBack { now: 0, .. }));
}

pub(crate) fn a_misaligned_head_poisons<T: Transport>() {
    wrong_head::<T>(4096 - 8, |fault| matches!(fault, PeerFault::Misaligned { .. }));
}

/// The serving end stores a false Head while the caller waits for room.
fn wrong_head<T: Transport>(head: u64, is_expected: impl Fn(PeerFault) -> bool) {
    let mut has_violated = false;
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, move |endpoints| {
        if !has_violated && caller_waits_for_room(endpoints) {
            has_violated = true;
            // Honest first, so that there is something to go back from.
            endpoints.store(Word::Head, 2048);
        } else if has_violated && endpoints.load(Word::Tail) > 4096 {
            endpoints.store(Word::Head, head);
        }
        endpoints.ring();
        Next::Again
    });
    let room = driver.end().lanes().max_payload();
    let fault = loop {
        let failed = match driver.submit(&vec![0; room]) {
            Ok(_) => continue,
            Err(error) if full(&error) => driver.wait_for_room(&mut never()).err(),
            Err(error) => Some(error),
        };
        match failed {
            None => {}
            Some(CallFailed::Peer(fault)) => break fault,
            Some(error) => panic!("{error}"),
        }
    };
    assert!(is_expected(fault), "{fault}");
    assert_eq!(driver.ended(), Some(CallFailed::Peer(fault)));
}
