use bellwire_core::wire::{Header, Kind, Status};

use bellwire_hostile::wire::{Target, rest};

/// Makes the server's lane grow for an answer, trims it, and keeps the memfd of every epoch.
pub(super) fn kept(target: &Target) {
    let mut kept = Vec::new();
    target.repeat("blob", 8, rest, |session| {
        session.request(&100_000_u64.to_le_bytes());
        session.put(Header::new(Kind::Trim, Status::Ok, 0, 0), &[]);
        session.publish();
        session.consume_answers();
        kept.append(&mut session.drain_socket());
        kept.truncate(19_000);
    });
}
