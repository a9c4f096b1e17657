//! A copy of the workspace, in which the harness is built and faults are injected.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::faults;
use crate::copy;
use crate::error::Error;

/// The copy, and where it is built. Not shared with the workspace's own: cargo takes two copies for the same one.
#[derive(Debug)]
pub(crate) struct Tree {
    dir: PathBuf,
}

/// The folders that the harness is built from; the other members of the workspace are left out.
const MEMBERS: [&str; 13] = [
    "codec/derive",
    "netipc",
    "core",
    "core/probes",
    "core/shm",
    "transport-memfd",
    "transport-win",
    "services/apps",
    "services/cgroups",
    "c",
    "tools/hostile",
    "tools/kill",
    "tools/vectors",
];

impl Tree {
    /// Copies the workspace at `root` to `dir`. What is the same there already is left alone, so that only what has
    /// changed is built again.
    pub(crate) fn copy(root: &Path, dir: PathBuf) -> Result<Self, Error> {
        for folder in MEMBERS.into_iter().chain(["src"]) {
            copy::dir(&root.join(folder), &dir.join(folder))?;
        }
        for file in ["Cargo.lock", "README.md"] {
            copy::file(&root.join(file), &dir.join(file))?;
        }
        let manifest = root.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(Error::file("read", &manifest))?;
        copy::write(&dir.join("Cargo.toml"), manifest_of(&text))?;
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
        let target = self.dir.join("target");
        let output = Command::new("cargo")
            .args(["build", "--release", "--quiet", "--package", "bellwire-kill"])
            .args(features)
            .current_dir(&self.dir)
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_TERM_COLOR", "never")
            .env_remove("RUSTFLAGS")
            // Built again with the bugs, so make that quick.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| Error::Spawn { program: "cargo".to_owned(), source })?;
        if !output.status.success() {
            return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(Ok(target.join("release/bellwire-kill")))
    }
}

/// What only benchmarks and examples need.
const LEFT_OUT: [&str; 3] = ["bellwire-floor", "bellwire-process", "bellwire-trace-core"];

/// The root manifest with the members that the copy has, and without its benchmarks.
fn manifest_of(root: &str) -> String {
    let mut text = String::new();
    let mut keep = true;
    for line in root.lines() {
        if line.starts_with('[') {
            keep = !line.starts_with("[[bench]]") && !line.starts_with("[[example]]");
        }
        let is_left_out = LEFT_OUT.iter().any(|name| line.starts_with(name));
        let members = MEMBERS.map(|member| format!("\"{member}\"")).join(", ");
        if line.starts_with("members = ") {
            text.push_str(&format!("members = [\".\", {members}]"));
        } else if line.starts_with("default-members = ") || is_left_out || !keep {
            continue;
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::manifest_of;

    #[test]
    fn the_copys_manifest_has_the_harness_and_what_it_is_built_from() {
        let root = "[workspace]\nmembers = [\".\", \"core\", \"cli\"]\ndefault-members = [\".\"]\n\n\
            [[bench]]\nname = \"b\"\npath = \"benches/b.rs\"\n\n[[example]]\nname = \"e\"\n\n\
            [dev-dependencies]\nbellwire-floor.workspace = true\n\n[profile.release]\nlto = \"thin\"\n";
        assert_eq!(
            manifest_of(root),
            "[workspace]\nmembers = [\".\", \"codec/derive\", \"netipc\", \"core\", \"core/probes\", \"core/shm\", \"transport-memfd\", \"transport-win\", \"services/apps\", \"services/cgroups\", \"c\", \"tools/hostile\", \"tools/kill\", \"tools/vectors\"]\n\n\
             [dev-dependencies]\n\n[profile.release]\nlto = \"thin\"\n"
        );
    }
}
