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

mod random {
    use super::*;

    /// Inputs for each target.
    const INPUTS: u64 = 2_000;
    /// How long an input is at most.
    const LONGEST: u64 = 600;

    /// The inputs are the same in each run: `ci/fuzz` looks for those that reach more of the code.
    #[test]
    fn no_input_breaks_a_promise() {
        for (target, run) in TARGETS {
            for number in 0..INPUTS {
                let input = input(number);
                let ran = catch_unwind(AssertUnwindSafe(|| run(&input)));
                assert!(ran.is_ok(), "{target}: input {number} breaks a promise");
            }
        }
    }

    /// Bytes that look random: splitmix64.
    fn input(number: u64) -> Vec<u8> {
        let mut state = number.wrapping_mul(0xd134_2543_de82_ef95);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        };
        let len = next() % LONGEST;
        (0..len).map(|_| next().to_le_bytes()[0]).collect()
    }
}
