//! The files are what is made now, and core does what they say.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bellwire_vectors::{Case, files, parse};

fn stored(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire/vectors");
    std::fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn the_checked_in_vectors_are_the_generated_ones() {
    let mut bytes = 0;
    for file in files() {
        let stored = stored(file.name);
        assert!(stored == file.text(), "{}: run cargo run -p bellwire-vectors", file.name);
        bytes += stored.len();
    }
    assert!(bytes < 300_000, "{bytes} bytes are too many");
}

/// From what stands in the files: whoever reads them finds all that it takes.
#[test]
fn core_matches_the_vectors() {
    for file in files() {
        let cases = parse(&stored(file.name));
        assert!(cases == file.cases, "{}", file.name);
        let fails = |case: &&Case| catch_unwind(AssertUnwindSafe(|| (file.run)(case))).is_err();
        let failed: Vec<_> = cases.iter().filter(fails).map(|case| &case.name).collect();
        assert!(failed.is_empty(), "{}: {failed:?}", file.name);
    }
}
