//! Users who wait for a provider in a run dir that they may search and not read: nothing in it can be watched.

use bellwire::{Client, RunDir};
use tempfile::TempDir;

use super::{is_root, says, set_mode};
use crate::support::child::{Parent, Process};
use crate::support::guard::TEST_TIMEOUT;
use crate::support::parked::Thread;
use crate::support::services::Echo;
use crate::support::test_server::client_config;

const WHY: [&str; 2] = ["cannot be watched: Permission denied", "let this user read it"];

/// Tells which thread waits, and the result.
pub(super) fn wait(parent: &Parent, run_dir: &RunDir) {
    let Thread(thread) = Thread::this();
    parent.send_line(&thread.unwrap().display().to_string());
    let mut client = Client::<Echo>::with_config(run_dir, client_config());
    let waited = client.wait_available(TEST_TIMEOUT);
    let reply = waited.map_or_else(|error| error.to_string(), |_| "ready".to_owned());
    parent.send_line(&reply);
}

/// A directory that others may search, and a run dir in it.
fn dir() -> (TempDir, RunDir) {
    let dir = TempDir::new().unwrap();
    set_mode(dir.path(), 0o755);
    let run_dir = RunDir::new(dir.path().join("run"));
    (dir, run_dir)
}

#[test]
fn a_run_dir_that_cannot_be_read_ends_the_wait_for_an_absent_provider_with_advice() {
    if !is_root() {
        return;
    }
    let (dir, run_dir) = dir();
    let mut client = Process::start("admission client nobody", &run_dir);
    // It comes while the directory above is watched.
    let waiting = Thread(Some(client.ask("wait").into()));
    waiting.wait_until_parked();
    let hidden = dir.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    set_mode(&hidden, 0o711);
    std::fs::rename(&hidden, run_dir.path()).unwrap();
    says(&client.next_line(), &WHY);
    // It is there before.
    client.ask("wait");
    says(&client.next_line(), &WHY);
}

#[test]
fn a_provider_in_a_run_dir_that_cannot_be_read_is_found_at_once() {
    if !is_root() {
        return;
    }
    let (_dir, run_dir) = dir();
    let mut server = Process::start("admission server admit=any", &run_dir);
    assert_eq!(server.ask("serve"), "serving");
    set_mode(run_dir.path(), 0o711);
    let mut client = Process::start("admission client nobody", &run_dir);
    client.ask("wait");
    assert_eq!(client.next_line(), "ready");
}
