//! A page for readers who did not see the run.

use std::fmt::Write;

use bellwire_cli::out::{nanos, rate};

use super::model::{Measured, Report};
use super::plots::Picture;
use super::table::{floor, times};
use crate::system::State;

/// With links to the pictures beside it. Writing into a string cannot fail.
pub(crate) fn text(report: &Report, pictures: &[Picture]) -> String {
    let mut text = String::from("# Bellwire beside its floor and its alternatives\n\n");
    head(&mut text, report);
    for measured in &report.scenarios {
        scenario(&mut text, measured);
    }
    if !pictures.is_empty() {
        text.push_str("## Pictures\n\n");
    }
    for picture in pictures {
        let _ = writeln!(text, "![{}]({})\n", picture.about, picture.file);
    }
    text
}

fn head(text: &mut String, report: &Report) {
    let system = &report.system;
    let _ = writeln!(
        text,
        "Made by `{}` on {}, in {:.0} s.\n",
        report.command, report.began, report.took_s
    );
    if report.quick {
        text.push_str("**Made in a hurry (`--quick`): these figures tell nothing.**\n\n");
    }
    text.push_str("| system | |\n| --- | --- |\n");
    let (ours, theirs) = system.pinned;
    for (name, value) in [
        ("kernel", system.kernel.clone()),
        ("processor", format!("{}, {} CPUs", system.cpu, system.cpus)),
        ("pinned", format!("measuring end to CPU {ours}, server to CPU {theirs}")),
        ("governor", system.governor.clone()),
        ("virtualised", system.virtualised.clone()),
        ("mitigations", system.mitigations.clone()),
        ("memory", format!("{} MiB", system.memory_mib)),
        ("load before", system.load.clone()),
        ("compiler", format!("{}, {}", system.rustc, system.profile)),
        ("commit", system.commit.clone()),
    ] {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    states(text, &report.states);
    text.push_str("\n| contender | version | settings |\n| --- | --- | --- |\n");
    for (name, about) in &report.contenders {
        let _ = writeln!(text, "| {name} | {} | {} |", about.version, about.settings);
    }
    let _ = writeln!(
        text,
        "\nFigures are medians of up to {} rounds, the least and the most beside them. A ratio is of two samples of one \
         round. `docs/benchmarks.md` says what an operation is, what is inside the clock, and which samples count.\n",
        report.rounds
    );
    let unstable = report.unstable();
    if !unstable.is_empty() {
        text.push_str("Not stable, and not to be quoted:\n\n");
        for line in unstable {
            let _ = writeln!(text, "- {line}");
        }
        text.push('\n');
    }
}

/// The machine before, between and after.
fn states(text: &mut String, states: &[State]) {
    if states.is_empty() {
        return;
    }
    text.push_str(
        "\n| the machine | after | load | busy | stolen |\n| --- | --- | --- | --- | --- |\n",
    );
    for State { when, at_s, load, busy, stolen } in states {
        let _ = writeln!(
            text,
            "| {when} | {at_s:.0} s | {load} | {:.0} % | {:.1} % |",
            busy * 100.0,
            stolen * 100.0
        );
    }
}

fn scenario(text: &mut String, measured: &Measured) {
    let _ = writeln!(
        text,
        "## {}\n\nOne operation: {}. Floor: {}.\n",
        measured.name, measured.about, measured.floor
    );
    let first = measured.main_rows().next().map(|row| row.contender.clone()).unwrap_or_default();
    let _ = writeln!(
        text,
        "| contender | time | a second | by the floor | by {first} | p50 | p99 | p99.9 | CPU, client | CPU, server | sleeps | \
         system calls | placement | rounds |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for row in &measured.rows {
        let latency = |of: fn(&super::model::Latency) -> u64| {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
            row.latency.as_ref().map(|latency| nanos(of(latency) as f64)).unwrap_or_default()
        };
        let by_first = measured.by_first(row).map(|ratio| format!("×{ratio:.2}"));
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2} | {} | {} | {}{} |",
            row.contender,
            if row.stable || !row.is_main { "" } else { " **unstable**" },
            times(&row.ns),
            rate(measured.a_second(row)),
            floor(row),
            by_first.unwrap_or_default(),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            nanos(row.cpu_client_ns),
            nanos(row.cpu_server_ns),
            row.sleeps,
            row.system_calls.map(|calls| format!("{calls:.2}")).unwrap_or_default(),
            row.placement,
            row.rounds,
            lost(row.is_main, row.lost.moved + row.lost.preempted),
        );
    }
    for note in measured.notes() {
        let _ = writeln!(text, "\n{note}.");
    }
    text.push('\n');
}

fn lost(is_main: bool, lost: usize) -> String {
    if is_main && lost > 0 { format!(", {lost} samples lost") } else { String::new() }
}
