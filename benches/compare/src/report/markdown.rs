//! A page for readers who did not see the run: each scenario on a line. Details are in the other files.

use std::collections::BTreeMap;
use std::fmt::Write;

use bellwire_cli::out::nanos;

use super::model::{Measured, Report};
use super::plots::Picture;
use super::table::{floor, times};
use crate::contender::ALL;
use crate::system::State;

/// With links to the pictures beside it. Writing into a string cannot fail.
pub(crate) fn text(report: &Report, pictures: &[Picture]) -> String {
    let mut text = String::from("# Bellwire beside its floor and its alternatives\n\n");
    head(&mut text, report);
    results(&mut text, report);
    left_out(&mut text, report);
    if !pictures.is_empty() {
        text.push_str("\n## Pictures\n");
    }
    for picture in pictures {
        let _ = writeln!(text, "\n![{}]({})", picture.about, picture.file);
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
        ("virtualized", system.virtualized.clone()),
        ("mitigations", system.mitigations.clone()),
        ("memory", format!("{} MiB", system.memory_mib)),
        ("load before", system.load.clone()),
        ("stolen meanwhile", stolen(&report.states)),
        ("compiler", format!("{}, {}", system.rustc, system.profile)),
        ("commit", system.commit.clone()),
    ] {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text.push_str("\n| contender | version | settings |\n| --- | --- | --- |\n");
    for (name, about) in &report.contenders {
        let _ = writeln!(text, "| {name} | {} | {} |", about.version, about.settings);
    }
}

/// How much of the processors' time the hypervisor gave to others.
fn stolen(states: &[State]) -> String {
    // The first one is of the time before.
    let stolen = states.iter().skip(1).map(|state| state.stolen * 100.0).fold(0.0, f64::max);
    format!("at most {stolen:.1} % of a scenario's processor time")
}

/// A line for each scenario, a column for each contender.
fn results(text: &mut String, report: &Report) {
    let names: Vec<_> = ALL.iter().map(|entry| entry.name).collect();
    let is_there = |name: &&str| report.scenarios.iter().any(|of| !cell(of, name).is_empty());
    let names: Vec<_> = names.into_iter().filter(is_there).collect();
    let _ = writeln!(
        text,
        "\n## Results\n\n\
         The first contender of a line has its time: the median of up to {} rounds, with the least and the most. Left of it \
         are that time divided by the floor's, and the 99th percentile. Another contender has its time divided by the \
         first one's, in the same rounds and the same placement: below 1, in bold, it is faster; if they have no placement \
         in common, its time.\n\n\
         `*`: not stable, and not to be quoted. *none*: no sample counts. Empty: [left out](#left-out). `report.csv` has \
         every placement of every contender, with rates, percentiles, processor time, sleeps and system calls. \
         `docs/benchmarks.md` says what an operation is, what is inside the clock, and which samples count.\n",
        report.rounds
    );
    let head = ["scenario", "one operation", "placement", "by the floor", "p99"];
    let head: Vec<_> = head.into_iter().chain(names.iter().copied()).collect();
    let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), " --- |".repeat(head.len()));
    for measured in &report.scenarios {
        let first = measured.main_rows().next();
        let latency = first.and_then(|row| row.latency.as_ref());
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns")]
        let p99 = latency.map(|latency| nanos(latency.p99 as f64));
        let mut cells = vec![
            measured.name.clone(),
            measured.about.clone(),
            first.map(|row| row.placement.clone()).unwrap_or_default(),
            first.map(floor).unwrap_or_default(),
            p99.unwrap_or_default(),
        ];
        cells.extend(names.iter().map(|name| cell(measured, name)));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

/// The time of the first contender, or how another one's compares with it.
fn cell(measured: &Measured, contender: &str) -> String {
    if measured.missing.contains_key(contender) {
        return "*none*".to_owned();
    }
    let mut rows = measured.main_rows().enumerate();
    let Some((at, row)) = rows.find(|(_, row)| row.contender == contender) else {
        return String::new();
    };
    let value = match measured.by_first(row) {
        _ if at == 0 => times(&row.ns),
        Some(ratio) if ratio < 1.0 => format!("**{ratio:.2}**"),
        Some(ratio) if ratio < 100.0 => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.0}"),
        None => nanos(row.ns.median),
    };
    if row.stable { value } else { value + "\\*" }
}

/// What a contender cannot do, and those that cannot.
fn left_out(text: &mut String, report: &Report) {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (contender, why) in report.scenarios.iter().flat_map(|of| &of.refused) {
        let contenders = all.entry(why).or_default();
        if !contenders.contains(&contender.as_str()) {
            contenders.push(contender);
        }
    }
    if !all.is_empty() {
        text.push_str("\n## Left out\n\n");
    }
    for (why, contenders) in all {
        let _ = writeln!(text, "- {}: {why}", contenders.join(", "));
    }
}
