use bellwire_core::Word;
use bellwire_core::wire::Doorbell;

use crate::services::MAX_RESPONSE;
use bellwire_hostile::wire::{Target, rest};

/// Requests large answers as long as there is room for a request, and consumes none.
pub(super) fn run(target: &Target) {
    target.repeat("blob", 200, rest, |session| {
        while session.request(&MAX_RESPONSE.to_le_bytes()) {}
        session.publish();
    });
}

/// Consumes every answer, and asks for a ring for each on the control socket, which it never reads.
pub(super) fn rings(target: &Target) {
    let target = target.with_doorbell(Doorbell::Socket);
    target.repeat(
        "echo",
        1_000,
        || {},
        |session| {
            session.set(Word::WantData, session.word(Word::Tail));
            session.consume_answers();
            if session.request(&[]) {
                session.publish();
            }
        },
    );
}
