//! `ci/rules` finds each kind of fault that it checks for, and reports nothing where there is none.

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

/// A rule, none for what keeps them all; a file, and all that is in it.
const FILES: [(&str, &str, &str); 47] = [
    // Operating systems are told apart in the transports alone.
    ("operating systems", "core/src/a.rs", "#[cfg(windows)]\n"),
    ("operating systems", "src/a.rs", "#[cfg(all(unix, test))]\n"),
    ("operating systems", "cli/src/a.rs", "if cfg!(target_os = \"linux\") {}\n"),
    ("", "transport-win/src/a.rs", "#[cfg(windows)]\n"),
    ("", "src/transport.rs", "#[cfg(windows)]\n"),
    ("", "core/src/a.rs", "// Not here: #[cfg(windows)]\n"),
    // Atomics are named in one place.
    ("atomics come from", "src/a.rs", "use std::sync::atomic::AtomicU64;\n"),
    ("atomics come from", "transport-memfd/src/a.rs", "use core::sync::{atomic::AtomicU64};\n"),
    ("", "core/src/sync.rs", "pub use core::sync::atomic::AtomicU64;\n"),
    ("", "benches/a.rs", "use std::sync::atomic::AtomicU64;\n"),
    // Core is pure.
    ("core names no transport", "core/src/a.rs", "use std::time::Instant;\n"),
    ("core names no transport", "core/src/a.rs", "bellwire_memfd::open();\n"),
    ("", "src/a.rs", "use std::time::Instant;\n"),
    // Sequential consistency is for fences.
    ("loom reads", "core/src/a.rs", "a.load(Ordering::SeqCst);\n"),
    ("", "core/src/a.rs", "// Pairs with the one in b.\nfence(Ordering::SeqCst);\n"),
    // A fence names its partner.
    ("every fence names", "core/src/a.rs", "// For good measure.\nfence(Ordering::SeqCst);\n"),
    ("every fence names", "core/src/a.rs", "// Pairs with b.\na();\nfence(Ordering::Release);\n"),
    (
        "",
        "core/src/a.rs",
        "// Partner: the one in b, which\n// is not here.\nfence(Ordering::SeqCst);\n",
    ),
    // Unsafe code is allowed with a reason.
    ("unsafe code", "src/a.rs", "#![allow(unsafe_code)]\n"),
    ("", "src/a.rs", "#![allow(unsafe_code, reason = \"maps memory\")]\n"),
    ("", "src/a.rs", "#![allow(\n    unsafe_code,\n    reason = \"maps memory\"\n)]\n"),
    // What is published is documented and licensed.
    ("a crate that is published", "a/Cargo.toml", "[package]\nname = \"a\"\n"),
    ("", "a/Cargo.toml", "[package]\nname = \"a\"\npublish = false\n"),
    ("", "Cargo.toml", "[workspace]\n"),
    // Tests are not ignored.
    ("no test is ignored", "tests/a.rs", "#[ignore = \"slow\"]\n"),
    ("no test is ignored", "tests/a.rs", "#[cfg_attr(loom, ignore)]\n"),
    // Nothing is left to do.
    ("what is left to do", "src/a.rs", "// TODO: this\n"),
    ("what is left to do", "docs/a.md", "FIXME\n"),
    // Paths of one machine are found.
    ("no path of one machine", "docs/a.md", "see /home/me/notes\n"),
    ("no path of one machine", "src/a.rs", "let dir = \"/Users/me/main\";\n"),
    ("", "docs/a.md", "https://example.org/home/me and ~/home/x\n"),
    // Tests do not sleep.
    ("time is an argument", "tests/a.rs", "std::thread::sleep(a);\n"),
    // Files are called after their noun.
    ("a file is called", "src/utils.rs", "\n"),
    ("a file is called", "tests/common/mod.rs", "\n"),
    ("", "src/commonly.rs", "\n"),
    // Retired words stay away.
    ("one word for one thing", "src/a.rs", "struct Parcel;\n"),
    ("one word for one thing", "tools/a.rs", "let planted = 1;\n"),
    ("one word for one thing", "src/a.rs", "fn free_seat_of() {}\n"),
    ("one word for one thing", "go/a.go", "type FreeSeat struct{}\n"),
    ("one word for one thing", "go/a.go", "func gaveWay() {}\n"),
    ("one word for one thing", "c/a.h", "#define BW_GIVE_WAY 1\n"),
    ("one word for one thing", "src/a.rs", "const MOST_USERS: u32 = 1;\n"),
    ("one word for one thing", "src/when_full.rs", "\n"),
    ("", "src/a.rs", "// A Seat is free.\n"),
    ("", "c/a.h", " * A seat is free.\n"),
    ("", "src/a.rs", "fn seating(most_users: u32, replanted: bool, answering: bool) {}\n"),
    // Scripts stop at the first error.
    ("every script runs", "ci/a", "set -e\n"),
];

/// Of a file that breaks one, exactly one rule is broken, and the report leads to the place.
#[test]
fn each_rule_finds_its_violations_alone() {
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let empty = rules(&[]);
    assert!(empty.status.success(), "{}", said(&empty));
    for (rule, path, text) in FILES {
        let output = rules(&[(path, text)]);
        let said = said(&output);
        assert_eq!(output.status.success(), rule.is_empty(), "{path}: {text}\n{output:?}");
        if !rule.is_empty() {
            assert!(said.contains(&format!("BROKEN: {rule}")), "{said}");
            let places = [format!("  {path}:"), format!("  {path}\n")];
            assert!(places.iter().any(|place| said.contains(place)), "{said}");
            assert!(said.contains(" 1 broken"), "{said}");
        }
    }
}
