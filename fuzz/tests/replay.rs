//! The seeds, through the functions that the fuzzer feeds: what broke a promise once is tried in every test run.
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "tests")]

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
    /// Changed copies of each seed.
    const COPIES: u64 = 100;

    /// Numbers that look random: splitmix64. They are the same in each run: `ci/fuzz` looks for inputs that reach more of the
    /// code.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ word >> 31) % end
        }

        fn bytes(&mut self) -> Vec<u8> {
            (0..self.below(LONGEST)).map(|_| self.below(256) as u8).collect()
        }

        /// Changes a few bytes, and the length now and then.
        fn change(&mut self, bytes: &mut Vec<u8>) {
            match self.below(8) {
                0 => bytes.truncate(self.below(bytes.len() as u64 + 1) as usize),
                1 => bytes.push(self.below(256) as u8),
                _ => {}
            }
            for _ in 0..self.below(4) {
                let at = self.below(bytes.len().max(1) as u64) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = self.below(256) as u8;
                }
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
            let mut dice = Dice(0);
            (0..INPUTS).for_each(|_| holds(target, *run, &dice.bytes()));
        }
    }

    #[test]
    fn no_changed_seed_breaks_a_promise() {
        let mut dice = Dice(0);
        for seed in seeds::all() {
            let (_, run) = TARGETS.iter().find(|(name, _)| *name == seed.target).unwrap();
            for _ in 0..COPIES {
                let mut input = seed.bytes.clone();
                dice.change(&mut input);
                holds(seed.target, *run, &input);
            }
        }
    }
}
