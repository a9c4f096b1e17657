//! Ratios to the machine's own cost, as `benches/ratios` measures them.

use std::path::Path;
use std::process::{Command, Stdio};

use super::file::{Allowed, Budget};
use super::verdict::{Outcome, Verdict};
use crate::error::Error;

/// What one line of the bench says.
#[derive(Clone, Debug, PartialEq)]
struct Measured {
    name: String,
    /// The median, if a round counted.
    median: Option<f64>,
    kept: u64,
    total: u64,
    /// Why other rounds do not count.
    why: String,
}

/// Measures all ratios and judges each. One that is over its budget is measured once more, and says so: a shared
/// machine exceeds it now and then, a regression always does.
pub(crate) fn judge(root: &Path, budget: &Budget) -> Result<Vec<Verdict>, Error> {
    let measured = measure(root, None)?;
    let mut verdicts = Vec::new();
    for (name, allowed) in &budget.ratios {
        let mut verdict = of_ratio(name, allowed, &measured);
        if verdict.outcome == Outcome::Over && measured.iter().any(|one| one.name == *name) {
            println!("{verdict}: measured once more");
            verdict = of_ratio(name, allowed, &measure(root, Some(name))?);
        }
        verdicts.push(verdict);
    }
    let unknown = measured.iter().filter(|one| !budget.ratios.contains_key(&one.name));
    let text = "has no budget: write one into ci/budget.toml";
    verdicts.extend(unknown.map(|one| Verdict::new(&one.name, Outcome::Over, text)));
    Ok(verdicts)
}

fn measure(root: &Path, only: Option<&str>) -> Result<Vec<Measured>, Error> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--release", "--package", "bellwire-ratios", "gate"]).args(only);
    let output = cargo.current_dir(root).stderr(Stdio::inherit()).output();
    let output = output.map_err(Error::spawn("cargo"))?;
    if !output.status.success() {
        return Err(Error::BudgetBench { status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(line).collect())
}

/// `gate NAME MEDIAN KEPT TOTAL WHY…`
fn line(text: &str) -> Option<Measured> {
    let mut words = text.strip_prefix("gate ")?.splitn(5, ' ');
    Some(Measured {
        name: words.next()?.to_owned(),
        median: words.next()?.parse().ok(),
        kept: words.next()?.parse().ok()?,
        total: words.next()?.parse().ok()?,
        why: words.next().unwrap_or_default().to_owned(),
    })
}

fn of_ratio(name: &str, allowed: &Allowed, measured: &[Measured]) -> Verdict {
    let Some(found) = measured.iter().find(|one| one.name == name) else {
        let text = "stands in the budget and was not measured";
        return Verdict::new(name, Outcome::Over, text);
    };
    let (Allowed { most, rounds }, Measured { median, kept, total, why, .. }) = (allowed, found);
    match median {
        Some(median) if kept >= rounds => {
            let outcome = if median > most { Outcome::Over } else { Outcome::Within };
            let text =
                format!("{median:.2}, budget {most}, the median of {kept} of {total} rounds");
            Verdict::new(name, outcome, text)
        }
        _ => {
            let text = format!("{kept} of {total} rounds count, {rounds} are needed: {why}");
            Verdict::new(name, Outcome::Open, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Verdict {
        let allowed = Allowed { most: 2.0, rounds: 8 };
        of_ratio("hot-call", &allowed, &line(text).into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_median_of_enough_rounds_is_judged() {
        let within = judged("gate hot-call 1.900 8 40 30 moved, 2 preempted");
        assert_eq!(within.outcome, Outcome::Within);
        let over = judged("gate hot-call 2.100 8 40 30 moved, 2 preempted");
        assert_eq!(over.outcome, Outcome::Over);
        let text = over.to_string();
        assert!(text.contains("2.10, budget 2, the median of 8 of 40 rounds"), "{text}");
    }

    #[test]
    fn too_few_rounds_are_not_judged_and_the_reason_is_given() {
        for text in [
            "gate hot-call 9.900 7 40 30 moved, 3 preempted",
            "gate hot-call none 0 40 30 moved, 10 preempted",
            "gate hot-call none 0 0 one processor",
        ] {
            let verdict = judged(text);
            assert_eq!(verdict.outcome, Outcome::Open, "{verdict}");
            let why = text.splitn(6, ' ').last().unwrap();
            assert!(verdict.to_string().contains(why), "{verdict}");
        }
    }

    #[test]
    fn a_missing_measurement_is_a_fault() {
        for text in ["gate other 1.0 8 8", "error: no such bench"] {
            assert_eq!(judged(text).outcome, Outcome::Over, "{text}");
        }
    }
}
