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
fn the_checked_in_seeds_are_the_generated_ones() {
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
    use fastrand::Rng;

    use super::*;

    /// Inputs for each target.
    const INPUTS: u64 = 2_000;
    /// How long an input is at most.
    const LONGEST: usize = 600;
    /// Changed copies of each seed.
    const COPIES: u64 = 100;

    /// They are the same in each run: `ci/fuzz` looks for inputs that reach more of the code.
    const SEED: u64 = 0;

    /// Changes a few bytes, and the length now and then.
    fn change(random: &mut Rng, bytes: &mut Vec<u8>) {
        match random.u8(..8) {
            0 => bytes.truncate(random.usize(..=bytes.len())),
            1 => bytes.push(random.u8(..)),
            _ => {}
        }
        for _ in 0..random.u8(..4) {
            if let Some(byte) = random.choice(bytes.iter_mut()) {
                *byte = random.u8(..);
            }
        }
    }

    #[track_caller]
    fn holds(target: &str, run: fn(&[u8]), input: &[u8]) {
        let ran = catch_unwind(AssertUnwindSafe(|| run(input)));
        assert!(ran.is_ok(), "{target}: this input breaks a promise: {input:?}");
    }

    #[test]
    fn no_input_breaks_a_promise() {
        for (target, run) in TARGETS {
            let mut random = Rng::with_seed(SEED);
            for _ in 0..INPUTS {
                let mut input = vec![0; random.usize(..LONGEST)];
                random.fill(&mut input);
                holds(target, *run, &input);
            }
        }
    }

    #[test]
    fn no_changed_seed_breaks_a_promise() {
        let mut random = Rng::with_seed(SEED);
        for seed in seeds::all() {
            let (_, run) = TARGETS.iter().find(|(name, _)| *name == seed.target).unwrap();
            for _ in 0..COPIES {
                let mut input = seed.bytes.clone();
                change(&mut random, &mut input);
                holds(seed.target, *run, &input);
            }
        }
    }
}
