use std::thread;
use std::time::Duration;

use crate::services::MAX_RESPONSE;
use bellwire_hostile::wire::{Session, Target, rest};

/// Requests attached responses, and leaves them unread.
pub(super) fn unconsumed(target: &Target) {
    request_attachments(target, |_| {});
}

/// Reads them, and keeps their memory.
pub(super) fn kept(target: &Target) {
    let mut kept = Vec::new();
    request_attachments(target, |session| {
        session.consume_answers();
        kept.append(&mut session.drain_socket());
        kept.truncate(19_000);
    });
}

/// Requests attached responses in 32 sessions, and runs `then` after each request.
fn request_attachments(target: &Target, mut then: impl FnMut(&Session)) {
    target.repeat("attached", 32, rest, |session| {
        session.request(&MAX_RESPONSE.to_le_bytes());
        session.publish();
        then(session);
    });
}

/// Keeps each generation of a snapshot.
pub(super) fn snapshots(target: &Target) {
    let mut kept = Vec::new();
    target.repeat(
        "cgroups-snapshot",
        1,
        || {},
        |session| {
            session.request(&[]);
            session.publish();
            thread::sleep(Duration::from_millis(50));
            session.consume_answers();
            kept.append(&mut session.drain_socket());
        },
    );
}
