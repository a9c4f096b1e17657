use bellwire_core::wire::{Header, Kind, Status};

use crate::wire::{Target, rest};

/// The length of one part: the maximum for the lane.
const PART: usize = 8_144;
/// The parts of a message of the maximum length, without the last one.
const PARTS: usize = (64 << 20) / PART - 1;

/// Each session sends all parts of a message except the last.
pub(super) fn parts(target: &Target) {
    let mut sessions = target.sessions("echo", 64);
    let mut sent = vec![0; sessions.len()];
    let part = Header::new(Kind::Request, Status::Ok, 1, 0).part(8_144, true);
    loop {
        for (session, sent) in sessions.iter_mut().zip(&mut sent) {
            if *sent < PARTS && session.put(part, &[7; PART]) {
                *sent += 1;
                session.publish();
            }
        }
        if sessions.iter().all(crate::wire::Session::is_closed) {
            sessions = target.sessions("echo", 64);
            sent = vec![0; sessions.len()];
            rest();
        }
    }
}
