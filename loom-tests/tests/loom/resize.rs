//! Lanes that switch to other memory while their peer reads, sends or goes away. One epoch may be outstanding here,
//! and one message in memory of its own.

use bellwire_core::call::{SubmitError, Ticket};
use bellwire_core::drive::CallFailed;
use bellwire_core::lane::PushError;
use bellwire_core::resize::ResizeError;
use bellwire_core::wire::CloseReason;
use bellwire_core::{Executed, Geometry};
use bellwire_loom_tests::{Client, Session, Sleep, check, check_both};
use loom::thread;

/// A payload that needs a lane of 256 bytes, and one of 512.
const LARGE: usize = 32;
const HUGE: usize = 96;

fn grow(client: &mut Client, to: u32) -> Result<(), ResizeError> {
    client.driver().end_mut().grow(Geometry::tiny(to))
}

fn shrink(client: &mut Client) -> Result<(), ResizeError> {
    client.driver().end_mut().shrink()
}

/// Unbounded; 1 record in 128 bytes, 1 in 256, one commit each; no end parks.
#[test]
fn a_record_around_a_switch_is_seen_whole_or_not_at_all() {
    check(None, || {
        let (mut client, mut server) = Session::resizing([128, 128, 512], Sleep::Futex);
        let thread = thread::spawn(move || {
            client.send(16);
            client.send(LARGE);
            assert_eq!(client.epoch(), 2);
        });
        let mut requests = server.polls(2);
        thread.join().unwrap();
        requests.extend(server.polls(3));
        assert_eq!(requests, [(1, 16), (2, LARGE)]);
    });
}

/// Preemption bound 3; 1 record, then 1 that grows the lane; the server parks for each.
#[test]
fn a_switch_ends_a_wait_for_data() {
    check_both(Some(3), |sleep| {
        let (mut client, mut server) = Session::resizing([128, 128, 512], sleep);
        let thread = thread::spawn(move || {
            client.send(0);
            client.send(LARGE);
        });
        server.receives(1..=2);
        thread.join().unwrap();
    });
}

/// Unbounded; a full lane of 128 bytes (3 records of 32) grows while it is read: nothing of it is written again.
#[test]
fn a_lane_that_was_left_is_read_to_its_end() {
    check(None, || {
        let (mut client, mut server) = Session::resizing([128, 128, 512], Sleep::Futex);
        let sent = client.fill(16);
        let thread = thread::spawn(move || {
            client.send(LARGE);
            client.send(16);
        });
        server.takes(1..=sent);
        thread.join().unwrap();
        server.takes(sent + 1..=sent + 2);
    });
}

/// Preemption bound 3; both lanes are full (3 records of 32 in 128 bytes), both ends need a larger one, and neither
/// has read: no end waits to send, and all arrives.
#[test]
fn two_full_lanes_grow_at_once() {
    check_both(Some(3), |sleep| {
        let (mut client, mut server) = Session::resizing([128, 128, 512], sleep);
        client.publish(4, 0);
        server.takes(1..=4);
        (1..=3).for_each(|id| server.respond(id, 16));
        server.commit();
        let sent = client.fill(16);
        let thread = thread::spawn(move || {
            server.respond(4, LARGE);
            server.commit();
            server.receives(5..=sent + 1);
        });
        client.send(LARGE);
        client.waits(1..=3, 16);
        client.waits(4..=4, LARGE);
        thread.join().unwrap();
    });
}

/// Preemption bound 2; both ends need two epochs more, one of which meets the bound: each waits for the other to
/// follow, and the client takes what comes meanwhile.
#[test]
fn two_ends_that_wait_for_each_other_to_follow_do_not_deadlock() {
    check_both(Some(2), |sleep| {
        let (mut client, mut server) = Session::resizing([128, 128, 512], sleep);
        client.publish(2, 0);
        server.takes(1..=2);
        let thread = thread::spawn(move || {
            server.respond(1, LARGE);
            server.commit();
            server.respond(2, HUGE);
            server.receives(3..=4);
        });
        client.send(LARGE);
        client.send(HUGE);
        client.waits(1..=1, LARGE);
        client.waits(2..=2, HUGE);
        thread.join().unwrap();
    });
}

/// Unbounded; the one epoch that may be outstanding is, with a record in it or none: the client that needs the next one
/// parks for space, and is woken by a server that follows and never parks itself.
#[test]
fn a_wait_for_an_epoch_ends_when_the_other_is_followed() {
    for requests in [0, 1] {
        check_both(None, move |sleep| {
            let (mut client, mut server) = Session::resizing([128, 128, 512], sleep);
            grow(&mut client, 256).unwrap();
            let sent = client.publish(requests, LARGE);
            let full = ResizeError::Push(PushError::Full { missing: 16 });
            assert_eq!(grow(&mut client, 512), Err(full));
            let thread = thread::spawn(move || client.send(HUGE));
            server.takes(1..=sent);
            let early = server.take();
            thread.join().unwrap();
            assert_eq!(early.or_else(|| server.take()), Some((sent + 1, HUGE)));
        });
    }
}

fn attach(client: &mut Client) -> Result<Ticket, CallFailed> {
    client.driver().submit_attached(1, false, |_, _| Ok(()))
}

/// Unbounded; the same for a message in memory of its own, behind another record, in a lane of 512 bytes that has a
/// quarter to check.
#[test]
fn a_wait_for_an_attachment_to_be_taken_ends() {
    check_both(None, |sleep| {
        let (mut client, mut server) = Session::open(512, sleep);
        client.send(0);
        attach(&mut client).unwrap();
        let full = SubmitError::Push(PushError::Full { missing: 32 });
        assert_eq!(attach(&mut client), Err(CallFailed::Submit(full)));
        let thread = thread::spawn(move || client.until_sent(attach).unwrap().id());
        server.takes(1..=2);
        assert_eq!(thread.join().unwrap(), 3);
        server.takes(3..=3);
    });
}

/// The lane switches with a record in it, and is full of `requests` records of `len` bytes in its next size before the
/// server has followed.
fn full_after_a_switch(
    lanes: [u32; 3],
    switch: fn(&mut Client) -> Result<(), ResizeError>,
    requests: u64,
    len: usize,
) {
    check_both(Some(3), move |sleep| {
        let (mut client, mut server) = Session::resizing(lanes, sleep);
        client.push(0).unwrap();
        switch(&mut client).unwrap();
        let sent = client.publish(requests, len);
        let thread = thread::spawn(move || client.send(len));
        server.takes(1..=sent);
        thread.join().unwrap();
        server.takes(sent + 1..=sent + 1);
    });
}

/// Preemption bound 3; from 1024 bytes to 128: a look each quarter of the old lane would come too late.
#[test]
fn a_wait_for_room_in_a_smaller_lane_ends() {
    full_after_a_switch([1024, 128, 1024], shrink, 3, 16);
}

/// Preemption bound 3; from 128 bytes to 256.
#[test]
fn a_wait_for_room_in_a_larger_lane_ends() {
    full_after_a_switch([128, 128, 256], |client| grow(client, 256), 2, 80);
}

/// Unbounded; a lane of 256 bytes shrinks to 128 while it is read.
#[test]
fn a_lane_shrinks_while_it_is_read() {
    check(None, || {
        let (mut client, mut server) = Session::resizing([256, 128, 256], Sleep::Futex);
        client.send(80);
        let thread = thread::spawn(move || {
            client.push(16).unwrap();
            shrink(&mut client).unwrap();
            client.send(16);
            assert_eq!(client.epoch(), 2);
        });
        server.takes(1..=1);
        let mut requests = server.polls(2);
        thread.join().unwrap();
        requests.extend(server.polls(2));
        assert_eq!(requests, [(2, 16), (3, 16)]);
    });
}

/// Unbounded; an answer that grows the lane, then the Close record, against a peer that parks: both are read.
#[test]
fn a_close_right_after_a_switch_is_seen() {
    check_both(None, |sleep| {
        let (mut client, mut server) = Session::resizing([128, 128, 256], sleep);
        client.send(0);
        server.takes(1..=1);
        let thread = thread::spawn(move || {
            server.respond(1, LARGE);
            server.close();
        });
        client.waits(1..=1, LARGE);
        let closed = CallFailed::Closed(CloseReason::Normal, Executed::Maybe);
        assert_eq!(client.wait(), Err(closed));
        thread.join().unwrap();
    });
}

/// Unbounded; one end closes the lane while the other grows, and parks for an epoch that will not be followed: the
/// Close record wakes it.
#[test]
fn a_close_ends_a_wait_for_an_epoch() {
    check_both(None, |sleep| {
        let (mut client, mut server) = Session::resizing([128, 128, 512], sleep);
        client.send(LARGE);
        let thread = thread::spawn(move || server.close());
        let closed = CallFailed::Closed(CloseReason::Normal, Executed::No);
        assert_eq!(client.until_sent(|client| client.push(HUGE)), Err(closed));
        thread.join().unwrap();
    });
}

/// Preemption bound 3; a call whose request and whose answer each need a larger lane; both ends park.
#[test]
fn a_call_that_grows_both_lanes_returns() {
    check_both(Some(3), |sleep| {
        let (mut client, mut server) = Session::resizing([128, 128, 256], sleep);
        let thread = thread::spawn(move || server.serve(1, LARGE));
        client.send(LARGE);
        client.waits(1..=1, LARGE);
        thread.join().unwrap();
    });
}
