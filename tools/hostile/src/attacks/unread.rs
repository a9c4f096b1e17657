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
