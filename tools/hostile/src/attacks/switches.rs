use crate::wire::Target;

/// Switches the lanes of 32 sessions from one small memfd to the next.
pub(super) fn run(target: &Target) {
    let mut sessions = target.sessions("echo", 32);
    let mut round = 0_u32;
    loop {
        for session in &mut sessions {
            session.switch(if round.is_multiple_of(2) { 4_096 } else { 8_192 });
            session.publish();
            session.drain_socket();
        }
        round += 1;
        target.reopen("echo", &mut sessions);
        std::thread::yield_now();
    }
}
