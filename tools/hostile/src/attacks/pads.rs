use bellwire_core::Word;
use bellwire_core::wire::{Header, Kind, Status};

use bellwire_hostile::wire::Target;

const SIZE: u64 = 4_096;

/// The smallest lane consists of one pad, and Tail is ahead of Head by four times the size of the largest lane.
pub(super) fn run(target: &Target) {
    target.with_lane(SIZE).repeat("echo", 100, std::thread::yield_now, |session| {
        if session.tail == 0 {
            session.write(Header::new(Kind::Pad, Status::Ok, 0, 4_080), &[]);
        }
        session.tail = session.word(Word::Head) + SIZE * (4 * (64 << 20) / SIZE + 1);
        session.publish();
    });
}
