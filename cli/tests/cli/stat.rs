use bellwire::{Client, RunDir, Server};

use crate::support::{Foreign, ONE, Place, Signal};

/// A provider, after five calls of which two failed.
fn foreign(place: &Place) -> Server {
    let server = place.foreign();
    let mut client = Client::<Foreign>::new(&RunDir::new(place.run_dir()));
    for number in 0..5 {
        assert_eq!(client.call(&number).is_ok(), number % 2 == 0);
    }
    server
}

#[test]
fn each_service_is_listed_with_its_generation_and_lanes() {
    let place = Place::new();
    let provider = place.provider();
    let server_of = foreign(&place);

    let report = place.exits(0, &["stat", "--format", "json"]);
    let services = report.json()["services"].clone();
    let [cgroups, foreign] = &services.as_array().unwrap()[..] else { panic!("{services:#}") };
    assert_eq!(cgroups["service"], "cgroups-snapshot");
    assert_eq!(cgroups["state"], "open");
    assert_eq!((&cgroups["pid"], &cgroups["generation"]), (&provider.pid().into(), &1.into()));
    for lane in ["request_lane", "answer_lane"] {
        assert_eq!(cgroups[lane], 16 << 10, "{cgroups:#}");
    }
    assert_eq!(cgroups["max_request"], 64 << 20);
    assert!(cgroups["nanos"].as_u64() > Some(0) && cgroups["why"].is_null());

    // Whatever it serves, it tells its counters.
    let pid = std::process::id();
    assert_eq!((&foreign["state"], &foreign["pid"]), (&"open".into(), &pid.into()));
    let (stats, server) = (&foreign["stats"], &foreign["server"]);
    assert_eq!((&stats["accepted"], &stats["in_flight"]), (&5.into(), &0.into()), "{foreign:#}");
    assert_eq!((&stats["answered"], &stats["errors"]), (&5.into(), &2.into()), "{foreign:#}");
    assert_eq!((&server["pid"], &server["workers"]), (&pid.into(), &0.into()), "{foreign:#}");
    assert!(server["total"]["accepted"].as_u64() >= Some(5), "{foreign:#}");
    // Of a version, a session is opened, or the provider says which one it would have liked.
    let asked =
        place.run(&["stat", "foreign", "--service-version", "42", "--format", "json"]).json();
    let asked = &asked["services"][0];
    assert_eq!((&asked["state"], &asked["generation"]), (&"open".into(), &0.into()));
    assert!(asked["stats"].is_null());
    let refused =
        place.run(&["stat", "foreign", "--service-version", "7", "--format", "json"]).json();
    let refused = &refused["services"][0];
    assert_eq!((&refused["state"], &refused["pid"]), (&"refused".into(), &pid.into()));
    assert!(refused["why"].as_str().unwrap().contains("version 42"), "{refused:#}");
    assert_eq!(server_of.stop().poisoned, 0);
}

#[test]
fn tables_show_the_start_of_a_session_and_its_counters() {
    let place = Place::new();
    let provider = place.provider();
    let server = foreign(&place);
    let ended = place.run(&["stat"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!((ended.status, lines.len()), (Some(0), 11), "{ended:?}");
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let pid = provider.pid().to_string();
    assert_eq!(words(lines[1])[..3], ["cgroups-snapshot", "open", pid.as_str()]);
    assert_eq!(words(lines[1])[6..], ["16", "KiB", "16", "KiB", "64", "MiB"], "{ended:?}");
    assert_eq!(words(lines[5])[..3], ["cgroups-snapshot", "0", "0"], "{ended:?}");
    assert_eq!(words(lines[6]), ["foreign", "0", "5", "5", "0", "0", "0", "2"], "{ended:?}");
    let waits_with = server.backend().backend.to_string();
    assert_eq!(words(lines[10]).join(" "), format!("foreign {waits_with} - -"), "{ended:?}");
}

#[test]
fn a_watch_continues_until_it_is_stopped() {
    let place = Place::new();
    let _server = foreign(&place);
    let args = ["stat", "foreign", "--watch", "--interval", "10ms", "--format", "json"];
    let mut watch = place.start(&args);
    for _ in 0..3 {
        let line = watch.stdout_until("accepted");
        assert!(line.contains("\"accepted\":5"), "{line}");
    }
    watch.ends_well_by(Signal::Int);
    let mut watch = place.start(&["stat", "--watch", "--interval", "10ms"]);
    watch.stdout_until("CALLS/S");
    // Nothing came since the first look.
    assert!(watch.stdout_until(" 0  ").starts_with("foreign"), "a rate of 0");
    watch.ends_well_by(Signal::Int);
}

#[test]
fn a_new_generation_is_seen_at_the_next_poll() {
    let place = Place::new();
    let mut provider = place.provider();
    place.cgroup("web.slice");
    provider.stderr_until("generation 2");
    let report = place.run(&["stat", "cgroups-snapshot", "-f", "json"]).json();
    assert_eq!(report["services"][0]["generation"], 2);
}

#[test]
fn an_unserved_service_is_absent_and_a_refusal_is_reported() {
    let place = Place::new();
    let missing = place.exits(3, &["stat"]);
    assert!(missing.stderr.contains("there is no run dir"), "{missing:?}");
    let absent = place.exits(3, &["stat", "cgroups-snapshot", "--format", "json"]);
    assert_eq!(absent.json()["services"][0]["state"], "absent");

    let _provider = place.provider_with("BELLWIRE_TOKEN", ONE);
    let refused = place.exits(4, &["stat"]);
    assert!(refused.stdout.contains("BELLWIRE_TOKEN"), "{refused:?}");
}
