//! Death, where it takes another process's descriptors to show it.

use std::time::{Duration, Instant};

use bellwire::{Refreshed, SnapshotCache};

use crate::support::child::Process;
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::kernel;
use crate::support::services::Numbers;
use crate::support::test_server::{Dir, client_config};

#[test]
fn a_watcher_learns_of_a_death_though_the_endpoint_still_accepts() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let config = client_config().connect_timeout(TEST_TIMEOUT * 2);
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, config);
    until("a board", || matches!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Empty));
    // As while a process dies slowly: a client that connects finds a socket that no process answers.
    let copies = kernel::copies(server.pid());
    server.kill();
    let begun = Instant::now();
    assert_eq!(cache.wait_for_change(None).unwrap(), Refreshed::Unavailable);
    assert!(begun.elapsed() < TEST_TIMEOUT, "it waited for an answer of the dead");
    drop(copies);
    assert_eq!(cache.wait_for_change(Some(Duration::ZERO)).unwrap(), Refreshed::Unavailable);
}
