//! The programs of tests/programs, built as programs are shipped.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::process::copy_to;

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// As `cargo build --release` makes it: position-independent, with Rust's linker and `--gc-sections`.
    Plain,
    /// With GNU's linker, at a fixed address.
    GnuLinkerNoPie,
    /// Without shared libraries, with glibc, and without symbols, by GNU's strip.
    StaticStripped,
    /// Functions of the same code are one, by the linker.
    Folded,
    ThinLto,
    /// One unit, no unwinding, no symbols: at its worst for a probe.
    FatLto,
    /// Without shared libraries, with musl.
    Musl,
}

impl Build {
    pub(crate) const ALL: [Self; 7] = [
        Self::Plain,
        Self::GnuLinkerNoPie,
        Self::StaticStripped,
        Self::Folded,
        Self::ThinLto,
        Self::FatLto,
        Self::Musl,
    ];

    fn profile(self) -> &'static str {
        match self {
            Self::ThinLto => "thin",
            Self::FatLto => "fat",
            _ => "plain",
        }
    }

    /// Arguments for rustc when it links.
    fn linked(self) -> &'static [&'static str] {
        match self {
            Self::GnuLinkerNoPie => &["-Clinker-features=-lld", "-Crelocation-model=static"],
            Self::StaticStripped => &["-Ctarget-feature=+crt-static"],
            Self::Folded => &["-Clink-arg=-Wl,--icf=all"],
            _ => &[],
        }
    }

    /// The program or library of this name; `None` if its target is not installed.
    pub(crate) fn file(self, name: &str) -> Option<PathBuf> {
        // Builds of one profile replace each other's files; a file that another test executes cannot be replaced.
        static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        let kept = root.join("kept");
        std::fs::create_dir_all(&kept).unwrap();
        let file = kept.join(format!("{name}-{self:?}"));
        if built.contains(&file) {
            return Some(file);
        }
        let mut out = root.clone();
        let mut target: Vec<OsString> = Vec::new();
        if self == Self::Musl {
            let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
            let libraries = Command::new("rustc")
                .args(["--target", &triple, "--print", "target-libdir"])
                .output()
                .unwrap();
            if !Path::new(String::from_utf8(libraries.stdout).unwrap().trim()).exists() {
                eprintln!("skipped: no {triple}; rustup target add {triple}");
                return None;
            }
            target = vec!["--target".into(), (&triple).into()];
            out.push(triple);
        }
        let is_library = Path::new(name).extension().is_some();
        let status = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["rustc", "--quiet", "--offline", "--package", "bellwire-traced"])
            .args(["--profile", self.profile(), "--target-dir"])
            .arg(&root)
            .args(PROFILES.iter().flat_map(|line| ["--config", line]))
            .args(if is_library { vec!["--lib"] } else { vec!["--bin", name] })
            .args(target)
            .arg("--")
            .args(self.linked())
            .status()
            .unwrap();
        assert!(status.success(), "{name} does not build: {self:?}");
        copy_to(&out.join(self.profile()).join(name), &file);
        if self == Self::StaticStripped {
            let status = Command::new("strip").arg("--strip-all").arg(&file).status().unwrap();
            assert!(status.success());
        }
        built.insert(file.clone());
        Some(file)
    }
}

/// What a program is like when it is linked depends little on how much it is optimized.
const PROFILES: [&str; 12] = [
    "profile.release.opt-level=1",
    "profile.release.debug=false",
    "profile.release.codegen-units=16",
    "profile.plain.inherits='release'",
    "profile.plain.lto='off'",
    "profile.thin.inherits='release'",
    "profile.thin.lto='thin'",
    "profile.fat.inherits='release'",
    "profile.fat.lto='fat'",
    "profile.fat.codegen-units=1",
    "profile.fat.panic='abort'",
    "profile.fat.strip='symbols'",
];
