use std::time::{Duration, Instant};

use bellwire_core::Word;

use crate::wire::{Target, pause};

const LARGE: [u8; 8_000] = [7; 8_000];

/// As many requests as the server takes, of many sessions.
pub(super) fn flood(target: &Target) {
    let mut sessions = target.sessions("echo", 64);
    loop {
        for session in &mut sessions {
            while session.request(&LARGE) {}
            session.publish();
            session.take();
            session.passed();
        }
        target.reopen("echo", &mut sessions);
        std::thread::yield_now();
    }
}

/// Queues all that a large lane holds, leaves when the server has taken it or after a moment, and reconnects.
pub(super) fn left(target: &Target) {
    let target = target.with_lane(8 << 20);
    loop {
        let Some(mut session) = target.open("echo") else { continue };
        while session.request(&LARGE) {}
        session.publish();
        let until = Instant::now() + Duration::from_millis(20);
        while session.word(Word::Head) < session.tail && Instant::now() < until {
            pause::<()>();
        }
    }
}
