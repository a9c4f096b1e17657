//! Conditions that have to hold at the end of a run of the demo or of the soak.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::out::{self, BAD, FAINT, GOOD, wrapped};

/// A condition that has to hold.
#[derive(Clone, Debug)]
pub struct Check {
    /// The key in JSON.
    pub name: &'static str,
    /// What holds, with figures.
    pub text: String,
    /// `None` if it cannot be determined.
    pub ok: Option<bool>,
    /// Advice if it does not hold; may be empty.
    pub next: &'static str,
}

impl Check {
    /// Creates one that was determined.
    pub fn new(name: &'static str, text: impl Into<String>, ok: bool, next: &'static str) -> Self {
        Self { name, text: text.into(), ok: Some(ok), next }
    }

    /// Returns whether it was determined that it does not hold.
    pub fn fails(&self) -> bool {
        self.ok == Some(false)
    }
}

/// Returns whether each condition holds by its name.
pub fn verdicts(checks: &[Check]) -> Map<String, Value> {
    checks.iter().map(|check| (check.name.to_owned(), check.ok.into())).collect()
}

/// Prints a line for each, and advice for those that fail.
pub fn print(checks: &[Check], to: &mut impl Write) -> io::Result<()> {
    let mut last = "";
    for check in checks {
        // Several may be undetermined for the same reason.
        if check.ok.is_none() && check.text == last {
            continue;
        }
        last = &check.text;
        let (style, mark) = match check.ok {
            Some(true) => (GOOD, "✓"),
            Some(false) => (BAD, "✗"),
            None => (FAINT, "–"),
        };
        writeln!(to, "  {style}{mark}{style:#} {}", wrapped(&check.text, out::width(), 4))?;
        if check.fails() && !check.next.is_empty() {
            let next = wrapped(check.next, out::width(), 10);
            writeln!(to, "    {FAINT}next:{FAINT:#} {next}")?;
        }
    }
    Ok(())
}
