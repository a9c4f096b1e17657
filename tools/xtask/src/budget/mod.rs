//! What the hot paths cost, held against `ci/budget.toml`: instructions counted by callgrind, and ratios to the machine's own
//! cost. `docs/budget.md` says what is counted, and why it may be believed.

mod counts;
mod file;
mod ratios;
mod verdict;

use std::path::Path;

use crate::error::Error;
use crate::paint;
use file::Budget;
use verdict::{Outcome, Verdict};

/// What to hold against the budget, or to write into it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the instructions counted, and with what, into the budget. Ratios are left as they are.
    #[arg(long)]
    update: bool,
    /// Count instructions only.
    #[arg(long, conflicts_with = "ratios")]
    counts: bool,
    /// Measure ratios only.
    #[arg(long, conflicts_with = "update")]
    ratios: bool,
}

/// Counts, measures and prints; `true` when nothing is over its budget.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let mut budget = Budget::read(root)?;
    let mut verdicts = Vec::new();
    if !args.ratios {
        let tools = counts::Tools::find(root)?;
        let counted = counts::take(root)?;
        if args.update {
            return budget.update(&tools, &counted).map(|()| true);
        }
        println!("\ninstructions of one operation, counted by {}:", tools.valgrind);
        verdicts.extend(verdict::of_counts(&budget, &tools, &counted));
        print(&verdicts);
    }
    if !args.counts {
        println!("\nratios to the machine's own cost, taken in turns:");
        let judged = ratios::judge(root, &budget)?;
        print(&judged);
        verdicts.extend(judged);
    }
    let count = |outcome| verdicts.iter().filter(|one| one.outcome == outcome).count();
    let [within, over, open] = [Outcome::Within, Outcome::Over, Outcome::Open].map(count);
    println!("summary: {within} within budget, {over} over, {open} not judged");
    Ok(over == 0)
}

fn print(verdicts: &[Verdict]) {
    for verdict in verdicts {
        let line = verdict.to_string();
        let line = match verdict.outcome {
            Outcome::Over => paint::red(&line),
            Outcome::Open => paint::yellow(&line),
            Outcome::Within => line,
        };
        println!("{line}");
    }
}
