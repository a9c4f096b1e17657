use bellwire_core::wire::{Header, Kind, Status};

use bellwire_hostile::wire::{Target, rest};

/// The length of one part: the maximum for the lane.
const PART: usize = 8_144;
/// The parts of a message of the maximum length, without the last one.
const PARTS: u64 = (64 << 20) / PART as u64 - 1;

/// Each session sends all parts of a message except the last.
pub(super) fn parts(target: &Target) {
    let part = Header::new(Kind::Request, Status::Ok, 1, 0).part(8_144, true);
    target.repeat("echo", 64, rest, |session| {
        // It counts parts: all are of one request.
        if session.id < PARTS && session.put(part, &[7; PART]) {
            session.id += 1;
            session.publish();
        }
    });
}
