//! The seeds, through the functions that the fuzzer feeds: what broke a promise once is tried in every test run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bellwire_fuzz::{TARGETS, seeds};

fn dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target)
}

#[test]
fn no_seed_breaks_a_promise() {
    for (target, run) in TARGETS {
        let mut count = 0;
        for file in fs::read_dir(dir(target)).unwrap() {
            let path = file.unwrap().path();
            let input = fs::read(&path).unwrap();
            let ran = catch_unwind(AssertUnwindSafe(|| run(&input)));
            assert!(ran.is_ok(), "{} breaks a promise", path.display());
            count += 1;
        }
        assert!(count > 0, "{target} has no seeds");
    }
}

#[test]
fn the_seeds_are_what_the_command_writes() {
    for seed in seeds::all() {
        let file = dir(seed.target).join(&seed.name);
        let found = fs::read(&file).ok();
        assert_eq!(
            found,
            Some(seed.bytes),
            "{}: run cargo run -p bellwire-fuzz --bin seeds",
            file.display()
        );
    }
}

#[test]
fn every_target_has_a_program() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut found: Vec<String> = fs::read_dir(programs)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, names);
}
