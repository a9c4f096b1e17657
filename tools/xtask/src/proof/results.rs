//! What libtest printed.

use std::collections::{BTreeMap, BTreeSet};

/// Tests by their paths, and whether each passed; and the phases that there are.
#[derive(Default)]
pub(super) struct TestResults {
    tests: BTreeMap<String, bool>,
    phases: BTreeSet<String>,
}

impl TestResults {
    /// Reads what one or more runs printed. A path that several have passed only if it did in each.
    pub(super) fn add(&mut self, text: &str) {
        for line in text.lines() {
            let Some((path, outcome)) =
                line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
            else {
                continue;
            };
            let path = path.strip_suffix(" - should panic").unwrap_or(path);
            // How long it took may follow.
            let passed = outcome == "ok" || outcome.starts_with("ok <");
            *self.tests.entry(path.to_owned()).or_insert(true) &= passed;
        }
    }

    /// Reads the phases of `ci/kill` from their source.
    pub(super) fn add_phases(&mut self, source: &str) {
        let names = source.lines().filter_map(|line| {
            let (name, _) = line.trim_start().strip_prefix("phase(\"")?.split_once('"')?;
            Some(name.to_owned())
        });
        self.phases.extend(names);
    }

    pub(super) fn has_phase(&self, name: &str) -> bool {
        self.phases.contains(name)
    }

    /// Whether the test of this name passed, in the module or below it; in each place, if it is in several.
    pub(super) fn outcome(&self, module: &str, name: &str) -> Option<bool> {
        let named = self.tests.iter().filter(|(path, _)| {
            let below = path.strip_prefix(module).and_then(|rest| rest.strip_suffix(name));
            below.is_some_and(|between| between.starts_with("::") && between.ends_with("::"))
        });
        named.map(|(_, passed)| *passed).reduce(|all, passed| all && passed)
    }

    pub(super) fn passed(&self) -> usize {
        self.tests.values().filter(|passed| **passed).count()
    }

    /// How many tests of this module and those below it passed.
    pub(super) fn passed_below(&self, module: &str) -> usize {
        let is_below =
            |path: &str| path.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"));
        self.tests.iter().filter(|(path, passed)| **passed && is_below(path)).count()
    }
}
