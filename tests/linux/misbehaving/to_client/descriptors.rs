//! Memory that a server passes during a session. The client reports its fault.

use std::os::fd::OwnedFd;

use bellwire_core::Geometry;
use bellwire_core::lane::Epoch;
use rustix::fs::SealFlags;
use zerocopy::IntoBytes;

use super::is_found;
use crate::misbehaving::impostor;
use crate::misbehaving::passing::Passing;
use crate::misbehaving::passing::why::*;
use crate::support::memory::SEALS;

passings!();

pub(super) fn rows() -> Vec<&'static str> {
    let impostors = [instead_of_a_lane::ROWS, instead_of_a_message::ROWS].concat();
    [lane::ROWS, message::ROWS, &impostors].concat()
}

#[track_caller]
fn lane_is_refused(why: &str, alter: impl FnOnce(&mut Passing)) {
    is_refused(why, Passing::lane(), alter);
}

#[track_caller]
fn message_is_refused(why: &str, alter: impl FnOnce(&mut Passing)) {
    is_refused(why, Passing::message(), alter);
}

#[track_caller]
fn is_no_lane(make: fn() -> OwnedFd, why: &str) {
    is_refused(why, Passing::lane(), |passing| passing.other = Some(make()));
}

#[track_caller]
fn is_no_message(make: fn() -> OwnedFd, why: &str) {
    is_refused(why, Passing::message(), |passing| passing.other = Some(make()));
}

#[track_caller]
fn is_refused(why: &str, mut passing: Passing, alter: impl FnOnce(&mut Passing)) {
    alter(&mut passing);
    is_found(why, |rogue| passing.tell(rogue));
}
