use std::thread;
use std::time::Duration;

use crate::services::MOST;
use crate::wire::{Target, pause};

/// Requests attached answers in 32 sessions, and leaves them unread.
pub(super) fn untaken(target: &Target) {
    ask(target, |_| {});
}

/// Takes them, and keeps their memory.
pub(super) fn kept(target: &Target) {
    let mut kept = Vec::new();
    ask(target, |session| {
        session.take();
        kept.append(&mut session.passed());
        kept.truncate(19_000);
    });
}

fn ask(target: &Target, mut then: impl FnMut(&crate::wire::Session)) {
    let mut sessions = target.sessions("attached", 32);
    loop {
        for session in &mut sessions {
            session.request(&MOST.to_le_bytes());
            session.publish();
            then(session);
        }
        target.reopen("attached", &mut sessions);
        pause::<()>();
    }
}

/// Keeps each generation of a snapshot.
pub(super) fn snapshots(target: &Target) {
    let mut sessions = target.sessions("cgroups-snapshot", 1);
    let mut kept = Vec::new();
    loop {
        for session in &mut sessions {
            session.request(&[]);
            session.publish();
            thread::sleep(Duration::from_millis(50));
            session.take();
            kept.append(&mut session.passed());
        }
        target.reopen("cgroups-snapshot", &mut sessions);
    }
}
