//! `cargo xtask figures`: the figures of the documents, written from the newest benchmark report of each placement.
//!
//! A document says which with a comment, and what stands up to the closing one is a table that this program wrote:
//!
//! ```text
//! <!-- figures: SCENARIO… [of CONTENDER…] [show COLUMN…] -->
//! <!-- /figures -->
//! ```
//!
//! `SCENARIO` is the name of one, or what names begin with before a `-`, or `all`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::paint;

/// Where the reports are, a folder each, whose names begin with their day.
const REPORTS: &str = "docs/benchmarks";
/// The documents that may have figures, besides those in `docs/`.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/benchmarks/README.md"];
const OPENS: &str = "<!-- figures:";
const CLOSES: &str = "<!-- /figures -->";
const OURS: &str = "bellwire";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing: fail if a document says something else than the reports.
    #[arg(long)]
    check: bool,
}

/// Writes the tables; `false` if `--check` finds one that is not as the reports have it.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let reports = read_reports(&root.join(REPORTS))?;
    let mut stale = 0;
    for path in documents(root)? {
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let up = path.strip_prefix(root).map_or(0, |inside| inside.components().count() - 1);
        let written = rewritten(&text, &reports, &format!("{}{REPORTS}", "../".repeat(up)))
            .map_err(|what| Error::Figures { path: path.clone(), what })?;
        if written == text {
            continue;
        }
        stale += 1;
        if args.check {
            println!("{} {} says something else", paint::red("stale:"), path.display());
        } else {
            fs::write(&path, written).map_err(Error::file("write", &path))?;
            println!("wrote {}", path.display());
        }
    }
    if args.check && stale > 0 {
        println!("write them by: cargo xtask figures");
    }
    Ok(!args.check || stale == 0)
}

fn documents(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let docs = root.join("docs");
    let entries = fs::read_dir(&docs).map_err(Error::file("list", &docs))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.extend(DOCUMENTS.map(|document| root.join(document)));
    paths.sort();
    Ok(paths)
}

/// A row of a report, by the names of its columns.
#[derive(Clone)]
struct Row {
    report: String,
    fields: BTreeMap<String, String>,
}

impl Row {
    fn text(&self, column: &str) -> &str {
        self.fields.get(column).map_or("", String::as_str)
    }

    fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }

    fn shown(&self, column: &str, show: fn(f64) -> String) -> String {
        self.number(column).map_or_else(String::new, show)
    }

    fn time(&self, column: &str) -> String {
        self.shown(column, time)
    }
}

/// The main rows of all reports, the newest report first.
fn read_reports(folder: &Path) -> Result<Vec<Row>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file("list", folder))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.is_dir());
    paths.sort();
    let mut rows = Vec::new();
    for path in paths.iter().rev() {
        let report = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = path.join("report.csv");
        let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
        rows.extend(parse(&report, &text));
    }
    Ok(rows)
}

fn parse(report: &str, text: &str) -> Vec<Row> {
    let mut csv = csv::Reader::from_reader(text.as_bytes());
    let rows = csv.deserialize().flatten().map(|fields| Row { report: report.to_owned(), fields });
    rows.filter(|row| row.text("main") == "true").collect()
}

/// What a comment asks for.
struct Wanted<'a> {
    scenarios: Vec<&'a str>,
    contenders: Vec<&'a str>,
    columns: Vec<&'a str>,
}

impl<'a> Wanted<'a> {
    fn parse(words: &'a str) -> Self {
        let (rest, columns) = words.split_once(" show ").unwrap_or((words, "time floor"));
        let (scenarios, contenders) = rest.split_once(" of ").unwrap_or((rest, OURS));
        let [scenarios, contenders, columns] =
            [scenarios, contenders, columns].map(|words| words.split_whitespace().collect());
        Self { scenarios, contenders, columns }
    }
}

/// The document with the tables that its comments ask for; `reports` is the way to their folder.
fn rewritten(text: &str, rows: &[Row], reports: &str) -> Result<String, String> {
    let (mut written, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(OPENS) {
        let (words, after) = after.split_once("-->").ok_or("a comment of figures does not end")?;
        let (_, after) = after.split_once(CLOSES).ok_or("figures are not closed")?;
        let table = table(&Wanted::parse(words.trim()), rows, reports)
            .map_err(|what| format!("figures: {}: {what}", words.trim()))?;
        let _ = write!(written, "{before}{OPENS}{words}-->\n{table}{CLOSES}");
        rest = after;
    }
    Ok(written + rest)
}

fn table(wanted: &Wanted<'_>, rows: &[Row], reports: &str) -> Result<String, String> {
    let several = wanted.contenders.len() > 1;
    let column = |name: &&str| {
        let found = COLUMNS.iter().find(|(column, ..)| column == name);
        found.ok_or_else(|| format!("no column is {name}"))
    };
    let columns: Vec<_> = wanted.columns.iter().map(column).collect::<Result<_, _>>()?;
    let mut head = vec!["one operation"];
    head.extend(several.then_some("contender"));
    head.extend(columns.iter().map(|(_, title, _)| *title));
    head.push("placement, report");
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(head.len()));
    for word in &wanted.scenarios {
        let mut found = false;
        for (scenario, contender) in pairs(word, &wanted.contenders, rows) {
            for row in newest(scenario, contender, rows) {
                found = true;
                let about =
                    if several { format!("`{scenario}`") } else { row.text("about").to_owned() };
                let mut cells = vec![about];
                cells.extend(several.then(|| contender.to_owned()));
                cells.extend(columns.iter().map(|(.., cell)| cell(row, rows)));
                let (placement, report) = (row.text("placement"), &row.report);
                cells.push(format!("[{placement}]({reports}/{report}/README.md)"));
                let _ = writeln!(text, "| {} |", cells.join(" | "));
            }
        }
        if !found {
            return Err(format!("no report has {word}"));
        }
    }
    Ok(text)
}

/// The scenarios that a word means, in the order of reports, each with the contenders.
fn pairs<'a>(word: &str, contenders: &[&'a str], rows: &'a [Row]) -> Vec<(&'a str, &'a str)> {
    let is_meant = |name: &str| {
        let rest = name.strip_prefix(word);
        word == "all" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let mut scenarios: Vec<&str> = Vec::new();
    for row in rows {
        let name = row.text("scenario");
        if is_meant(name) && !scenarios.contains(&name) {
            scenarios.push(name);
        }
    }
    let each = |scenario: &'a str| contenders.iter().map(move |&contender| (scenario, contender));
    scenarios.into_iter().flat_map(each).collect()
}

/// The newest row of each placement.
fn newest<'a>(scenario: &str, contender: &str, rows: &'a [Row]) -> Vec<&'a Row> {
    let mut found: Vec<&Row> = Vec::new();
    for row in rows
        .iter()
        .filter(|row| (row.text("scenario"), row.text("contender")) == (scenario, contender))
    {
        if !found.iter().any(|newer| newer.text("placement") == row.text("placement")) {
            found.push(row);
        }
    }
    found
}

/// A column: its name in a comment, its title, and what a row has there, among all rows.
type Column = (&'static str, &'static str, fn(&Row, &[Row]) -> String);

const COLUMNS: [Column; 9] = [
    ("time", "time", |row, _| match row.text("stable") {
        "true" => row.time("ns_median"),
        _ => format!("{}, unstable", row.time("ns_median")),
    }),
    ("floor", "relative to floor (least to most)", |row, _| spread(row)),
    ("next", "the fastest other", next),
    ("ratio", "relative to Bellwire", |row, _| {
        row.shown("by_first", |ratio| format!("{ratio:.2}"))
    }),
    ("rate", "a second", |row, _| row.shown("operations_per_s", count)),
    ("p50", "p50", |row, _| row.time("p50_ns")),
    ("p99", "p99", |row, _| row.time("p99_ns")),
    ("p999", "p99.9", |row, _| row.time("p999_ns")),
    ("cpu", "processor time, client + server", |row, _| {
        format!("{} + {}", row.time("cpu_client_ns"), row.time("cpu_server_ns"))
    }),
];

/// The contender of the same report that takes least time by this one's, if any is stable; one that is faster stands out.
fn next(row: &Row, rows: &[Row]) -> String {
    let is_other = |other: &&Row| {
        let same = |name| other.text(name) == row.text(name);
        other.report == row.report
            && same("scenario")
            && same("placement")
            && other.text("stable") == "true"
            && !other.text("contender").starts_with(OURS)
            && other.text("contender") != "validation"
    };
    let ratio = |other: &Row| Some((other.number("by_first")?, other.text("contender").to_owned()));
    let others = rows.iter().filter(is_other).filter_map(ratio);
    match others.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((ratio, name)) if ratio < 1.0 => format!("**{name}: {ratio:.2}**"),
        Some((ratio, name)) => format!("{name}: {ratio:.2}"),
        None => "none that is stable".to_owned(),
    }
}

fn spread(row: &Row) -> String {
    match ["to_floor_median", "to_floor_min", "to_floor_max"].map(|name| row.number(name)) {
        [Some(median), Some(min), Some(max)] => format!("{median:.2} ({min:.2} to {max:.2})"),
        _ => String::new(),
    }
}

/// A time with three digits and its unit.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// A number with three digits.
fn count(value: f64) -> String {
    match value {
        value if value < 1e3 => digits(value),
        value if value < 1e6 => format!("{} k", digits(value / 1e3)),
        value => format!("{} M", digits(value / 1e6)),
    }
}

fn digits(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
scenario,about,contender,placement,main,stable,ns_median,to_floor_median,to_floor_min,to_floor_max,by_first
ping-pong-64,\"call of 64 B, and its answer\",bellwire,one cache,true,true,322.4,2.23,2.1,2.8,
ping-pong-64,a call,bellwire,two caches,true,true,749,1.5,1.1,1.8,
";
    const NEW: &str = "\
scenario,about,contender,placement,main,stable,ns_median,to_floor_median,to_floor_min,to_floor_max,by_first
ping-pong-64,\"call of 64 B, and its answer\",bellwire,one cache,true,true,190,1.31,1.2,1.4,
ping-pong-64,a call,bellwire,one core,false,true,100,1.31,1.2,1.4,
ping-pong-64,a call,iceoryx2,one cache,true,true,600,4,4,4,3.16
ping-pong-64,a call,shm-condvar,one cache,true,false,60,4,4,4,0.31
";

    fn rows() -> Vec<Row> {
        [parse("2026-02", NEW), parse("2026-01", OLD)].concat()
    }

    #[test]
    fn a_table_has_the_newest_row_of_each_placement() {
        let text =
            "a\n<!-- figures: ping-pong show time floor next -->\nold\n<!-- /figures -->\nb\n";
        let written = rewritten(text, &rows(), "docs/benchmarks").expect("a table");
        let expected = "\
a
<!-- figures: ping-pong show time floor next -->
| one operation | time | relative to floor (least to most) | the fastest other | placement, report |
| --- | --- | --- | --- | --- |
| call of 64 B, and its answer | 190 ns | 1.31 (1.20 to 1.40) | iceoryx2: 3.16 | [one cache](docs/benchmarks/2026-02/README.md) |
| a call | 749 ns | 1.50 (1.10 to 1.80) | none that is stable | [two caches](docs/benchmarks/2026-01/README.md) |
<!-- /figures -->
b
";
        assert_eq!(written, expected);
        assert_eq!(rewritten(&written, &rows(), "docs/benchmarks").as_deref(), Ok(expected));
    }

    #[test]
    fn a_figure_that_no_report_has_is_an_error() {
        for (words, why) in
            [("stream", "no report has stream"), ("ping-pong show speed", "no column is speed")]
        {
            let text = format!("<!-- figures: {words} -->\n<!-- /figures -->");
            let error = rewritten(&text, &rows(), "").expect_err("an error");
            assert!(error.contains(why), "{error}");
        }
        assert!(rewritten("<!-- figures: all -->", &rows(), "").is_err());
    }

    #[test]
    fn the_documents_have_the_figures_of_the_reports() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let args = Args { check: true };
        assert!(run(&root, &args).expect("reports that can be read"));
    }
}
