//! What a caller finds when its peer closes or goes.

use bellwire_core::drive::CallFailed;
use bellwire_core::wire::CloseReason;
use bellwire_core::{Executed, SpinPolicy, Word};

use super::super::endpoints::{Next, Taken};
use super::super::{Transport, session, session_in};
use super::{call, caller_waits_for_data, caller_waits_for_room, fill, never, tiny, wait};

pub(crate) fn a_close_ends_a_wait_for_data<T: Transport>() {
    let mut said = false;
    let mut driver = session::<T>(move |endpoints| {
        while endpoints.take().is_some() {}
        if !said && caller_waits_for_data(endpoints) {
            said = true;
            endpoints.close();
        }
        Next::Again
    });
    driver.submit(b"in vain").unwrap();
    assert_eq!(wait(&mut driver), Err(CallFailed::Closed(CloseReason::Normal, Executed::Maybe)));
    assert_eq!(driver.ended(), Some(CallFailed::Closed(CloseReason::Normal, Executed::No)));
    assert_eq!(driver.submit(b"more"), Err(CallFailed::Closed(CloseReason::Normal, Executed::No)));
}

pub(crate) fn a_close_ends_a_wait_for_room<T: Transport>() {
    let mut said = false;
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, move |endpoints| {
        if !said && caller_waits_for_room(endpoints) {
            said = true;
            endpoints.close();
        }
        Next::Again
    });
    fill(&mut driver, &[0; 100]);
    // It reports that something came: the Close record, which is read with the answers.
    match driver.wait_for_room(&mut never()) {
        Ok(()) => assert_eq!(driver.try_reply(&mut Vec::new()), Ok(None)),
        Err(error) => assert_eq!(error, CallFailed::PeerGone(Executed::No)),
    }
    assert_eq!(driver.ended(), Some(CallFailed::Closed(CloseReason::Normal, Executed::No)));
}

pub(crate) fn records_published_before_the_close_are_read<T: Transport>() {
    let mut driver = session::<T>(|endpoints| {
        while let Some(Taken::Request(id, payload)) = endpoints.take() {
            endpoints.answer(id, &payload);
            if payload == b"last" {
                endpoints.close();
            }
        }
        Next::Park
    });
    let first = driver.submit(b"first").unwrap();
    let last = driver.submit(b"last").unwrap();
    assert_eq!(wait(&mut driver).unwrap().0, first);
    assert_eq!(wait(&mut driver).unwrap().0, last);
    assert_eq!(wait(&mut driver), Err(CallFailed::Closed(CloseReason::Normal, Executed::Maybe)));
    assert_eq!(driver.end().closed(), Some(CloseReason::Normal));
}

pub(crate) fn a_peer_that_leaves_ends_a_wait_for_data<T: Transport>() {
    let mut driver = session::<T>(|endpoints| {
        while endpoints.take().is_some() {}
        if caller_waits_for_data(endpoints) { Next::Vanish } else { Next::Again }
    });
    driver.submit(b"in vain").unwrap();
    assert_eq!(wait(&mut driver), Err(CallFailed::PeerGone(Executed::Maybe)));
    assert_eq!(driver.submit(b"more"), Err(CallFailed::PeerGone(Executed::No)));
    assert_eq!(driver.end().closed(), None, "it did not say close");
}

pub(crate) fn a_peer_that_leaves_ends_a_wait_for_room<T: Transport>() {
    let mut driver = session_in::<T>(tiny(), SpinPolicy::NEVER, |endpoints| {
        if caller_waits_for_room(endpoints) { Next::Vanish } else { Next::Again }
    });
    fill(&mut driver, &[0; 100]);
    let gone = driver.wait_for_room(&mut never());
    assert_eq!(gone, Err(CallFailed::PeerGone(Executed::No)));
    assert_eq!(driver.submit(b"more"), Err(CallFailed::PeerGone(Executed::No)));
}

pub(crate) fn records_published_before_the_end_are_read<T: Transport>() {
    let mut driver = session::<T>(|endpoints| match endpoints.take() {
        Some(Taken::Request(id, payload)) => {
            endpoints.answer(id, &payload);
            Next::Vanish
        }
        _ => Next::Park,
    });
    assert_eq!(call(&mut driver, b"the last thing"), b"the last thing");
    assert_eq!(wait(&mut driver), Err(CallFailed::PeerGone(Executed::Maybe)));
}

pub(crate) fn a_request_that_was_taken_may_have_run<T: Transport>() {
    let mut driver = session::<T>(|endpoints| match endpoints.take() {
        Some(_) => Next::Vanish,
        None => Next::Park,
    });
    let taken = driver.submit(b"taken").unwrap();
    assert_eq!(wait(&mut driver), Err(CallFailed::PeerGone(Executed::Maybe)));
    assert_eq!(driver.executed(taken), Executed::Maybe);
}

pub(crate) fn a_request_that_was_not_taken_has_not_run<T: Transport>() {
    let mut driver = session::<T>(|endpoints| {
        // Not before both are published.
        if endpoints.load(Word::Tail) < 64 {
            return Next::Again;
        }
        endpoints.take().expect("the first of two");
        Next::Vanish
    });
    let taken = driver.submit(b"taken").unwrap();
    let left = driver.submit(b"left").unwrap();
    assert!(wait(&mut driver).is_err());
    assert_eq!(driver.executed(taken), Executed::Maybe);
    assert_eq!(driver.executed(left), Executed::No);
}
