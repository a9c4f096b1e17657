//! Memory that a client passes during a session. The server closes it, whatever its fault.

use std::os::fd::OwnedFd;

use bellwire_core::Geometry;
use bellwire_core::lane::Epoch;
use rustix::fs::SealFlags;

use super::poisons;
use crate::lies::impostor;
use crate::lies::passing::Passing;
use crate::lies::passing::why::*;
use crate::support::memory::SEALS;

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
