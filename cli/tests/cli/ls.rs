use std::fs;

use crate::support::Place;

#[test]
fn a_missing_run_dir_is_reported_and_an_empty_one_lists_nothing() {
    let place = Place::new();
    let missing = place.run(&["ls"]);
    assert_eq!((missing.status, missing.stdout.as_str()), (Some(3), ""));
    assert!(missing.stderr.contains("there is no run dir"), "{missing:?}");
    let missing = place.run(&["ls", "--format", "json"]);
    assert_eq!((missing.status, &missing.json()["exists"]), (Some(3), &false.into()));

    fs::create_dir(place.run_dir()).unwrap();
    let empty = place.run(&["ls"]);
    assert_eq!((empty.status, empty.stdout.as_str()), (Some(0), ""));
    assert!(empty.stderr.contains("no endpoints"), "{empty:?}");
    assert_eq!(place.run(&["ls", "--format", "json"]).json()["endpoints"], serde_json::json!([]));
}

#[test]
fn every_command_reports_a_run_dir_that_is_a_file() {
    let place = Place::new();
    fs::write(place.run_dir(), "a file").unwrap();
    for args in [&["ls"][..], &["ping", "foreign"], &["get", "cgroups"], &["stat"], &["call", "x"]]
    {
        let ended = place.exits(1, args);
        assert!(ended.stderr.contains("is not a directory"), "{ended:?}");
        assert!(ended.stderr.contains("--run-dir"), "{ended:?}");
    }
}

#[test]
fn endpoints_are_listed_with_mode_owner_and_pid() {
    let place = Place::new();
    let provider = place.provider();
    let listed = place.exits(0, &["ls"]);
    let line = listed.stdout.lines().nth(1).unwrap();
    let fields: Vec<&str> = line.split_whitespace().collect();
    let pid = provider.pid().to_string();
    assert_eq!(fields[..3], ["cgroups-snapshot", "alive", pid.as_str()], "{line}");
    assert_eq!(fields[5], place.address());

    let endpoint = &place.run(&["ls", "--format", "json"]).json()["endpoints"][0];
    // Permission bits, where there are some: nobody else may connect.
    assert_eq!(fields[3], endpoint["mode"].as_str().unwrap_or("-"));
    assert!(["0600", "-"].contains(&fields[3]), "{line}");
    assert_eq!(endpoint["pid"], provider.pid());
    assert_eq!(endpoint["address"], fields[5]);
    assert_eq!(endpoint["user"], bellwire::User::own().to_string());
    assert_eq!(endpoint["owner"], fields[4]);
}

#[test]
fn the_option_takes_precedence_over_the_variable() {
    let place = Place::new();
    let _provider = place.provider();
    let other = place.temp();
    let elsewhere = place.run(&["ls", "--run-dir", other.to_str().unwrap(), "--format", "json"]);
    assert_eq!(elsewhere.json()["endpoints"], serde_json::json!([]));
}
