//! What libtest printed.

use std::collections::BTreeMap;

/// Tests by their paths, and whether each passed.
#[derive(Default)]
pub(super) struct Ran(BTreeMap<String, bool>);

impl Ran {
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
            *self.0.entry(path.to_owned()).or_insert(true) &= passed;
        }
    }

    pub(super) fn outcome(&self, path: &str) -> Option<bool> {
        self.0.get(path).copied()
    }

    pub(super) fn passed(&self) -> usize {
        self.0.values().filter(|passed| **passed).count()
    }

    /// How many tests of this module and those below it passed.
    pub(super) fn passed_below(&self, module: &str) -> usize {
        let is_below =
            |path: &str| path.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"));
        self.0.iter().filter(|(path, passed)| **passed && is_below(path)).count()
    }
}
