//! Child processes: this test binary again, running one test as its body.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Where a child finds its run directory.
const RUN_DIR: &str = "BELLWIRE_TEST_RUN_DIR";

/// Starts `body`, the full name of a test that does nothing elsewhere.
pub(crate) fn start(body: &str, run_dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", body, "--nocapture", "--test-threads=1"])
        .env(RUN_DIR, run_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs `body` to its end, which must be a good one.
pub(crate) fn run(body: &str) {
    let dir = tempfile::tempdir().unwrap();
    let status = start(body, dir.path()).wait().unwrap();
    assert!(status.success(), "{body}: {status}");
}

/// The run directory, inside a child. `None` in any other process: then a body returns at once.
pub(crate) fn run_dir() -> Option<std::path::PathBuf> {
    std::env::var_os(RUN_DIR).map(Into::into)
}

/// Sleeps until it is killed, at the latest when the test that started it ends.
pub(crate) fn wait_to_be_killed() -> ! {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    loop {
        std::thread::park();
    }
}
