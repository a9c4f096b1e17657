//! What a session promises on any transport: one generic suite.
//!
//! Nothing here knows a transport: the tests of each crate that has one include this folder, implement
//! [`Transport`], and name it in one line of [`conformance`].

pub(crate) mod endpoints;
pub(crate) mod promises;

use std::time::{Duration, Instant};

use bellwire_core::drive::CallDriver;
use bellwire_core::lane::Lanes;
use bellwire_core::{Geometry, Port, SpinPolicy};

use endpoints::{Endpoints, Next, Script};

/// How to connect the two ends of a session, and what the suite cannot do through a [`Port`].
pub(crate) trait Transport {
    type Port: Port;

    /// Whether an end that armed its doorbell sleeps before the other one does anything else. With two threads, it
    /// may see by itself what comes in that moment, and is then not rung.
    const SLEEPS_WITHOUT_SPINNING: bool = false;

    /// Opens a session whose serving end follows `script`.
    fn connect(lane: Geometry, script: Box<Script>) -> (Self::Port, Lanes);

    /// Cancels from another thread once the calling thread is parked.
    fn cancel_when_parked(port: &Self::Port);

    /// Spends a cancellation.
    fn take_cancel(port: &Self::Port);
}

/// A calling end that never spins, and a serving end that follows `script`.
fn session<T: Transport>(
    script: impl FnMut(&mut dyn Endpoints) -> Next + Send + 'static,
) -> CallDriver<T::Port> {
    session_in::<T>(Geometry::DEFAULT, SpinPolicy::NEVER, script)
}

fn session_in<T: Transport>(
    lane: Geometry,
    spin: SpinPolicy,
    script: impl FnMut(&mut dyn Endpoints) -> Next + Send + 'static,
) -> CallDriver<T::Port> {
    let (port, lanes) = T::connect(lane, Box::new(script));
    CallDriver::new(port, lanes, spin)
}

/// Polls until it is true, where no event signals it. A test that reaches the limit hangs.
#[track_caller]
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

/// Makes every promise of the suite a test of each transport: `name: Type;`, as seen from a module of that name.
macro_rules! conformance {
    ($($name:ident: $transport:ty;)*) => {$(
        mod $name {
            use super::suite::promises;

            type Transport = $transport;

            super::suite::each_promise!();
        }
    )*};
}

macro_rules! promise {
    ($($promise:ident,)*) => {$(
        #[test]
        fn $promise() {
            promises::$promise::<Transport>();
        }
    )*};
}

macro_rules! each_promise {
    () => {
        super::suite::promise! {
            messages_of_every_size_round_trip,
            one_byte_more_than_the_largest_is_refused_and_the_session_stays_open,
            a_lane_wraps_many_times,
            answers_out_of_order_find_their_requests,
            an_answer_that_no_longer_fits_waits_for_room,
            a_full_lane_has_room_again,
            an_end_that_only_polls_gets_and_returns_room,
            an_end_that_only_polls_returns_the_room_of_a_pad,
            a_wait_ends_at_its_deadline_and_the_answer_still_arrives,
            a_wait_for_room_ends_at_its_deadline,
            another_thread_cancels_a_parked_wait,
            an_abandoned_request_is_cancelled_and_its_answer_dropped,
            a_close_ends_a_wait_for_data,
            a_close_ends_a_wait_for_room,
            records_published_before_the_close_are_read,
            a_peer_that_leaves_ends_a_wait_for_data,
            a_peer_that_leaves_ends_a_wait_for_room,
            records_published_before_the_end_are_read,
            a_request_that_was_taken_may_have_run,
            a_request_that_was_not_taken_has_not_run,
            a_tail_that_goes_back_poisons,
            a_tail_beyond_the_lane_poisons,
            a_misaligned_tail_poisons,
            a_head_beyond_the_published_tail_poisons,
            a_head_that_goes_back_poisons,
            a_misaligned_head_poisons,
            hot_calls_do_not_ring,
            parked_ends_are_rung_once_per_message_and_direction,
            a_batch_is_one_publication_and_one_ring,
        }
    };
}

pub(crate) use {conformance, each_promise, promise};
