use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::Command;

use anstyle::AnsiColor;

use crate::runner::{Outcome, RunOptions};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Markdown,
    Json,
}

/// The columns of the table, and their widths.
const COLUMNS: [(&str, usize); 15] = [
    ("attack", 18),
    ("CPUs", 4),
    ("server CPUs", 11),
    ("memory MiB", 10),
    ("OOM kills", 9),
    ("fds", 6),
    ("threads", 7),
    ("maps", 6),
    ("calls", 6),
    ("refused", 7),
    ("failed", 6),
    ("p50 µs", 7),
    ("p99 µs", 8),
    ("of beside, of idle", 18),
    ("verdict", 0),
];

/// Prints the header of the table that [`row`] prints; before a Markdown table also the conditions of the run.
pub(crate) fn header(format: Format, options: &RunOptions) {
    let titles = COLUMNS.map(|(title, _)| title);
    match format {
        Format::Text => println!("{}", aligned(titles)),
        Format::Markdown => {
            println!(
                "{}, commit {}, Linux {}, {} processors; {} s each, {} MiB, attackers of {} user:\n",
                output("date", &["-u", "+%F"]),
                output("git", &["rev-parse", "--short", "HEAD"]),
                output("uname", &["-r"]),
                std::thread::available_parallelism().map_or(0, usize::from),
                options.seconds,
                options.limit >> 20,
                if options.same_user { "the server's" } else { "another" }
            );
            println!("| {} |\n|{}", titles.join(" | "), " --- |".repeat(titles.len()));
        }
        Format::Json => {}
    }
}

/// The output of a program; empty if it cannot be run.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// Prints one outcome.
pub(crate) fn row(outcome: &Outcome, format: Format) {
    let honest = &outcome.honest;
    let ratio_to = |base: f64| honest.p99_us / base.max(1.0);
    let verdict =
        if outcome.faults.is_empty() { "holds".to_owned() } else { outcome.faults.join(", ") };
    let cells = [
        outcome.attack.to_owned(),
        format!("{:.1}", outcome.processors),
        format!("{:.1}", outcome.server_processors),
        format!("{:.1}", outcome.peak_bytes as f64 / f64::from(1 << 20)),
        outcome.oom_kills.to_string(),
        outcome.held.descriptors.to_string(),
        outcome.held.threads.to_string(),
        outcome.held.maps.to_string(),
        honest.calls.to_string(),
        honest.refused.to_string(),
        honest.failed.to_string(),
        format!("{:.0}", honest.p50_us),
        format!("{:.0}", honest.p99_us),
        format!("{:.1}, {:.1}", ratio_to(outcome.beside_us), ratio_to(outcome.idle_us)),
        verdict,
    ];
    match format {
        Format::Markdown => println!("| {} |", cells.join(" | ")),
        Format::Text => {
            let style = if outcome.faults.is_empty() { AnsiColor::Green } else { AnsiColor::Red };
            let style = style.on_default();
            let [cells @ .., verdict] = cells.each_ref().map(String::as_str);
            let verdict = format!("{style}{verdict}{style:#}");
            anstream::println!("{}  {verdict}", aligned(cells));
        }
        Format::Json => match serde_json::to_string(outcome) {
            Ok(line) => println!("{line}"),
            Err(error) => eprintln!("error: {error}"),
        },
    }
    let _ = stdout().flush();
}

/// A line of cells: the first one on the left of its column, the others on the right.
fn aligned<const N: usize>(cells: [&str; N]) -> String {
    let cell = |(cell, (_, width))| format!("{cell:>width$}");
    let [first, rest @ ..] = &cells[..] else { return String::new() };
    let (_, width) = COLUMNS[0];
    let rest = rest.iter().zip(COLUMNS.into_iter().skip(1)).map(cell);
    format!("{first:<width$}  {}", rest.collect::<Vec<_>>().join("  "))
}

/// A progress line, if standard error is a terminal.
pub(crate) fn progress(text: &str) {
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K{text}");
        let _ = stderr().flush();
    }
}
