//! A copy of the workspace, with all mutants of the code built into it, and the tests that must notice.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bellwire_process::{Interrupt, run_within};
use serde_json::Value;

use super::{Layout, Mutant, mutation};
use crate::copy;
use crate::error::Error;

/// A test: its binary's target and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestName {
    pub(crate) target: String,
    pub(crate) test: String,
}

/// The test binaries, by target.
type Binaries = BTreeMap<String, PathBuf>;

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    /// With what it printed.
    Failed(String),
    TimedOut,
}

/// The number of the mutant that a test runs with; 0 for none.
const ACTIVE: &str = "BELLWIRE_MUTANT";

/// What the code needs to know which mutant is active.
const SWITCH: &str = "
/// Whether the mutant of this number is active.
pub fn is_mutant(number: usize) -> bool {
    static ACTIVE: std::sync::LazyLock<Option<usize>> =
        std::sync::LazyLock::new(|| std::env::var(\"BELLWIRE_MUTANT\").ok()?.parse().ok());
    *ACTIVE == Some(number)
}
";

/// A workspace in which one mutant after the other is tested.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Where the tests run.
    dir: PathBuf,
    binaries: Binaries,
}

impl Scratch {
    /// Copies the workspace, replacing an earlier copy, and builds the tests with all mutants, in release: loom executes a lot.
    pub(crate) fn build(layout: &Layout, mutants: &[(usize, &Mutant)]) -> Result<Self, Error> {
        let Layout { root, scratch, .. } = layout;
        fs::create_dir_all(scratch).map_err(Error::file("create", scratch))?;
        copy::dir(root, scratch)?;
        // The dependencies need not be built again.
        copy::built(&layout.seed.join("release"), &scratch.join("target/release"))?;
        let lib = Path::new(&layout.subject).join("src/lib.rs");
        let mut files: BTreeMap<&Path, Vec<_>> = BTreeMap::from([(&*lib, Vec::new())]);
        for (number, mutant) in mutants {
            files.entry(&mutant.file).or_default().push((*number, &mutant.mutation));
        }
        for (file, mutations) in files {
            let path = root.join(file);
            let source = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
            let switch = if file == lib { SWITCH } else { "" };
            copy::write(&scratch.join(file), mutation::switched(&source, &mutations) + switch)?;
        }
        let mut cargo = Command::new("cargo");
        cargo
            .args(["test", "--release", "--no-run", "--quiet", "--package", &layout.package])
            .arg("--message-format=json-render-diagnostics")
            // The profile is that of `ci/loom`, so that its dependencies can be taken over.
            .env("RUSTFLAGS", &layout.rustflags);
        let messages = copy::cargo(scratch, &mut cargo)?.map_err(|log| Error::Baseline { log })?;
        Ok(Self { dir: scratch.join(&layout.tests), binaries: binaries(&messages) })
    }

    /// The tests.
    pub(crate) fn list(&self) -> Result<Vec<TestName>, Error> {
        let mut tests = Vec::new();
        for (target, binary) in &self.binaries {
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

    /// Runs one test alone with this mutant, and kills it after `limit`.
    pub(crate) fn run(
        &self,
        name: &TestName,
        mutant: usize,
        limit: Duration,
    ) -> Result<Ended, Error> {
        /// What a test may print.
        const MOST: usize = 64 << 20;
        let binary =
            self.binaries.get(&name.target).map_or_else(|| Path::new(""), PathBuf::as_path);
        let mut command = self.command(binary);
        command.args(["--exact", &name.test, "--test-threads=1"]).env(ACTIVE, mutant.to_string());
        let interrupt = Interrupt::new().map_err(Error::spawn(binary))?;
        match run_within(command.stderr(Stdio::null()), limit, MOST, &interrupt) {
            Ok(ran) if ran.status.success() => Ok(Ended::Passed),
            Ok(ran) => Ok(Ended::Failed(String::from_utf8_lossy(&ran.stdout).into_owned())),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(Ended::TimedOut),
            Err(error) => Err(Error::wait(binary)(error)),
        }
    }

    fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command.current_dir(&self.dir).stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
        for bound in LOOM_BOUNDS {
            command.env_remove(bound);
        }
        command
    }
}

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
