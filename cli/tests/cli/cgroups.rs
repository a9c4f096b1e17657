use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Ended, Place, Signal, spawn};

fn paths(snapshot: &Value) -> Vec<&str> {
    let cgroups = snapshot["cgroups"].as_array().unwrap();
    cgroups.iter().map(|cgroup| cgroup["path"].as_str().unwrap()).collect()
}

#[test]
fn an_absent_provider_is_reported_after_the_timeout() {
    let place = Place::new();
    let ended = place.run(&["get", "cgroups", "--timeout", "30ms"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(3), ""));
    assert!(ended.stderr.contains("nobody provides cgroups-snapshot"), "{ended:?}");
    assert!(ended.stderr.contains("bellwire provide cgroups"), "{ended:?}");
}

#[test]
fn a_snapshot_is_printed_as_a_table() {
    let place = Place::new();
    let _provider = place.provider();
    let ended = place.exits(0, &["get", "cgroups"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines[0].ends_with("PATH"), "{ended:?}");
    assert_eq!(lines.len(), 4);
    let place_of = |line: &str, text: &str| line.find(text).unwrap();
    assert_eq!(place_of(lines[0], "RUN BY"), place_of(lines[3], "systemd"), "{ended:?}");
    assert!(lines[3].contains("cron") && lines[3].ends_with("/system.slice/cron.service"));
    assert!(ended.stderr.contains("3 cgroups (v2), generation 1"), "{ended:?}");
}

#[test]
fn a_snapshot_is_printed_as_json() {
    let place = Place::new();
    let _provider = place.provider();
    let snapshot = place.run(&["get", "cgroups", "--format", "json"]).json();
    assert_eq!(paths(&snapshot), ["/", "/system.slice", "/system.slice/cron.service"]);
    assert_eq!((&snapshot["mode"], &snapshot["total"]), (&"v2".into(), &3.into()));
    let root = fs::canonicalize(place.root()).unwrap();
    assert_eq!(snapshot["hierarchies"]["unified"], root.to_str().unwrap());
    let cron = &snapshot["cgroups"][2];
    assert_eq!((&cron["name"], &cron["orchestrator"]), (&"cron".into(), &"systemd".into()));
    let hash = format!("{:#018x}", bellwire_cgroups::name_hash("cron"));
    assert_eq!(cron["name_hash"], hash);
    let options = cron["options"].as_array().unwrap();
    assert!(options.contains(&"leaf".into()) && options.contains(&"populated".into()), "{cron}");
}

#[test]
fn a_snapshot_is_filtered_by_text_and_by_orchestrator() {
    let place = Place::new();
    place.cgroup("other");
    let _provider = place.provider();
    let of = |args: &[&str]| {
        let all = [&["get", "cgroups", "--format", "json"], args].concat();
        place.run(&all).json()
    };
    let by_text = of(&["--filter", "cron"]);
    assert_eq!(paths(&by_text), ["/system.slice/cron.service"]);
    assert_eq!(by_text["total"], 4);
    assert_eq!(paths(&of(&["--orchestrator", "systemd", "--filter", "other"])), [""; 0]);
    assert_eq!(paths(&of(&["--orchestrator", "unknown", "--filter", "other"])), ["/other"]);
}

#[test]
fn watching_prints_each_change_when_it_happens() {
    let place = Place::new();
    let _provider = place.provider();
    let mut watch = place.start(&["get", "cgroups", "--watch"]);
    watch.stdout_until("/system.slice/cron.service");
    place.cgroup("web.slice");
    assert!(watch.stdout_until("+ ").contains("/web.slice"));
    // Put in its place at once: a reader finds the old or the new text.
    let events = place.temp().join("events");
    fs::write(&events, "populated 0\n").unwrap();
    fs::rename(&events, place.root().join("web.slice/cgroup.events")).unwrap();
    let changed = watch.stdout_until("~ ");
    assert!(changed.contains("/web.slice") && changed.contains("state: populated -> unused"));
    let gone = place.root().join("web.slice");
    fs::rename(&gone, place.temp().join("gone")).unwrap();
    assert!(watch.stdout_until("- ").contains("/web.slice"));
    assert!(watch.ends_well_by(Signal::Term));
}

#[test]
fn watching_as_json_prints_a_line_for_each_change() {
    let place = Place::new();
    let _provider = place.provider();
    let mut watch = place.start(&["get", "cgroups", "--watch", "--format", "json"]);
    let first: Value = serde_json::from_str(&watch.stdout_until("{")).unwrap();
    assert_eq!(first["total"], 3);
    place.cgroup("web.slice");
    let second: Value = serde_json::from_str(&watch.stdout_until("web.slice")).unwrap();
    assert_eq!(second["total"], 4);
    assert_eq!(first["changes"], Value::Null);
    assert_eq!(second["changes"]["appeared"][0], "/web.slice");
    assert!(second["generation"].as_u64() > first["generation"].as_u64());
    assert!(watch.ends_well_by(Signal::Int));
}

#[test]
fn watching_outlives_the_provider() {
    let place = Place::new();
    let mut watch = place.start(&["get", "cgroups", "--watch"]);
    watch.stderr_until("waiting for a provider");
    let mut provider = place.provider();
    watch.stdout_until("/system.slice/cron.service");
    provider.end_by(Signal::Kill);
    assert!(watch.stderr_until("went away").contains("the last snapshot stays"));
    place.cgroup("web.slice");
    let _next = place.provider();
    assert!(watch.stdout_until("+ ").contains("/web.slice"));
    watch.stderr_until("is back");
}

#[test]
fn watching_gives_up_an_absent_provider_only_with_a_timeout() {
    let place = Place::new();
    place.exits(3, &["get", "cgroups", "--watch", "--timeout", "20ms"]);
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let place = Place::new();
    let _provider = place.provider();
    for args in [&["get", "cgroups"][..], &["get", "cgroups", "--format", "json"], &["doctor"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(args);
        let child = spawn(command.stdout(writer).stderr(Stdio::piped()));
        drop(command);
        let ended = Ended::from(child.wait_with_output().unwrap());
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn colors_depend_on_terminal_and_flag() {
    let place = Place::new();
    let _provider = place.provider();
    let has_colors = |args: &[&str]| {
        let Ended { stdout, stderr, .. } = place.run(args);
        stdout.contains('\x1b') || stderr.contains('\x1b')
    };
    for args in
        [&["get", "cgroups"][..], &["ls"], &["doctor"], &["ping", "cgroups-snapshot", "-c1"]]
    {
        assert!(!has_colors(args), "{args:?}");
        assert!(has_colors(&[args, &["--color", "always"]].concat()), "{args:?}");
        assert!(!has_colors(&[args, &["--color", "never"]].concat()), "{args:?}");
    }
    assert!(!has_colors(&["get", "nothing"]) && !has_colors(&["--help"]));
}
