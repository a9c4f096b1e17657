use std::time::{Duration, Instant};

use bellwire_core::Word;

use bellwire_hostile::wire::{Target, rest};

const LARGE: [u8; 8_000] = [7; 8_000];

/// Sends as many requests as the server accepts, in many sessions.
pub(super) fn flood(target: &Target) {
    target.repeat("echo", 64, std::thread::yield_now, |session| {
        while session.request(&LARGE) {}
        session.publish();
        session.consume();
    });
}

/// Fills a large lane with requests, closes the session when the server has consumed them or after 20 ms, and reconnects.
pub(super) fn abandoned(target: &Target) {
    let target = target.with_lane(8 << 20);
    loop {
        let Some(mut session) = target.open("echo") else { continue };
        while session.request(&LARGE) {}
        session.publish();
        let until = Instant::now() + Duration::from_millis(20);
        while session.word(Word::Head) < session.tail && Instant::now() < until {
            rest();
        }
    }
}
