use bellwire_core::Word;
use bellwire_core::wire::{Header, Kind, Status};

use crate::wire::Target;

const SIZE: u64 = 4_096;

/// The smallest lane consists of one pad, and Tail is ahead of Head by four times the size of the largest lane.
pub(super) fn run(target: &Target) {
    let target = target.with_lane(SIZE);
    let mut sessions = target.sessions("echo", 100);
    loop {
        for session in &mut sessions {
            if session.tail == 0 {
                session.write(Header::new(Kind::Pad, Status::Ok, 0, 4_080), &[]);
            }
            session.tail = session.word(Word::Head) + SIZE * (4 * (64 << 20) / SIZE + 1);
            session.publish();
        }
        target.reopen("echo", &mut sessions);
        std::thread::yield_now();
    }
}
