//! What is known of processes and cgroups, over synthetic ones.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use crate::support::{Ended, Place, Running, Signal, spawn};

/// A synthetic `/proc` and the provider of what is in it.
struct Apps {
    place: Place,
    proc: PathBuf,
}

impl Apps {
    fn new() -> Self {
        let place = Place::new();
        let proc = place.temp().join("proc");
        fs::create_dir_all(proc.join("self")).unwrap();
        let apps = Self { place, proc };
        apps.process(1, "init", "/init.scope");
        apps
    }

    fn process(&self, pid: u32, comm: &str, cgroup: &str) {
        let dir = self.proc.join(pid.to_string());
        fs::create_dir(&dir).unwrap();
        let stat = format!("{pid} ({comm}) S 1 7 7 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 150 8192\n");
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("status"), format!("Tgid:\t{pid}\nUid:\t33\t0\t0\t0\n")).unwrap();
        fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
    }

    fn provider(&self) -> Running {
        self.place.provide(&["apps", "--root", self.proc.to_str().unwrap()])
    }
}

fn cgroups(place: &Place) -> Running {
    let mut provider = place.start(&["provide", "cgroups-lookup", &place.root_option()]);
    let line = provider.stderr_until("providing");
    assert!(line.contains("cgroups-lookup") && line.contains("3 cgroups"), "{line}");
    provider
}

#[test]
fn processes_are_printed_as_a_table_and_as_json() {
    let apps = Apps::new();
    apps.process(42, "cron", "/system.slice/cron.service");
    let mut provider = apps.provider();
    let table = apps.place.run(&["get", "apps", "42", "1"]);
    assert_eq!((table.status, table.stderr.as_str()), (Some(0), ""), "{table:?}");
    let lines: Vec<&str> = table.stdout.lines().collect();
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    let wanted = "42 known cron 1 33 +1.50 s systemd cron /system.slice/cron.service";
    assert_eq!(words, wanted.split(' ').collect::<Vec<_>>());
    assert_eq!(lines.len(), 3);

    let json = apps.place.exits(8, &["get", "apps", "42", "7", "--json"]);
    let json = json.json();
    assert_eq!((&json["service"], &json["total"]), (&"apps-lookup".into(), &2.into()));
    let cron = &json["apps"][0];
    assert_eq!((&cron["status"], &cron["comm"]), (&"known".into(), &"cron".into()));
    assert_eq!((&cron["ppid"], &cron["uid"]), (&1.into(), &33.into()));
    assert_eq!(cron["started_ns"], 1_500_000_000_u64);
    assert_eq!(json["apps"][1]["pid"], 7);
    assert_eq!(json["apps"][1]["status"], "unknown");
    assert_eq!(json["count"]["known"], 1);
    assert!(provider.ends_well_by(Signal::Term));
}

#[test]
fn the_exit_code_distinguishes_known_unknown_and_retry_later() {
    let apps = Apps::new();
    let half = apps.proc.join("5");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("status"), "Tgid:\t5\n").unwrap();
    let _provider = apps.provider();
    for (pids, status) in [(&["1"][..], 0), (&["1", "5"], 9), (&["7"], 8), (&["7", "5", "1"], 8)] {
        let ended = apps.place.run(&[&["get", "apps"], pids].concat());
        assert_eq!(ended.status, Some(status), "{pids:?}: {ended:?}");
    }
    assert!(apps.place.run(&["get", "apps", "5"]).stdout.contains("retry-later"));
}

#[test]
fn many_pids_are_read_from_standard_input() {
    let apps = Apps::new();
    let _provider = apps.provider();
    let mut command = apps.place.command(&["get", "apps", "-", "--json", "--timeout", "60s"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command);
    let mut stdin = child.stdin.take().unwrap();
    let feeds = std::thread::spawn(move || {
        (1..=5000).for_each(|pid| writeln!(stdin, " {pid}\n").unwrap());
    });
    let ended = Ended::from(child.wait_with_output().unwrap());
    feeds.join().unwrap();
    let json = ended.json();
    assert_eq!((&json["total"], &json["count"]["known"]), (&5000.into(), &1.into()));
    assert_eq!(json["apps"][4999]["pid"], 5000);
}

#[test]
fn cgroups_are_looked_up_by_their_paths() {
    let place = Place::new();
    let mut provider = cgroups(&place);
    let cron = "/system.slice/cron.service";
    let table = place.exits(0, &["get", "cgroups-lookup", cron]);
    let line = table.stdout.lines().last().unwrap();
    for part in [cron, "known", "cron", "systemd", "slice=system.slice unit=cron.service"] {
        assert!(line.contains(part), "{line}");
    }
    let root = place.run(&["get", "cgroups-lookup", "/"]).stdout;
    assert!(root.lines().all(|line| !line.ends_with(' ')), "{root:?}");
    let snapshot = {
        let _provider = place.provider();
        place.run(&["get", "cgroups", "--format", "json"]).json()["cgroups"][2].clone()
    };
    let found = place.run(&["get", "cgroups-lookup", cron, "--format", "json"]).json();
    let found = &found["cgroups"][0];
    for field in ["id", "name", "path", "orchestrator", "enabled"] {
        assert_eq!(found[field], snapshot[field], "{field}");
    }
    assert_eq!(found["labels"]["unit"], "cron.service");
    assert!(provider.ends_well_by(Signal::Int));
}

#[test]
fn a_created_cgroup_is_found_and_a_removed_one_is_not_despite_earlier_answers() {
    let place = Place::new();
    let _provider = cgroups(&place);
    let status = |path: &str| place.run(&["get", "cgroups-lookup", path]).status;
    assert_eq!(status("/web.slice"), Some(8));
    place.cgroup("web.slice");
    // It may be too soon to read all of them again.
    while status("/web.slice") == Some(9) {}
    assert_eq!(status("/web.slice"), Some(0));
    fs::rename(place.root().join("web.slice"), place.temp().join("gone")).unwrap();
    assert_eq!(status("/web.slice"), Some(8));
}

#[test]
fn an_unused_name_is_unknown_and_a_path_that_is_too_long_is_an_error() {
    let place = Place::new();
    let _provider = cgroups(&place);
    fs::write(place.root().join("file"), "").unwrap();
    let long = format!("/{}", "x/".repeat(5000));
    let odd = ["", "system.slice", "/system.slice/", "/../system.slice", "//", "/a\nb", "/file"];
    for path in odd {
        let json = place.exits(8, &["get", "cgroups-lookup", path, "--json"]).json();
        assert_eq!(json["count"]["unknown"], 1, "{path:?}");
    }
    let json = place.exits(8, &["get", "cgroups-lookup", "/", &long, "--json"]);
    let json = json.json();
    assert_eq!(json["cgroups"][1]["status"], "too-large");
    assert_eq!(json["cgroups"][0]["status"], "known");
}

#[test]
fn a_missing_provider_is_reported_with_the_command_that_starts_it() {
    let place = Place::new();
    for (subject, key) in [("apps", "1"), ("cgroups-lookup", "/")] {
        let ended = place.exits(3, &["get", subject, key]);
        assert!(ended.stderr.contains(&format!("bellwire provide {subject}")), "{ended:?}");
    }
}

#[test]
fn a_senseless_lookup_is_a_wrong_command_line() {
    let place = Place::new();
    for args in [
        &["get", "apps"][..],
        &["get", "cgroups-lookup"],
        &["get", "apps", "x"],
        &["get", "apps", "-1"],
        &["get", "apps", "1", "--watch"],
        &["get", "apps", "1", "--filter", "x"],
        &["get", "cgroups", "/"],
        &["get", "cgroups", "--json", "--format", "json"],
        &["provide", "apps", "--synthetic", "3"],
    ] {
        assert_eq!(place.run(args).status, Some(2), "{args:?}");
    }
}

#[test]
fn a_system_without_processes_or_cgroups_has_no_such_service() {
    let place = Place::new();
    let nothing = place.temp().join("nothing");
    let nothing = nothing.to_str().unwrap();
    let ended = place.exits(10, &["provide", "apps", "--root", nothing]);
    assert!(ended.stderr.contains("shows no processes"), "{ended:?}");
    let ended = place.run(&["provide", "cgroups-lookup", "--root", nothing]);
    assert!(matches!(ended.status, Some(1 | 10)), "{ended:?}");
}
