use bellwire_core::Word;
use bellwire_core::wire::Doorbell;

use crate::services::MAX_RESPONSE;
use crate::wire::{Target, pause};

/// Requests large answers as long as there is room for a request, and consumes none.
pub(super) fn run(target: &Target) {
    let mut sessions = target.sessions("blob", 200);
    loop {
        for session in &mut sessions {
            while session.request(&MAX_RESPONSE.to_le_bytes()) {}
            session.publish();
        }
        target.reopen("blob", &mut sessions);
        pause::<()>();
    }
}

/// Consumes every answer, and asks for a ring for each on the control socket, which it never reads.
pub(super) fn rings(target: &Target) {
    let target = target.with_doorbell(Doorbell::Socket);
    let mut sessions = target.sessions("echo", 1_000);
    loop {
        for session in &mut sessions {
            session.set(Word::WantData, session.word(Word::Tail));
            session.consume_answers();
            if session.request(&[]) {
                session.publish();
            }
        }
        target.reopen("echo", &mut sessions);
    }
}
