use std::fmt::{self, Display, Formatter};

use super::counts::{Counted, Tools};
use super::file::Budget;

const UPDATE: &str = "cargo xtask budget --update";

/// The verdict on one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Within { name: String, text: String },
    Over { name: String, text: String },
    Open { name: String, text: String },
}

impl Verdict {
    pub(crate) fn is_within(&self) -> bool {
        matches!(self, Self::Within { .. })
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over { .. })
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, word, text) = match self {
            Self::Within { name, text } => (name, "ok", text),
            Self::Over { name, text } => (name, "OVER BUDGET", text),
            Self::Open { name, text } => (name, "not judged", text),
        };
        write!(f, "{name:<24} {word:<11} {text}")
    }
}

/// Each count against its budget: those without one, and budgets that nothing was counted for, are faults too.
pub(crate) fn of_counts(budget: &Budget, tools: &Tools, counted: &[Counted]) -> Vec<Verdict> {
    let same = budget.tools == *tools;
    let margin = if same { budget.margin } else { budget.margin_of_other_tools };
    let mut verdicts: Vec<Verdict> =
        counted.iter().map(|one| of_count(budget, margin, same, one)).collect();
    let missing =
        budget.counts.iter().filter(|(name, _)| counted.iter().all(|one| one.name != *name));
    verdicts.extend(missing.map(|(name, _)| Verdict::Over {
        name: name.clone(),
        text: format!("stands in the budget and was not counted; if it is gone: {UPDATE}"),
    }));
    if !same {
        verdicts.push(Verdict::Open {
            name: "toolchain".to_owned(),
            text: format!(
                "the budget is of {}, this is {}: counts may differ by {margin} %; {UPDATE}",
                budget.tools, tools
            ),
        });
    }
    verdicts
}

fn of_count(budget: &Budget, margin: f64, same: bool, counted: &Counted) -> Verdict {
    let Counted { name, instructions } = counted;
    let name = name.clone();
    let Some((_, allowed)) = budget.counts.iter().find(|(known, _)| *known == name) else {
        let text = format!("{instructions:.0} instructions and no budget: {UPDATE}");
        return Verdict::Over { name, text };
    };
    let most = allowed * (1.0 + margin / 100.0);
    let change = (instructions / allowed - 1.0) * 100.0;
    let text = format!(
        "{instructions:.0} instructions, budget {allowed:.0} and {margin} % more ({change:+.1} %)"
    );
    if *instructions > most {
        let text = format!(
            "{text}: find what was added, or say in the commit why it is worth it, with {UPDATE}"
        );
        return Verdict::Over { name, text };
    }
    if same && change < -margin {
        return Verdict::Within { name, text: format!("{text}: keep what was gained, {UPDATE}") };
    }
    Verdict::Within { name, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(rustc: &str) -> Tools {
        Tools {
            rustc: rustc.to_owned(),
            valgrind: "valgrind-1".to_owned(),
            libc: "libc 1".to_owned(),
        }
    }

    fn judged(counts: &[(&str, f64)], rustc: &str) -> Vec<Verdict> {
        let budget = Budget::of(tools("rustc 1"), 3.0, 10.0, &[("call", 1000.0)]);
        let counted: Vec<_> = counts
            .iter()
            .map(|&(name, instructions)| Counted { name: name.to_owned(), instructions })
            .collect();
        of_counts(&budget, &tools(rustc), &counted)
    }

    #[test]
    fn what_stays_within_the_margin_passes() {
        assert!(judged(&[("call", 1029.0)], "rustc 1").iter().all(Verdict::is_within));
    }

    #[test]
    fn what_exceeds_it_fails_with_the_figure_its_budget_and_the_command() {
        let verdicts = judged(&[("call", 1031.0)], "rustc 1");
        assert!(verdicts[0].is_over());
        let line = verdicts[0].to_string();
        for part in ["call", "1031", "1000", "3 %", "+3.1 %", UPDATE] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn another_compiler_has_a_wider_margin_and_says_so() {
        let verdicts = judged(&[("call", 1090.0)], "rustc 2");
        assert!(verdicts[0].is_within() && verdicts[1].is_open(), "{verdicts:?}");
        assert!(judged(&[("call", 1110.0)], "rustc 2")[0].is_over());
    }

    #[test]
    fn what_is_new_or_gone_is_a_fault() {
        let verdicts = judged(&[("other", 1.0)], "rustc 1");
        assert_eq!(verdicts.len(), 2);
        assert!(verdicts.iter().all(Verdict::is_over), "{verdicts:?}");
    }

    #[test]
    fn what_was_gained_is_to_be_kept() {
        let line = judged(&[("call", 900.0)], "rustc 1")[0].to_string();
        assert!(line.contains("keep what was gained"), "{line}");
    }
}
