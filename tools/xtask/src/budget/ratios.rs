//! Ratios to the machine's own cost, as `benches/gate.rs` measures them.

use std::path::Path;
use std::process::{Command, Stdio};

use super::file::{Allowed, Budget};
use super::verdict::Verdict;
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
    for allowed in &budget.ratios {
        let mut verdict = of_ratio(allowed, &measured);
        if verdict.is_over() && measured.iter().any(|one| one.name == allowed.name) {
            println!("{verdict}: measured once more");
            verdict = of_ratio(allowed, &measure(root, Some(&allowed.name))?);
        }
        verdicts.push(verdict);
    }
    let unknown = |one: &&Measured| budget.ratios.iter().all(|known| known.name != one.name);
    verdicts.extend(measured.iter().filter(unknown).map(|one| Verdict::Over {
        name: one.name.clone(),
        text: "has no budget: write one into ci/budget.toml".to_owned(),
    }));
    Ok(verdicts)
}

fn measure(root: &Path, only: Option<&str>) -> Result<Vec<Measured>, Error> {
    let mut cargo = Command::new("cargo");
    cargo.args(["bench", "--quiet", "--bench", "bellwire", "--", "gate"]).args(only);
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

fn of_ratio(allowed: &Allowed, measured: &[Measured]) -> Verdict {
    let Allowed { name, most, rounds } = allowed;
    let Some(found) = measured.iter().find(|one| one.name == *name) else {
        let text = "stands in the budget and was not measured".to_owned();
        return Verdict::Over { name: name.clone(), text };
    };
    let name = name.clone();
    let Measured { median, kept, total, why, .. } = found;
    let median = match median {
        Some(median) if kept >= rounds => median,
        _ => {
            let text = format!("{kept} of {total} rounds count, {rounds} are needed: {why}");
            return Verdict::Open { name, text };
        }
    };
    let text = format!("{median:.2}, budget {most}, the median of {kept} of {total} rounds");
    if median > most { Verdict::Over { name, text } } else { Verdict::Within { name, text } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Verdict {
        let allowed = Allowed { name: "hot-call".to_owned(), most: 2.0, rounds: 8 };
        of_ratio(&allowed, &line(text).into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_median_of_enough_rounds_is_judged() {
        assert!(judged("gate hot-call 1.900 8 40 30 moved, 2 crowded").is_within());
        let over = judged("gate hot-call 2.100 8 40 30 moved, 2 crowded");
        assert!(over.is_over());
        let text = over.to_string();
        assert!(text.contains("2.10, budget 2, the median of 8 of 40 rounds"), "{text}");
    }

    #[test]
    fn too_few_rounds_are_not_judged_and_it_says_why() {
        for text in [
            "gate hot-call 9.900 7 40 30 moved, 3 crowded",
            "gate hot-call none 0 40 30 moved, 10 crowded",
            "gate hot-call none 0 0 one processor",
        ] {
            let verdict = judged(text);
            assert!(verdict.is_open(), "{verdict}");
            let why = text.splitn(6, ' ').last().unwrap();
            assert!(verdict.to_string().contains(why), "{verdict}");
        }
    }

    #[test]
    fn what_was_not_measured_at_all_is_a_fault() {
        assert!(judged("gate other 1.0 8 8").is_over());
        assert!(judged("error: no such bench").is_over());
    }
}
