//! Child processes: this test binary again, running one test as its body.

use std::os::windows::io::AsHandle;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bellwire_win::peer::{Process, ProcessAccess};
use bellwire_win::poll;
use spawn::spawn;

#[path = "../../../tests/support/spawn.rs"]
mod spawn;

/// Where a child finds its run directory.
const RUN_DIR: &str = "BELLWIRE_TEST_RUN_DIR";
/// Who started it.
const PARENT: &str = "BELLWIRE_TEST_PARENT";

/// A child that is killed with this, at the latest.
pub(crate) struct Running(Child);

/// Starts `body`, the full name of a test that does nothing elsewhere.
pub(crate) fn start(body: &str, run_dir: &Path) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", body, "--nocapture", "--test-threads=1"])
        .env(RUN_DIR, run_dir)
        .env(PARENT, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Running(spawn(&mut command))
}

/// Runs `body` to its end, which must be a good one.
pub(crate) fn run(body: &str) {
    let dir = tempfile::tempdir().unwrap();
    let status = start(body, dir.path()).0.wait().unwrap();
    assert!(status.success(), "{body}: {status}");
}

/// The run directory, inside a child. `None` in any other process: then a body returns at once.
pub(crate) fn run_dir() -> Option<PathBuf> {
    std::env::var_os(RUN_DIR).map(Into::into)
}

/// Sleeps until it is killed, at the latest when the test that started it ends.
pub(crate) fn wait_to_be_killed() -> ! {
    let parent = std::env::var(PARENT).unwrap().parse().unwrap();
    if let Ok(parent) = Process::open(parent, ProcessAccess::Watch) {
        let _ = poll::wait(&[parent.as_handle()], None);
    }
    std::process::exit(1);
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// `TerminateProcess`: no destructor runs.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    pub(crate) fn wait(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
