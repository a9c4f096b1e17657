use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::Command;

use crate::testbed::{Course, Outcome};

/// How the outcomes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
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

/// The titles above what [`row`] prints, and of a table for a document what it was taken from.
pub(crate) fn head(form: Form, course: &Course) {
    match form {
        Form::Text => println!("{}", aligned(&TITLES.map(str::to_owned))),
        Form::Markdown => {
            println!(
                "{}, commit {}, Linux {}, {} processors; {} s each, {} MiB, attackers of {} user:\n",
                output("date", &["-u", "+%F"]),
                output("git", &["rev-parse", "--short", "HEAD"]),
                output("uname", &["-r"]),
                std::thread::available_parallelism().map_or(0, usize::from),
                course.seconds,
                course.limit >> 20,
                if course.same_user { "the server's" } else { "another" }
            );
            println!("| {} |\n|{}", TITLES.join(" | "), " --- |".repeat(TITLES.len()));
        }
        Form::Json => {}
    }
}

/// What a program prints; nothing where there is no such program.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// One outcome, as soon as it is there.
pub(crate) fn row(outcome: &Outcome, form: Form) {
    let honest = &outcome.honest;
    let times = |base: f64| honest.p99_us / base.max(1.0);
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
        format!("{:.1}, {:.1}", times(outcome.beside_us), times(outcome.idle_us)),
        verdict,
    ];
    match form {
        Form::Markdown => println!("| {} |", cells.join(" | ")),
        Form::Text => {
            let [.., verdict] = &mut cells;
            *verdict = painted(verdict, outcome.faults.is_empty());
            println!("{}", aligned(&cells));
        }
        Form::Json => match serde_json::to_string(outcome) {
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

/// Green or red where a person looks, unless `NO_COLOR` is set.
fn painted(text: &str, holds: bool) -> String {
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
