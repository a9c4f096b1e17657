//! Memory that a client passes during a session. The server closes it, whatever its fault.

use std::os::fd::OwnedFd;

use bellwire_core::lane::Epoch;
use bellwire_core::{Geometry, Word};
use rustix::fs::SealFlags;
use zerocopy::IntoBytes;

use super::{poisons, request};
use crate::misbehaving::impostor;
use crate::misbehaving::passing::Passing;
use crate::misbehaving::passing::why::*;
use crate::support::memory::SEALS;
use crate::support::rogue::Rogue;
use crate::support::test_server::TestServer;

passings!();

pub(super) fn rows() -> Vec<&'static str> {
    let impostors = [instead_of_a_lane::ROWS, instead_of_a_message::ROWS].concat();
    [lane::ROWS, message::ROWS, &impostors].concat()
}

#[track_caller]
fn lane_is_refused(_why: &str, alter: impl FnOnce(&mut Passing)) {
    is_refused(Passing::lane(), alter);
}

#[track_caller]
fn message_is_refused(_why: &str, alter: impl FnOnce(&mut Passing)) {
    is_refused(Passing::message(), alter);
}

#[track_caller]
fn is_no_lane(make: fn() -> OwnedFd, _why: &str) {
    is_refused(Passing::lane(), |passing| passing.other = Some(make()));
}

#[track_caller]
fn is_no_message(make: fn() -> OwnedFd, _why: &str) {
    is_refused(Passing::message(), |passing| passing.other = Some(make()));
}

#[track_caller]
fn is_refused(mut passing: Passing, alter: impl FnOnce(&mut Passing)) {
    alter(&mut passing);
    poisons(|rogue| passing.tell(rogue));
}

#[test]
fn an_honest_lane_or_message_of_the_same_making_is_taken() {
    // Otherwise the other tests would prove nothing.
    let first = request(2, 0);
    let mut lane = Passing::lane();
    lane.memory.bytes = first.as_bytes().to_vec();
    for (passing, answered) in [(lane, 16), (Passing::message(), 16 + 5008)] {
        let fixture = TestServer::open();
        let mut rogue = Rogue::connect(fixture.run_dir(), "echo").open();
        passing.tell(&mut rogue);
        rogue.sees(Word::Tail, answered);
        drop(rogue);
        let stats = fixture.close();
        assert_eq!((stats.poisoned, stats.answered), (0, 1));
    }
}
