use bellwire::{RunDir, Server, Service};

use crate::support::Place;

/// A service whose method the command does not know.
struct Foreign;

impl Service for Foreign {
    const NAME: &'static str = "foreign";
    const METHOD: u32 = 42;
    type Request = u64;
    type Response = u64;
}

#[test]
fn each_service_is_told_with_its_generation_and_lanes() {
    let place = Place::new();
    let provider = place.provider();
    let mut builder = Server::builder(&RunDir::new(place.run_dir()));
    builder.serve::<Foreign>(|_, number| Ok(number)).unwrap();
    let server = builder.start().unwrap();

    let report = place.run(&["stat", "--format", "json"]);
    assert_eq!(report.status, Some(0), "{report:?}");
    let services = report.json()["services"].clone();
    let [cgroups, foreign] = &services.as_array().unwrap()[..] else { panic!("{services:#}") };
    assert_eq!(
        (&cgroups["service"], &cgroups["state"]),
        (&"cgroups-snapshot".into(), &"open".into())
    );
    assert_eq!((&cgroups["pid"], &cgroups["generation"]), (&provider.pid().into(), &1.into()));
    for lane in ["request_lane", "answer_lane"] {
        assert_eq!(cgroups[lane], 16 << 10, "{cgroups:#}");
    }
    assert_eq!(cgroups["max_request"], 64 << 20);
    assert!(cgroups["nanos"].as_u64() > Some(0) && cgroups["why"].is_null());

    // It answers, and says which method it would have liked.
    assert_eq!(
        (&foreign["state"], &foreign["pid"]),
        (&"refused".into(), &std::process::id().into())
    );
    assert!(foreign["why"].as_str().unwrap().contains("method 42"), "{foreign:#}");
    let asked = place.run(&["stat", "foreign", "--method", "42", "--format", "json"]).json();
    let foreign = &asked["services"][0];
    assert_eq!((&foreign["state"], &foreign["generation"]), (&"open".into(), &0.into()));
    assert_eq!(server.stop().poisoned, 0);
}

#[test]
fn a_table_has_a_line_for_each_and_says_why() {
    let place = Place::new();
    let provider = place.provider();
    let mut builder = Server::builder(&RunDir::new(place.run_dir()));
    builder.serve::<Foreign>(|_, number| Ok(number)).unwrap();
    let _server = builder.start().unwrap();
    let ended = place.run(&["stat"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!((ended.status, lines.len()), (Some(0), 4), "{ended:?}");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    let pid = provider.pid().to_string();
    assert_eq!(words[..3], ["cgroups-snapshot", "open", pid.as_str()]);
    assert_eq!(words[6..], ["16", "KiB", "16", "KiB", "64", "MiB"], "{ended:?}");
    assert!(lines[2].contains("refused") && lines[3].starts_with("foreign: "), "{ended:?}");
}

#[test]
fn a_new_generation_is_seen_at_the_next_look() {
    let place = Place::new();
    let mut provider = place.provider();
    place.cgroup("web.slice");
    provider.stderr_until("generation 2");
    let report = place.run(&["stat", "cgroups-snapshot", "-f", "json"]).json();
    assert_eq!(report["services"][0]["generation"], 2);
}

#[test]
fn what_nobody_serves_is_absent_and_a_refusal_is_told() {
    let place = Place::new();
    let missing = place.run(&["stat"]);
    assert_eq!(missing.status, Some(3));
    assert!(missing.stderr.contains("there is no run dir"), "{missing:?}");
    let absent = place.run(&["stat", "cgroups-snapshot", "--format", "json"]);
    assert_eq!(
        (absent.status, &absent.json()["services"][0]["state"]),
        (Some(3), &"absent".into())
    );

    let root = place.root();
    let mut command = place.command(&["provide", "cgroups", "--root", root.to_str().unwrap()]);
    let mut provider = crate::support::Running::of(command.env("NETDATA_INVOCATION_ID", "one"));
    provider.stderr_until("providing");
    let refused = place.run(&["stat"]);
    assert_eq!(refused.status, Some(4), "{refused:?}");
    assert!(refused.stdout.contains("NETDATA_INVOCATION_ID"), "{refused:?}");
}
