pub(crate) mod clock;
pub(crate) mod deliveries;
pub(crate) mod false_times;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod roles;
pub(crate) mod semaphore;
pub(crate) mod tracer;

use std::time::{Duration, Instant};

/// Waits for a condition, and panics after a timeout.
#[track_caller]
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "the condition does not become true");
        std::thread::yield_now();
    }
}
