//! Builds the targets as cargo-fuzz would, with the toolchain that is there.

use std::env::consts::ARCH;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::Error;

/// What libFuzzer needs to see: every branch, and what is compared with what.
const INSTRUMENTATION: [&str; 9] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Zsanitizer=address",
    // Overflows and broken invariants end the run.
    "-Cdebug-assertions",
];

/// A workspace, and where it is built.
#[derive(Clone, Debug)]
pub(super) struct Build {
    pub(super) root: PathBuf,
    pub(super) target: PathBuf,
}

impl Build {
    /// Builds these targets.
    pub(super) fn build(&self, targets: &[&str], options: &[&str]) -> Result<(), Error> {
        let mut command = self.command();
        command.args(options).args(targets.iter().flat_map(|target| ["--bin", *target]));
        match command.status().map_err(Error::spawn("cargo"))?.success() {
            true => Ok(()),
            false => Err(Error::Targets),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("cargo");
        command
            .args(["build", "--release", "--package", "bellwire-fuzz", "--target", &triple()])
            // libFuzzer itself need not be fast, and is slow to build.
            .args(["--config", "profile.release.package.libfuzzer-sys.opt-level=2"])
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            // A sanitizer is an unstable option, of a toolchain that has it all the same.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", INSTRUMENTATION.join(" "))
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .stdin(Stdio::null());
        command
    }

    /// The program of a target.
    pub(super) fn program(&self, target: &str) -> PathBuf {
        self.target.join(triple()).join("release").join(target)
    }
}

/// Named explicitly, so that what runs while building, procedural macros for instance, is left as it is.
fn triple() -> String {
    format!("{ARCH}-unknown-linux-gnu")
}
