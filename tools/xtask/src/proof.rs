//! Whether every test that `docs/threat-model.md` names was run, and passed.
//!
//! What ran is read from what `ci/test` and `ci/loom` wrote down: one file each, in `target/ran/`, holding what libtest
//! printed. A test that only exists shows nothing. Phases of `ci/kill` need only exist: it fails by itself when one was not
//! hit.

mod model;
mod ran;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::root;
use model::{Claim, Named, Row};
use ran::Ran;

const MODEL: &str = "docs/threat-model.md";
/// Where the phases are that `ci/kill` hits.
const PHASES: &str = "tools/kill/src/phase.rs";

/// What to read instead of what the jobs wrote.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What libtest printed, from a file; by default from those in `target/ran`.
    #[arg(long, value_name = "FILE")]
    ran: Vec<PathBuf>,
}

/// Compares the model with what ran, and prints what does not agree; `true` when all does.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let text = read(&root.join(MODEL))?;
    let files = if args.ran.is_empty() { written(root)? } else { args.ran.clone() };
    let mut ran = Ran::default();
    for file in &files {
        ran.add(&read(file)?);
    }
    ran.add_phases(&read(&root.join(PHASES))?);
    let rows = model::rows(&text);
    let faults = faults(&rows, &ran);
    for fault in &faults {
        println!("{fault}");
    }
    let named: usize = rows.iter().map(|row| row.named.len()).sum();
    println!(
        "summary: {} attacks and faults, {named} claims, {} tests ran, {} faults",
        rows.len(),
        ran.passed(),
        faults.len()
    );
    Ok(faults.is_empty() && !rows.is_empty())
}

/// A line for each row without a test, and for each claim that does not hold.
fn faults(rows: &[Row], ran: &Ran) -> Vec<String> {
    let mut faults = Vec::new();
    for row in rows {
        let place = format!("{MODEL}:{}", row.line);
        if row.named.is_empty() {
            faults.push(format!("{place}: {:?} names no test that ran", row.attack));
        }
        faults.extend(row.trouble.iter().map(|trouble| format!("{place}: {trouble}")));
        faults.extend(row.named.iter().filter_map(|named| {
            let why = fault(named, ran)?;
            Some(format!("{place}: {why}"))
        }));
    }
    faults
}

fn fault(named: &Named, ran: &Ran) -> Option<String> {
    let module = &named.module;
    match &named.claim {
        Claim::Test(name) => match ran.outcome(module, name) {
            Some(true) => None,
            Some(false) => Some(format!("{module}::{name} failed")),
            None => Some(format!("{module}::{name} did not run")),
        },
        Claim::Phase(name) => {
            (!ran.has_phase(name)).then(|| format!("{name:?} is no phase of {PHASES}"))
        }
        Claim::AtLeast(least) => {
            let found = ran.passed_below(module);
            (found < *least).then(|| format!("{found} tests of {module} ran, not {least}"))
        }
    }
}

/// The files that the jobs wrote.
fn written(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let dir = root::target_dir(root).join("ran");
    let entries = fs::read_dir(&dir);
    let files = entries.and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
    });
    match files {
        Ok(files) if !files.is_empty() => Ok(files),
        _ => Err(Error::NothingRan { dir }),
    }
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::file("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        # Model\n\
        \n\
        | attack or fault | defence | where | test |\n\
        | --- | --- | --- | --- |\n\
        | lies | checked | `a.rs` | `it_is_found`, `it_is_told` (tests lies/words) |\n\
        | floods | bounded | `b.rs` | `2 or more` (tests lies), `x` (unit cache) |\n";

    fn found(text: &str, ran: &str) -> Vec<String> {
        let mut all = Ran::default();
        all.add(ran);
        faults(&model::rows(text), &all)
    }

    const RAN: &str = "\
        running 4 tests\n\
        test lies::words::it_is_found ... ok\n\
        test lies::words::it_is_told ... ok\n\
        test cache::x ... ok\n\
        test result: ok. 3 passed; 0 failed\n";

    #[test]
    fn what_ran_is_no_fault() {
        assert_eq!(found(TEXT, RAN), [""; 0]);
    }

    #[test]
    fn what_did_not_run_or_failed_is_one() {
        let without = RAN.replace("test cache::x ... ok\n", "");
        assert_eq!(found(TEXT, &without), ["docs/threat-model.md:6: cache::x did not run"]);
        let failed = RAN.replace("it_is_told ... ok", "it_is_told ... FAILED");
        assert_eq!(found(TEXT, &failed).len(), 2, "the count of the module falls, too");
    }

    #[test]
    fn a_test_of_the_same_name_elsewhere_does_not_count() {
        let elsewhere = RAN.replace("lies::words::it_is_found", "truths::words::it_is_found");
        assert!(found(TEXT, &elsewhere)[0].contains("lies::words::it_is_found did not run"));
    }

    #[test]
    fn a_test_may_move_into_a_module_below() {
        let moved = RAN.replace("lies::words::it_is_found", "lies::words::first::it_is_found");
        assert_eq!(found(TEXT, &moved), [""; 0]);
        let failed = moved.replace("it_is_found ... ok", "it_is_found ... FAILED");
        assert!(found(TEXT, &failed)[0].contains("lies::words::it_is_found failed"));
    }

    #[test]
    fn a_row_without_a_test_is_one() {
        for cell in ["none yet", "`no_place`", "`no_place` elsewhere", ""] {
            let text = TEXT.replace("`it_is_found`, `it_is_told` (tests lies/words)", cell);
            assert!(!found(&text, RAN).is_empty(), "{cell:?}");
        }
    }

    #[test]
    fn a_phase_has_to_exist() {
        let text =
            TEXT.replace("(unit cache)", "(unit cache), `client/write`, `client/nap` (kill)");
        let text = text.replace("attack or fault", "fault");
        let mut all = Ran::default();
        all.add(RAN);
        all.add_phases("    phase(\"client/write\", Client),\n");
        let expected =
            "docs/threat-model.md:6: \"client/nap\" is no phase of tools/kill/src/phase.rs";
        assert_eq!(faults(&model::rows(&text), &all), [expected]);
    }

    #[test]
    fn a_place_that_is_none_is_one() {
        let text = TEXT.replace("(unit cache)", "(attic cache)");
        assert_eq!(found(&text, RAN), ["docs/threat-model.md:6: \"attic cache\" is no place"]);
    }
}
