//! `ci/rules` finds each kind of fault that it checks for, and reports nothing where there is none.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `ci/rules` on a repository that holds `files` alone.
fn rules(files: &[(&str, &str)]) -> Output {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let script =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/rules")).unwrap();
    write("ci/rules", &script);
    files.iter().for_each(|(path, text)| write(path, text));
    let script = root.path().join("ci/rules");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let git = Command::new("git").args(["init", "--quiet"]).current_dir(&root).status().unwrap();
    assert!(git.success());
    Command::new(script).output().unwrap()
}

#[track_caller]
fn keeps(path: &str, text: &str) {
    let output = rules(&[(path, text)]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{path}: {text}\n{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Exactly one rule is broken, and the report leads to the place.
#[track_caller]
fn breaks(rule: &str, path: &str, text: &str) {
    let output = rules(&[(path, text)]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{path}: {text}: not found\n{said}");
    assert!(said.contains(&format!("BROKEN: {rule}")), "{said}");
    assert!(
        said.contains(&format!("  {path}:")) || said.contains(&format!("  {path}\n")),
        "{said}"
    );
    assert!(said.contains(" 1 broken"), "{said}");
}

#[test]
fn an_empty_repository_keeps_the_rules() {
    let output = rules(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn operating_systems_are_told_apart_in_the_transports_alone() {
    let rule = "operating systems";
    breaks(rule, "core/src/a.rs", "#[cfg(windows)]\n");
    breaks(rule, "src/a.rs", "#[cfg(all(unix, test))]\n");
    breaks(rule, "cli/src/a.rs", "if cfg!(target_os = \"linux\") {}\n");
    keeps("transport-win/src/a.rs", "#[cfg(windows)]\n");
    keeps("src/transport.rs", "#[cfg(windows)]\n");
    keeps("core/src/a.rs", "// Not here: #[cfg(windows)]\n");
}

#[test]
fn atomics_are_named_in_one_place() {
    let rule = "atomics come from";
    breaks(rule, "src/a.rs", "use std::sync::atomic::AtomicU64;\n");
    breaks(rule, "transport-memfd/src/a.rs", "use core::sync::{atomic::AtomicU64};\n");
    keeps("core/src/sync.rs", "pub use core::sync::atomic::AtomicU64;\n");
    keeps("benches/a.rs", "use std::sync::atomic::AtomicU64;\n");
}

#[test]
fn core_is_pure() {
    let rule = "core names no transport";
    breaks(rule, "core/src/a.rs", "use std::time::Instant;\n");
    breaks(rule, "core/src/a.rs", "bellwire_memfd::open();\n");
    keeps("src/a.rs", "use std::time::Instant;\n");
}

#[test]
fn sequential_consistency_is_for_fences() {
    breaks("loom reads", "core/src/a.rs", "a.load(Ordering::SeqCst);\n");
    keeps("core/src/a.rs", "// Pairs with the one in b.\nfence(Ordering::SeqCst);\n");
}

#[test]
fn a_fence_names_its_partner() {
    let rule = "every fence names";
    breaks(rule, "core/src/a.rs", "// For good measure.\nfence(Ordering::SeqCst);\n");
    breaks(rule, "core/src/a.rs", "// Pairs with b.\na();\nfence(Ordering::Release);\n");
    keeps(
        "core/src/a.rs",
        "// Partner: the one in b, which\n// is not here.\nfence(Ordering::SeqCst);\n",
    );
}

#[test]
fn unsafe_code_is_allowed_with_a_reason() {
    breaks("unsafe code", "src/a.rs", "#![allow(unsafe_code)]\n");
    keeps("src/a.rs", "#![allow(unsafe_code, reason = \"maps memory\")]\n");
    keeps("src/a.rs", "#![allow(\n    unsafe_code,\n    reason = \"maps memory\"\n)]\n");
}

#[test]
fn tests_are_not_ignored() {
    breaks("no test is ignored", "tests/a.rs", "#[ignore = \"slow\"]\n");
    breaks("no test is ignored", "tests/a.rs", "#[cfg_attr(loom, ignore)]\n");
}

#[test]
fn nothing_is_left_to_do() {
    breaks("what is left to do", "src/a.rs", "// TODO: this\n");
    breaks("what is left to do", "docs/a.md", "FIXME\n");
}

#[test]
fn paths_of_one_machine_are_found() {
    let rule = "no path of one machine";
    breaks(rule, "docs/a.md", "see /home/me/notes\n");
    breaks(rule, "src/a.rs", "let dir = \"/Users/me/main\";\n");
    keeps("docs/a.md", "https://example.org/home/me and ~/home/x\n");
}

#[test]
fn tests_do_not_sleep() {
    breaks("time is an argument", "tests/a.rs", "std::thread::sleep(a);\n");
}

#[test]
fn files_are_called_after_their_noun() {
    breaks("a file is called", "src/utils.rs", "\n");
    breaks("a file is called", "tests/common/mod.rs", "\n");
    keeps("src/commonly.rs", "\n");
}

#[test]
fn scripts_stop_at_the_first_error() {
    breaks("every script runs", "ci/a", "set -e\n");
}
