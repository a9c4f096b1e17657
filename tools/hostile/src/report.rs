use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::Command;

use crate::runner::{Outcome, RunOptions};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Markdown,
    Json,
}

const TITLES: [&str; 15] = [
    "attack",
    "CPUs",
    "server CPUs",
    "memory MiB",
    "OOM kills",
    "fds",
    "threads",
    "maps",
    "calls",
    "refused",
    "failed",
    "p50 µs",
    "p99 µs",
    "of beside, of idle",
    "verdict",
];
const WIDTHS: [usize; 15] = [18, 4, 11, 10, 9, 6, 7, 6, 6, 7, 6, 7, 8, 18, 0];

/// Prints the header of the table that [`row`] prints; before a Markdown table also the conditions of the run.
pub(crate) fn header(format: Format, options: &RunOptions) {
    match format {
        Format::Text => println!("{}", aligned(&TITLES.map(str::to_owned))),
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
            println!("| {} |\n|{}", TITLES.join(" | "), " --- |".repeat(TITLES.len()));
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
    let mut cells = [
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
            let [.., verdict] = &mut cells;
            *verdict = colored(verdict, outcome.faults.is_empty());
            println!("{}", aligned(&cells));
        }
        Format::Json => match serde_json::to_string(outcome) {
            Ok(line) => println!("{line}"),
            Err(error) => eprintln!("error: {error}"),
        },
    }
    let _ = stdout().flush();
}

fn aligned(cells: &[String]) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        let gap = if at == 0 { "" } else { "  " };
        let text = if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        line += gap;
        line += &text;
    }
    line.trim_end().to_owned()
}

/// Colors the text green or red on a terminal, unless `NO_COLOR` is set.
fn colored(text: &str, holds: bool) -> String {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    if no_color || dumb || !stdout().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[{}m{text}\x1b[0m", if holds { "32" } else { "31" })
}

/// A progress line, if standard error is a terminal.
pub(crate) fn progress(text: &str) {
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K{text}");
        let _ = stderr().flush();
    }
}
