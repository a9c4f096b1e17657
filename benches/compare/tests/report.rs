use std::fs;

use serde_json::Value;

use super::bench;

#[test]
fn a_report_has_a_page_figures_and_pictures_that_parse() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new").join("report");
    let ended = bench(&["--quick", "ping-pong", "rate", "--report", dir.to_str().unwrap()]);
    assert_eq!(ended.status, Some(0), "{ended:?}");

    let json: Value =
        serde_json::from_str(&fs::read_to_string(dir.join("report.json")).unwrap()).unwrap();
    let rows: usize = json["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["rows"].as_array().unwrap().len())
        .sum();
    assert!(json["system"]["kernel"].as_str().unwrap().starts_with("Linux "), "{json:#}");
    assert!(json["command"].as_str().unwrap().starts_with("bellwire bench --quick"), "{json:#}");

    let mut csv = csv::Reader::from_path(dir.join("report.csv")).unwrap();
    let records: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), rows);
    let median = csv.headers().unwrap().iter().position(|name| name == "ns_median").unwrap();
    assert!(records.iter().all(|record| record[median].parse::<f64>().unwrap() > 0.0));

    let page = fs::read_to_string(dir.join("README.md")).unwrap();
    assert!(page.contains("| kernel | Linux ") && page.contains("\n| ping-pong-64 | "), "{page}");
    // A line for each scenario, whatever the number of contenders.
    let scenarios = json["scenarios"].as_array().unwrap();
    let lines = page.lines().filter(|line| {
        scenarios
            .iter()
            .any(|of| line.starts_with(&format!("| {} |", of["name"].as_str().unwrap())))
    });
    assert_eq!(lines.count(), scenarios.len(), "{page}");
    let links = page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    let pictures: Vec<&str> = links.filter(|link| !link.starts_with('#')).collect();
    for expected in
        ["cdf-ping-pong-64.svg", "throughput-ping-pong.svg", "cpu-by-rate.svg", "p99-by-rate.svg"]
    {
        assert!(pictures.contains(&expected), "{expected}: {pictures:?}");
    }
    for picture in pictures {
        let svg = fs::read_to_string(dir.join(picture)).unwrap();
        let svg = roxmltree::Document::parse(&svg).unwrap_or_else(|why| panic!("{picture}: {why}"));
        assert_eq!(svg.root_element().tag_name().name(), "svg", "{picture}");
        let lines = svg.descendants().filter(|node| node.has_tag_name("polyline")).count();
        assert!(lines >= 2, "{picture} shows nothing");
    }
}

#[test]
fn a_report_names_the_commit_of_the_program_not_of_the_folder_it_runs_in() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    let args = ["--quick", "ping-pong-64", "--against", "seqpacket", "--report"];
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_bellwire-bench"))
        .args(args)
        .arg(&report)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let json: Value =
        serde_json::from_str(&fs::read_to_string(report.join("report.json")).unwrap()).unwrap();
    assert_eq!(json["system"]["commit"], env!("BENCH_COMMIT"));
    assert_eq!(json["system"]["rustc"], env!("BENCH_RUSTC"));
}

#[test]
fn the_stream_has_the_percentiles_of_the_report() {
    let dir = tempfile::tempdir().unwrap();
    for (name, parse) in
        [("run.csv", csv_lines as fn(&str) -> Vec<Line>), ("run.jsonl", json_lines)]
    {
        let path = dir.path().join(name);
        let args = ["--quick", "ping-pong-64", "rate-1k", "--against", "seqpacket", "--json", "-"];
        let ended = bench(&[&args[..], &["--stream", path.to_str().unwrap()]].concat());
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let lines = parse(&fs::read_to_string(&path).unwrap());
        let mut rows = 0;
        for scenario in report["scenarios"].as_array().unwrap() {
            for row in scenario["rows"].as_array().unwrap() {
                let key = [&scenario["name"], &row["contender"], &row["placement"]];
                let mut all: Vec<_> =
                    lines.iter().filter(|line| key == line.key.each_ref()).collect();
                all.sort_by_key(|line| line.ns);
                for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                    assert_eq!(row["latency"][name], quantile(&all, part), "{name} of {key:?}");
                }
                assert!(all.iter().all(|line| (line.attempt, line.round) == (1, 1)));
                rows += 1;
            }
        }
        assert_eq!(rows, 4, "{report:#}");
    }
}

/// A line of `--stream`.
struct Line {
    key: [Value; 3],
    attempt: u64,
    round: u64,
    ns: u64,
    count: u64,
}

impl Line {
    fn of(field: impl Fn(&str) -> Value) -> Self {
        let number = |name| field(name).as_u64().unwrap();
        Self {
            key: ["scenario", "contender", "placement"].map(&field),
            attempt: number("attempt"),
            round: number("round"),
            ns: number("ns"),
            count: number("count"),
        }
    }
}

fn csv_lines(text: &str) -> Vec<Line> {
    let mut csv = csv::Reader::from_reader(text.as_bytes());
    let head = csv.headers().unwrap().clone();
    let line = |record: csv::StringRecord| {
        Line::of(|name| {
            let text = &record[head.iter().position(|other| other == name).unwrap()];
            text.parse::<u64>().map_or_else(|_| text.into(), Value::from)
        })
    };
    csv.records().map(|record| line(record.unwrap())).collect()
}

fn json_lines(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        Line::of(|name| json[name].clone())
    };
    text.lines().map(line).collect()
}

/// The least value that this part of all does not exceed.
fn quantile(sorted: &[&Line], part: f64) -> u64 {
    let all: u64 = sorted.iter().map(|line| line.count).sum();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few thousand"
    )]
    let wanted = ((all as f64 * part).ceil() as u64).max(1);
    let mut so_far = 0;
    let mut reached = sorted.iter().filter(|line| {
        so_far += line.count;
        so_far >= wanted
    });
    reached.next().unwrap().ns
}

#[test]
fn a_report_has_the_state_of_the_machine_before_between_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--quick", "ping-pong-8", "lookup-16", "--against", "bellwire", "--report"];
    let ended = bench(&[&args[..], &[dir.path().to_str().unwrap()]].concat());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let json = fs::read_to_string(dir.path().join("report.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let states = json["states"].as_array().unwrap();
    let when: Vec<_> = states.iter().map(|state| state["when"].as_str().unwrap()).collect();
    assert_eq!(when, ["before", "ping-pong-8", "lookup-16"]);
    for state in states {
        let part = |name: &str| state[name].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&part("busy")) && part("stolen") < 1.0, "{state:#}");
        assert_eq!(state["load"].as_str().unwrap().split(' ').count(), 5, "{state:#}");
    }
    let page = fs::read_to_string(dir.path().join("README.md")).unwrap();
    assert!(page.contains("| stolen meanwhile | at most "), "{page}");
}

#[test]
fn validation_is_shown_apart_for_a_changed_snapshot_and_for_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().to_str().unwrap();
    let against = ["--against", "seqpacket,validation", "--report", report];
    let ended =
        bench(&[&["--quick", "snapshot-changed", "snapshot-unchanged-16"], &against[..]].concat());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let is_part = |line: &&str| line.contains("validation alone takes: ");
    let parts: Vec<_> = ended.stdout.lines().filter(is_part).collect();
    assert_eq!(parts.len(), 6, "{}", ended.stdout);
    for part in parts {
        assert!(part.contains(" of bellwire, ") && part.contains(" of seqpacket"), "{part}");
    }
    let page = fs::read_to_string(dir.path().join("README.md")).unwrap();
    let head = page.lines().find(|line| line.starts_with("| scenario |")).unwrap();
    assert!(head.ends_with("| bellwire | seqpacket | validation |"), "{head}");
    for line in page.lines().filter(|line| line.starts_with("| snapshot-")) {
        let is_empty = line.ends_with("|  |");
        assert_eq!(is_empty, line.starts_with("| snapshot-unchanged-16"), "{line}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let args = [
        "--quick",
        "ping-pong-64",
        "--against",
        "bellwire",
        "--json",
        "/proc/nowhere/figures.json",
    ];
    let ended = bench(&args);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("cannot write /proc/nowhere/figures.json"), "{ended:?}");
}
