use crate::campaign::Summary;

/// Prints the summary of a run, as a table or as JSON.
pub(crate) fn summary(summary: &Summary, json: bool) {
    if json {
        match serde_json::to_string_pretty(summary) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("error: {error}"),
        }
        return;
    }
    println!("seed {}", summary.seed);
    println!(
        "{:<18} {:>6} {:>12} {:>8} {:>9} {:>9} {:>5}",
        "phase", "calls", "instructions", "killed", "addresses", "published", "past"
    );
    for (phase, tally) in &summary.phases {
        println!(
            "{phase:<18} {:>6} {:>12} {:>8} {:>9} {:>9} {:>5}",
            tally.calls,
            tally.instructions,
            tally.killed,
            tally.addresses,
            tally.published,
            tally.past
        );
    }
    for finding in &summary.findings {
        println!("FOUND {}: {}", finding.address, finding.what);
    }
    println!(
        "summary: {} kills in {} phases, {} past the end of their scenario, {} findings; {:.0} s, {:.0} a second",
        summary.killed,
        summary.phases.values().filter(|tally| tally.killed > 0).count(),
        summary.past,
        summary.findings.len(),
        summary.seconds,
        (summary.killed + summary.past) as f64 / summary.seconds
    );
}
