use std::fmt::{self, Display, Formatter};

use super::counts::{Counted, Tools};
use super::file::Budget;

const UPDATE: &str = "cargo xtask budget --update";

/// The verdict on one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Within,
    Over,
    Open,
}

impl Verdict {
    pub(super) fn new(name: &str, outcome: Outcome, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), outcome, text: text.into() }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, outcome, text } = self;
        let word = match outcome {
            Outcome::Within => "ok",
            Outcome::Over => "OVER BUDGET",
            Outcome::Open => "not judged",
        };
        write!(f, "{name:<24} {word:<11} {text}")
    }
}

/// Each count against its budget: those without one, and budgets that nothing was counted for, are faults too.
pub(crate) fn of_counts(budget: &Budget, tools: &Tools, counted: &[Counted]) -> Vec<Verdict> {
    let same = budget.taken_with == *tools;
    let margins = &budget.margin_percent;
    let margin = if same { margins.same_tools } else { margins.other_tools };
    let mut verdicts: Vec<Verdict> =
        counted.iter().map(|one| of_count(budget, margin, same, one)).collect();
    let is_missing = |name: &&String| counted.iter().all(|one| one.name != **name);
    verdicts.extend(budget.instructions.keys().filter(is_missing).map(|name| {
        let text = format!("stands in the budget and was not counted; if it is gone: {UPDATE}");
        Verdict::new(name, Outcome::Over, text)
    }));
    if !same {
        let text = format!(
            "the budget is of {}, this is {tools}: counts may differ by {margin} %; {UPDATE}",
            budget.taken_with
        );
        verdicts.push(Verdict::new("toolchain", Outcome::Open, text));
    }
    verdicts
}

fn of_count(budget: &Budget, margin: f64, same: bool, counted: &Counted) -> Verdict {
    let Counted { name, instructions } = counted;
    let Some(instructions) = instructions else {
        let text = "too few samples: most answers were late, since the processors are busy or share no cache";
        return Verdict::new(name, Outcome::Open, text);
    };
    let Some(allowed) = budget.instructions.get(name) else {
        let text = format!("{instructions:.0} instructions and no budget: {UPDATE}");
        return Verdict::new(name, Outcome::Over, text);
    };
    let most = allowed * (1.0 + margin / 100.0);
    let change = (instructions / allowed - 1.0) * 100.0;
    let text = format!(
        "{instructions:.0} instructions, budget {allowed:.0} and {margin} % more ({change:+.1} %)"
    );
    if *instructions > most {
        let advice = "find what was added, or say in the commit why it is worth it, with";
        return Verdict::new(name, Outcome::Over, format!("{text}: {advice} {UPDATE}"));
    }
    let is_gained = same && change < -margin;
    let advice =
        if is_gained { format!(": keep what was gained, {UPDATE}") } else { String::new() };
    Verdict::new(name, Outcome::Within, text + &advice)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const BUDGET: &str = "taken-with = { rustc = 'rustc 1', valgrind = 'valgrind-1', libc = 'libc 1' }\n\
        margin-percent = { same-tools = 3, other-tools = 10 }\n\
        instructions = { call = 1000 }\nratios = {}\n";

    fn judged(counts: &[(&str, f64)], rustc: &str) -> Vec<Verdict> {
        let budget = Budget::parse(PathBuf::new(), BUDGET).unwrap();
        let count = |&(name, instructions): &(&str, f64)| Counted {
            name: name.to_owned(),
            instructions: Some(instructions),
        };
        let counted: Vec<_> = counts.iter().map(count).collect();
        of_counts(
            &budget,
            &Tools { rustc: rustc.to_owned(), ..budget.taken_with.clone() },
            &counted,
        )
    }

    fn outcomes(verdicts: &[Verdict]) -> Vec<Outcome> {
        verdicts.iter().map(|verdict| verdict.outcome).collect()
    }

    #[test]
    fn a_count_within_the_margin_passes() {
        assert_eq!(outcomes(&judged(&[("call", 1029.0)], "rustc 1")), [Outcome::Within]);
    }

    #[test]
    fn a_count_above_it_fails_with_the_figure_its_budget_and_the_command() {
        let verdicts = judged(&[("call", 1031.0)], "rustc 1");
        assert_eq!(outcomes(&verdicts), [Outcome::Over]);
        let line = verdicts[0].to_string();
        for part in ["call", "1031", "1000", "3 %", "+3.1 %", UPDATE] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn another_compiler_has_a_wider_margin_and_an_open_outcome() {
        let verdicts = judged(&[("call", 1090.0)], "rustc 2");
        assert_eq!(outcomes(&verdicts), [Outcome::Within, Outcome::Open]);
        assert_eq!(judged(&[("call", 1110.0)], "rustc 2")[0].outcome, Outcome::Over);
    }

    #[test]
    fn a_new_or_missing_count_is_a_fault() {
        let verdicts = judged(&[("other", 1.0)], "rustc 1");
        assert_eq!(outcomes(&verdicts), [Outcome::Over; 2]);
    }

    #[test]
    fn a_figure_without_a_sample_is_not_judged() {
        let budget = Budget::parse(PathBuf::new(), BUDGET).unwrap();
        let counted = [Counted { name: "call".to_owned(), instructions: None }];
        assert_eq!(outcomes(&of_counts(&budget, &budget.taken_with, &counted)), [Outcome::Open]);
    }

    #[test]
    fn a_gain_has_to_be_recorded() {
        let line = judged(&[("call", 900.0)], "rustc 1")[0].to_string();
        assert!(line.contains("keep what was gained"), "{line}");
    }
}
