//! A copy of the workspace, with the code to weaken and the tests that must notice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Layout;
use crate::copy;
use crate::error::Error;

/// A test: its binary's target and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestName {
    pub(crate) target: String,
    pub(crate) test: String,
}

/// The test binaries of one build, by target.
pub(crate) type Binaries = BTreeMap<String, PathBuf>;

/// How one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    Failed,
    TimedOut,
}

/// A workspace in which one mutant after the other is built and tested.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    pub(crate) layout: Layout,
}

impl Scratch {
    /// Copies the workspace to `dir`, replacing an earlier copy; what was built there stays.
    pub(crate) fn new(layout: &Layout, dir: PathBuf) -> Result<Self, Error> {
        copy::dir(&layout.root, &dir)?;
        Ok(Self { dir, layout: layout.clone() })
    }

    /// Where this workspace is built. Not shared: cargo takes two copies of a workspace for the same one.
    pub(crate) fn target(&self) -> PathBuf {
        self.dir.join("target")
    }

    /// Takes over what was built at `target` for release, unless something was built here before: the
    /// dependencies need not be built again.
    pub(crate) fn seed(&self, target: &Path) -> Result<(), Error> {
        copy::built(&target.join("release"), &self.target().join("release"))
    }

    /// Replaces one file of the copy.
    pub(crate) fn write(&self, file: &Path, text: &str) -> Result<(), Error> {
        copy::write(&self.dir.join(file), text)
    }

    /// Builds the tests, in release: loom executes a lot. `Err` inside holds what the compiler said.
    pub(crate) fn build(&self) -> Result<Result<Binaries, String>, Error> {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["test", "--release", "--no-run", "--quiet", "--package", &self.layout.package])
            .arg("--message-format=json-render-diagnostics")
            // The profile is that of `ci/loom`, so that its dependencies can be taken over.
            .env("RUSTFLAGS", &self.layout.rustflags);
        Ok(copy::cargo(&self.dir, &mut cargo)?.map(|messages| binaries(&messages)))
    }

    /// The tests in `binaries`.
    pub(crate) fn list(&self, binaries: &Binaries) -> Result<Vec<TestName>, Error> {
        let mut tests = Vec::new();
        for (target, binary) in binaries {
            let output = self.command(binary).args(["--list", "--format=terse"]).output();
            let output = output.map_err(Error::spawn(binary))?;
            let listed = String::from_utf8_lossy(&output.stdout);
            let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
            tests.extend(
                names.map(|test| TestName { target: target.clone(), test: test.to_owned() }),
            );
        }
        Ok(tests)
    }

    /// Runs one test alone, and kills it after `limit`.
    pub(crate) fn run(&self, binary: &Path, test: &str, limit: Duration) -> Result<Ended, Error> {
        let log = self.log();
        let output = File::create(&log).map_err(Error::file("create", &log))?;
        let errors = output.try_clone().map_err(Error::file("open", &log))?;
        let start = Instant::now();
        let mut child = self
            .command(binary)
            .args(["--exact", test, "--test-threads=1", "--nocapture"])
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(Error::spawn(binary))?;
        loop {
            if let Some(status) = child.try_wait().map_err(Error::wait(binary))? {
                return Ok(if status.success() { Ended::Passed } else { Ended::Failed });
            }
            if start.elapsed() >= limit {
                child.kill().map_err(Error::wait(binary))?;
                child.wait().map_err(Error::wait(binary))?;
                return Ok(Ended::TimedOut);
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// The end of what the last test printed.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
    }

    fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .current_dir(self.dir.join(&self.layout.tests))
            .stdin(Stdio::null())
            .env("RUST_BACKTRACE", "0");
        for bound in LOOM_BOUNDS {
            command.env_remove(bound);
        }
        command
    }

    fn log(&self) -> PathBuf {
        self.dir.join("test.log")
    }
}

/// How often a running test is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What loom takes from the environment. The tests state their own bounds.
const LOOM_BOUNDS: [&str; 8] = [
    "LOOM_CHECKPOINT_FILE",
    "LOOM_CHECKPOINT_INTERVAL",
    "LOOM_LOCATION",
    "LOOM_LOG",
    "LOOM_MAX_BRANCHES",
    "LOOM_MAX_DURATION",
    "LOOM_MAX_PERMUTATIONS",
    "LOOM_MAX_PREEMPTIONS",
];

/// The test binaries that cargo's messages name.
fn binaries(messages: &str) -> Binaries {
    let binary = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message.pointer("/profile/test")?.as_bool()?;
        let target = message.pointer("/target/name")?.as_str()?.to_owned();
        let path = message.get("executable")?.as_str()?;
        is_test.then(|| (target, PathBuf::from(path)))
    };
    messages.lines().filter_map(binary).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::binaries;

    #[test]
    fn only_test_binaries_are_taken_from_cargos_messages() {
        let messages = r#"
            {"reason":"compiler-artifact","target":{"name":"core"},"profile":{"test":false},"executable":null}
            {"reason":"compiler-artifact","target":{"name":"lane"},"profile":{"test":true},"executable":"/t/lane-1"}
            not a message
            {"reason":"build-finished","success":true}"#;
        let found: Vec<_> = binaries(messages).into_iter().collect();
        assert_eq!(found, [("lane".to_owned(), PathBuf::from("/t/lane-1"))]);
    }
}
