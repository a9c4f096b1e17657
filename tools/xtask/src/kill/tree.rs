//! A copy of the workspace, in which the harness is built and faults are injected.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::faults;
use crate::copy;
use crate::error::Error;

/// The copy, and where it is built. Not shared with the workspace's own: cargo takes two copies for the same one.
#[derive(Debug)]
pub(crate) struct Tree {
    dir: PathBuf,
}

impl Tree {
    /// Copies the workspace at `root` to `dir`. What is the same there already is left alone, so that only what has
    /// changed is built again.
    pub(crate) fn copy(root: &Path, dir: PathBuf) -> Result<Self, Error> {
        copy::dir(root, &dir)?;
        Ok(Self { dir })
    }

    /// Injects all faults, each to be chosen when the harness runs. `Err` inside names the faults whose place no
    /// longer exists.
    pub(crate) fn plant(&self) -> Result<Result<(), String>, Error> {
        for file in faults::files() {
            let path = self.dir.join(file);
            let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
            match faults::apply(file, &text) {
                Ok(planted) => copy::write(&path, planted)?,
                Err(bug) => {
                    return Ok(Err(format!("{file} has changed: where does {bug:?} go now?")));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Builds the harness, optimised: it is stepped through instruction by instruction. `Err` inside holds what the
    /// compiler said.
    pub(crate) fn build(&self, features: &[&str]) -> Result<Result<PathBuf, String>, Error> {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--release", "--quiet", "--package", "bellwire-kill"])
            .args(features)
            .env_remove("RUSTFLAGS")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        let built = copy::cargo(&self.dir, &mut cargo)?;
        Ok(built.map(|_| self.dir.join("target/release/bellwire-kill")))
    }
}
