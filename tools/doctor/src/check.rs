//! What a check found.

use std::error::Error;

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// The group of the check, such as `peers`.
    pub group: &'static str,
    /// What was checked; unique among all.
    pub name: &'static str,
    /// Whether nothing works without it.
    pub required: bool,
    /// The outcome.
    pub outcome: Outcome,
    /// What was found, or why it failed, for the operator.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It works.
    Ok,
    /// It works, but worse than it could.
    Limited,
    /// It does not work, or is missing.
    Missing,
}

/// The finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    outcome: Outcome,
    detail: String,
    hint: Option<String>,
}

/// The finding of a check, or why the check could not be completed.
pub type CheckResult = Result<Finding, Box<dyn Error>>;

/// Checks of one group, in the order in which they ran.
#[derive(Debug)]
pub struct Group {
    name: &'static str,
    checks: Vec<Check>,
}

impl Check {
    /// Returns whether this makes everything fail.
    pub fn is_fatal(&self) -> bool {
        self.required && self.outcome == Outcome::Missing
    }
}

impl Outcome {
    /// Returns the word that is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

impl Finding {
    /// Creates the finding that it works.
    pub fn ok(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Ok, detail: detail.into(), hint: None }
    }

    /// Creates the finding that it works worse than it could, with what to do about it.
    pub fn limited(detail: impl Into<String>, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into());
        Self { outcome: Outcome::Limited, detail: detail.into(), hint }
    }

    /// Creates the finding that it is missing.
    pub fn missing(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Missing, detail: detail.into(), hint: None }
    }
}

impl Group {
    /// Creates a group without checks.
    pub fn new(name: &'static str) -> Self {
        Self { name, checks: Vec::new() }
    }

    /// Adds a check of something required. `hint` says what to do when it is missing.
    pub fn required(&mut self, name: &'static str, hint: &str, result: CheckResult) {
        self.add(name, true, hint, result);
    }

    /// Adds a check of something optional, or of a limit.
    pub fn optional(&mut self, name: &'static str, hint: &str, result: CheckResult) {
        self.add(name, false, hint, result);
    }

    /// Returns all checks.
    pub fn into_checks(self) -> Vec<Check> {
        self.checks
    }

    fn add(&mut self, name: &'static str, required: bool, hint: &str, result: CheckResult) {
        let Finding { outcome, detail, hint: own } =
            result.unwrap_or_else(|error| Finding::missing(chain(&*error)));
        let general = || (outcome == Outcome::Missing).then(|| hint.to_owned());
        let hint = own.or_else(general).filter(|hint| !hint.is_empty());
        self.checks.push(Check { group: self.name, name, required, outcome, detail, hint });
    }
}

/// Returns an error and its sources in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        // Some errors print their source themselves.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_is_missing_and_has_advice() {
        let mut group = Group::new("memory");
        group.required("a", "install a", Err("no a".into()));
        group.optional("b", "install b", Ok(Finding::ok("b is there")));
        group.optional("c", "install c", Ok(Finding::limited("c is old", "upgrade c")));
        group.optional("d", "", Ok(Finding::missing("no d")));
        let checks = group.into_checks();
        let reported = checks.iter().map(|check| (check.outcome, check.hint.as_deref()));
        let expected = [
            (Outcome::Missing, Some("install a")),
            (Outcome::Ok, None),
            (Outcome::Limited, Some("upgrade c")),
            (Outcome::Missing, None),
        ];
        assert!(reported.eq(expected), "{checks:?}");
        let fatal = checks.iter().filter(|check| check.is_fatal());
        assert!(fatal.map(|check| check.name).eq(["a"]));
    }
}
