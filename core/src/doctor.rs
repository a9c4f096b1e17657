//! What a look at a machine finds: checks of what a transport needs there, made by the transport.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::error::Error;

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// What it belongs to, such as `peers`.
    pub group: &'static str,
    /// What was tried, unique among all.
    pub name: &'static str,
    /// Whether nothing works without it.
    pub required: bool,
    /// How it went.
    pub outcome: Outcome,
    /// What was found, or why it failed, for an operator.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It works.
    Ok,
    /// It works, less well than it could.
    Limited,
    /// It does not work, or is not there.
    Missing,
}

/// What trying something found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    outcome: Outcome,
    detail: String,
    remedy: Option<String>,
}

/// What trying something found, or why it could not be tried to the end.
pub type Tried = Result<Finding, Box<dyn Error>>;

/// Checks of one group, in the order in which they were made.
#[derive(Debug)]
pub struct Group {
    name: &'static str,
    checks: Vec<Check>,
}

impl Check {
    /// Whether nothing works here for the lack of this.
    pub fn is_fatal(&self) -> bool {
        self.required && self.outcome == Outcome::Missing
    }
}

impl Outcome {
    /// In a word, as it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

impl Finding {
    /// It works.
    pub fn ok(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Ok, detail: detail.into(), remedy: None }
    }

    /// It works less well than it could, with what to do about it.
    pub fn limited(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { outcome: Outcome::Limited, detail: detail.into(), remedy }
    }

    /// It is not there.
    pub fn missing(detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Missing, detail: detail.into(), remedy: None }
    }
}

impl Group {
    /// A group without checks.
    pub fn new(name: &'static str) -> Self {
        Self { name, checks: Vec::new() }
    }

    /// Adds what nothing works without. `remedy` is what to do when it is missing.
    pub fn required(&mut self, name: &'static str, remedy: &str, tried: Tried) {
        self.add(name, true, remedy, tried);
    }

    /// Adds what is used where it is there, or limits that bite.
    pub fn optional(&mut self, name: &'static str, remedy: &str, tried: Tried) {
        self.add(name, false, remedy, tried);
    }

    /// All of them.
    pub fn into_checks(self) -> Vec<Check> {
        self.checks
    }

    fn add(&mut self, name: &'static str, required: bool, remedy: &str, tried: Tried) {
        let tried = tried.unwrap_or_else(|error| Finding::missing(in_one_line(&*error)));
        let Finding { outcome, detail, remedy: own } = tried;
        let general = || (outcome == Outcome::Missing).then(|| remedy.to_owned());
        let remedy = own.or_else(general).filter(|remedy| !remedy.is_empty());
        self.checks.push(Check { group: self.name, name, required, outcome, detail, remedy });
    }
}

/// An error and what is behind it.
fn in_one_line(error: &dyn Error) -> String {
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
    fn what_failed_is_missing_and_comes_with_what_to_do() {
        let mut group = Group::new("memory");
        group.required("a", "install a", Err("no a".into()));
        group.optional("b", "install b", Ok(Finding::ok("b is there")));
        group.optional("c", "install c", Ok(Finding::limited("c is old", "upgrade c")));
        group.optional("d", "", Ok(Finding::missing("no d")));
        let checks = group.into_checks();
        let told = checks.iter().map(|check| (check.outcome, check.remedy.as_deref()));
        let expected = [
            (Outcome::Missing, Some("install a")),
            (Outcome::Ok, None),
            (Outcome::Limited, Some("upgrade c")),
            (Outcome::Missing, None),
        ];
        assert!(told.eq(expected), "{checks:?}");
        let fatal = checks.iter().filter(|check| check.is_fatal());
        assert!(fatal.map(|check| check.name).eq(["a"]));
    }
}
