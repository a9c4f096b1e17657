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
    assert!(page.contains("| kernel | Linux ") && page.contains("## ping-pong-64\n"), "{page}");
    let pictures: Vec<&str> =
        page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    for expected in ["cdf-ping-pong-64.svg", "throughput-ping-pong.svg", "cpu-by-rate.svg"] {
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
fn what_cannot_be_written_is_told() {
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
