//! Notes what the program is built from, for its reports: it may run anywhere.

use std::path::Path;
use std::process::Command;

/// What goes into the program, and what moves with a commit.
const SOURCES: [&str; 10] = [
    "src",
    "core",
    "transport-memfd",
    "services",
    "benches",
    "tools/process",
    "Cargo.toml",
    "Cargo.lock",
    ".git/HEAD",
    ".git/logs/HEAD",
];

fn main() {
    for source in SOURCES.map(|source| Path::new("../..").join(source)) {
        // One that is not there would have this program run at each build.
        if source.exists() {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    let rustc = std::env::var("RUSTC").unwrap_or_default();
    let commit = output_of("git", &["describe", "--always", "--dirty", "--abbrev=12"]);
    println!("cargo::rustc-env=BENCH_COMMIT={commit}");
    println!("cargo::rustc-env=BENCH_RUSTC={}", output_of(&rustc, &["--version"]));
}

/// The output of a program, which may be missing.
fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok();
    let output = output.filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}
