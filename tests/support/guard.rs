//! How long a test waits for what must happen. Nothing is measured with it: a test that reaches it hangs.

use std::time::Duration;

use bellwire_core::Instant;

use super::transport::clock;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn patience() -> Instant {
    clock::now().after(PATIENCE)
}

/// Polls until it is true, where no event signals it.
#[track_caller]
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let guard = patience();
    while !is_true() {
        assert!(clock::now() < guard, "never: {what}");
        std::thread::yield_now();
    }
}
