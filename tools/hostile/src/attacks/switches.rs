use bellwire_hostile::wire::Target;

/// Switches the lanes of 32 sessions from one small memfd to the next.
pub(super) fn run(target: &Target) {
    target.repeat("echo", 32, std::thread::yield_now, |session| {
        session.switch(if session.lane_size() == 4_096 { 8_192 } else { 4_096 });
        session.publish();
        session.drain_socket();
    });
}
