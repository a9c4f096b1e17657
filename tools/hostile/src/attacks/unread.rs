use bellwire_core::Word;
use bellwire_core::wire::Doorbell;

use crate::services::MOST;
use crate::wire::{Target, pause};

/// Requests large answers as long as there is room for the request, and takes none.
pub(super) fn run(target: &Target) {
    let mut sessions = target.sessions("blob", 200);
    loop {
        for session in &mut sessions {
            while session.request(&MOST.to_le_bytes()) {}
            session.publish();
        }
        target.reopen("blob", &mut sessions);
        pause::<()>();
    }
}

/// Takes every answer and is rung for each by the control socket, which it never reads.
pub(super) fn rings(target: &Target) {
    let target = target.with_doorbell(Doorbell::Socket);
    let mut sessions = target.sessions("echo", 1_000);
    loop {
        for session in &mut sessions {
            session.set(Word::WantData, session.word(Word::Tail));
            session.take();
            if session.request(&[]) {
                session.publish();
            }
        }
        target.reopen("echo", &mut sessions);
    }
}
