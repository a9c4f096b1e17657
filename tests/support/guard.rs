//! How long a test waits for what must happen. Nothing is measured with it: a test that reaches it hangs.

use std::hint::black_box;
use std::sync::LazyLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use bellwire_core::Instant;

use super::transport::clock;

/// For one event.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// By what this machine's speed is measured: hand-overs between two threads, with computing between them.
const HAND_OVERS: u32 = 40;
const STEPS: u64 = 25_000;
/// What that takes at most on the machine where [`TEST_TIMEOUT`] was chosen: two processors, idle, a test build.
const USUAL: Duration = Duration::from_millis(20);
/// An emulated processor is some 20 times slower.
const MAX_SLOWNESS: u32 = 30;

/// How many times slower than usual this machine was when the first guard was set. At least 1.
static SLOWNESS: LazyLock<u32> = LazyLock::new(|| slowness(measured()));

/// When what must happen has not happened.
pub(crate) fn test_deadline() -> Instant {
    clock::now().after(scaled(TEST_TIMEOUT))
}

/// A time that is enough on a usual machine, as long on this one as it is slower: for guards of many steps, such as a whole
/// test.
pub(crate) fn scaled(usual: Duration) -> Duration {
    usual * *SLOWNESS
}

/// Polls until it is true, where no event signals it.
#[track_caller]
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let guard = test_deadline();
    while !is_true() {
        assert!(clock::now() < guard, "never: {what}");
        thread::yield_now();
    }
}

fn slowness(took: Duration) -> u32 {
    let times = took.as_nanos().div_ceil(USUAL.as_nanos());
    u32::try_from(times).map_or(MAX_SLOWNESS, |times| times.clamp(1, MAX_SLOWNESS))
}

/// How long this machine takes for what it is measured by.
fn measured() -> Duration {
    let ((there, arrived), (back, returned)) = (channel(), channel());
    let other = thread::spawn(move || arrived.iter().for_each(|()| back.send(()).unwrap()));
    let start = StdInstant::now();
    for _ in 0..HAND_OVERS {
        there.send(()).unwrap();
        let _ = black_box((0..STEPS).fold(1, |hash: u64, step| (hash ^ step).wrapping_mul(31)));
        returned.recv().unwrap();
    }
    let took = start.elapsed();
    drop(there);
    other.join().unwrap();
    took
}

#[test]
fn a_machine_that_is_slower_waits_longer_and_not_for_ever() {
    assert_eq!(slowness(USUAL / 3), 1);
    assert_eq!(slowness(USUAL), 1);
    assert_eq!(slowness(USUAL * 5 / 2), 3);
    assert_eq!(slowness(Duration::MAX), MAX_SLOWNESS);
    assert!(scaled(TEST_TIMEOUT) >= TEST_TIMEOUT);
}
