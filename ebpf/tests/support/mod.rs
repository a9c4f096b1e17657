pub(crate) mod lies;
pub(crate) mod process;
pub(crate) mod roles;
pub(crate) mod semaphore;
pub(crate) mod tracer;

use std::time::{Duration, Instant};

/// Waits for what has to come, and fails when it does not.
#[track_caller]
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "it does not come to pass");
        std::thread::yield_now();
    }
}
