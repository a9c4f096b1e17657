//! Whether every test that `docs/threat-model.md` names was run, and passed.
//!
//! What ran is read from what `ci/test` and `ci/loom` wrote down: one file each, in `target/ran/`, holding what libtest
//! printed. A test that only exists shows nothing. Phases of `ci/kill` need only exist: it fails by itself when one was not
//! hit.

mod model;
mod results;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::root;
use model::{Claim, Named, Row};
use results::TestResults;

const MODEL: &str = "docs/threat-model.md";
/// Where the phases are that `ci/kill` hits.
const PHASES: &str = "tools/kill/src/phase.rs";

/// Compares the model with what ran, and prints what does not agree; `true` when all does.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let text = read(&root.join(MODEL))?;
    let mut results = TestResults::default();
    for file in &written(root)? {
        results.add(&read(file)?);
    }
    results.add_phases(&read(&root.join(PHASES))?);
    let rows = model::rows(&text);
    let faults = faults(&rows, &results);
    for fault in &faults {
        println!("{fault}");
    }
    let named: usize = rows.iter().map(|row| row.named.len()).sum();
    println!(
        "summary: {} attacks and faults, {named} claims, {} tests ran, {} faults",
        rows.len(),
        results.passed(),
        faults.len()
    );
    Ok(faults.is_empty() && !rows.is_empty())
}

/// A line for each row without a test, and for each claim that does not hold.
fn faults(rows: &[Row], results: &TestResults) -> Vec<String> {
    let mut faults = Vec::new();
    for row in rows {
        let place = format!("{MODEL}:{}", row.line);
        if row.named.is_empty() {
            faults.push(format!("{place}: {:?} names no test that ran", row.attack));
        }
        faults.extend(row.trouble.iter().map(|trouble| format!("{place}: {trouble}")));
        faults.extend(row.named.iter().filter_map(|named| {
            let why = fault(named, results)?;
            Some(format!("{place}: {why}"))
        }));
    }
    faults
}

fn fault(named: &Named, results: &TestResults) -> Option<String> {
    let module = &named.module;
    match &named.claim {
        Claim::Test(name) => match results.outcome(module, name) {
            Some(true) => None,
            Some(false) => Some(format!("{module}::{name} failed")),
            None => Some(format!("{module}::{name} did not run")),
        },
        Claim::Phase(name) => {
            (!results.has_phase(name)).then(|| format!("{name:?} is no phase of {PHASES}"))
        }
        Claim::AtLeast(least) => {
            let found = results.passed_below(module);
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
        | violations | checked | `a.rs` | `it_is_found`, `it_is_reported` (tests misbehaving/words) |\n\
        | floods | bounded | `b.rs` | `2 or more` (tests misbehaving), `x` (unit cache) |\n";

    fn found(text: &str, results: &str) -> String {
        let mut all = TestResults::default();
        all.add(results);
        all.add_phases("    phase(\"client/write\", Client),\n");
        faults(&model::rows(text), &all).join("\n")
    }

    const RAN: &str = "\
        running 4 tests\n\
        test misbehaving::words::it_is_found ... ok\n\
        test misbehaving::words::it_is_reported ... ok\n\
        test cache::x ... ok\n\
        test result: ok. 3 passed; 0 failed\n";

    #[test]
    fn only_a_test_that_ran_differently_from_the_model_is_a_fault() {
        // What is changed in the model or in what ran, and the fault.
        let tests = "`it_is_found`, `it_is_reported` (tests misbehaving/words)";
        let rows = [
            ("", "", ""),
            ("test cache::x ... ok\n", "", "docs/threat-model.md:6: cache::x did not run"),
            // The count of the module falls, too.
            (
                "it_is_reported ... ok",
                "it_is_reported ... FAILED",
                "docs/threat-model.md:5: misbehaving::words::it_is_reported failed\n\
                 docs/threat-model.md:6: 1 tests of misbehaving ran, not 2",
            ),
            // A test of the same name elsewhere does not count; it may move into a module below.
            (
                "misbehaving::words::it_is_found",
                "truths::words::it_is_found",
                "docs/threat-model.md:5: misbehaving::words::it_is_found did not run\n\
                 docs/threat-model.md:6: 1 tests of misbehaving ran, not 2",
            ),
            ("misbehaving::words::it_is_found", "misbehaving::words::first::it_is_found", ""),
            (
                "misbehaving::words::it_is_found ... ok",
                "misbehaving::words::first::it_is_found ... FAILED",
                "docs/threat-model.md:5: misbehaving::words::it_is_found failed\n\
                 docs/threat-model.md:6: 1 tests of misbehaving ran, not 2",
            ),
            // A row without a test.
            (tests, "none yet", "docs/threat-model.md:5: \"violations\" names no test that ran"),
            (tests, "", "docs/threat-model.md:5: \"violations\" names no test that ran"),
            // A place or a phase that is none.
            (
                tests,
                "`no_place`",
                "docs/threat-model.md:5: \"violations\" names no test that ran\n\
                 docs/threat-model.md:5: \"\" is no place",
            ),
            (
                "(unit cache)",
                "(attic cache)",
                "docs/threat-model.md:6: \"attic cache\" is no place",
            ),
            (
                "(unit cache)",
                "(unit cache), `client/write`, `client/nap` (kill)",
                "docs/threat-model.md:6: \"client/nap\" is no phase of tools/kill/src/phase.rs",
            ),
        ];
        for (from, to, fault) in rows {
            let [text, results] = [TEXT, RAN].map(|text| text.replace(from, to));
            assert_eq!(found(&text, &results), fault, "{from} -> {to}");
        }
        let phases = TEXT.replace("attack or fault", "fault");
        assert_eq!(found(&phases, RAN), "", "a table of faults");
    }
}
