//! The programs of `tests/traced`, built as programs are shipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A profile of `tests/traced/Cargo.toml`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Profile {
    /// As `cargo build --release` makes it.
    Plain,
    /// With link-time optimization, and stripped.
    Shipped,
}

pub(crate) const PROFILES: [Profile; 2] = [Profile::Plain, Profile::Shipped];

impl Profile {
    pub(crate) fn program(self) -> PathBuf {
        self.built().join("traced")
    }

    pub(crate) fn library(self) -> PathBuf {
        self.built().join("libtraced.so")
    }

    fn built(self) -> &'static Path {
        static PLAIN: OnceLock<PathBuf> = OnceLock::new();
        static SHIPPED: OnceLock<PathBuf> = OnceLock::new();
        match self {
            Self::Plain => PLAIN.get_or_init(|| build("plain")),
            Self::Shipped => SHIPPED.get_or_init(|| build("shipped")),
        }
    }
}

fn build(profile: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traced");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traced/Cargo.toml");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--profile", profile, "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .unwrap();
    assert!(status.success(), "tests/traced does not build");
    target.join(profile)
}
