use std::fs;
use std::path::PathBuf;

use crate::support::{Ended, ONE, OTHER, Place, Signal, chmod};

#[test]
fn a_provider_prints_its_run_dir_and_services() {
    let place = Place::new();
    let mut provider = place.start(&["provide", "cgroups", &place.root_option()]);
    let line = provider.stderr_until("providing");
    for part in [place.address().as_str(), "3 cgroups", "v2", "1.00 s"] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn synthetic_cgroups_are_provided_on_request() {
    let place = Place::new();
    let mut provider = place.start(&["provide", "cgroups", "--synthetic", "70"]);
    let line = provider.stderr_until("providing");
    assert!(line.contains("70 synthetic cgroups, which do not change"), "{line}");
    let snapshot = place.run(&["get", "cgroups", "--format", "json"]).json();
    assert_eq!((&snapshot["total"], &snapshot["generation"]), (&70.into(), &1.into()));
}

#[test]
fn a_verbose_provider_prints_each_generation() {
    let place = Place::new();
    let mut provider = place.provider();
    place.cgroup("web.slice");
    assert!(provider.stderr_until("generation 2").contains("4 cgroups"));
}

#[test]
fn a_signal_ends_a_provider_cleanly_and_takes_its_socket_away() {
    for signal in [Signal::Term, Signal::Int] {
        let Some(place) = Place::with_shell() else { return };
        let mut provider = place.provider();
        let socket = PathBuf::from(place.address());
        assert!(socket.exists());
        assert!(provider.end_by(signal).success(), "{signal:?}");
        assert!(provider.rest().1.contains("stopped"));
        assert!(!socket.exists());
    }
}

#[test]
fn a_second_provider_is_refused_with_the_holder_of_the_name() {
    let place = Place::new();
    let first = place.provider();
    let second = place.exits(7, &["provide", "cgroups", &place.root_option()]);
    assert!(second.stderr.contains(&format!("process {} provides", first.pid())), "{second:?}");
    assert!(second.stderr.contains("--run-dir"), "{second:?}");
    // The first one was not disturbed.
    assert_eq!(place.run(&["get", "cgroups"]).status, Some(0));
}

#[test]
fn a_provider_outlives_its_terminal_and_leaves_no_socket_behind() {
    let Some(place) = Place::with_shell() else { return };
    let mut provider = place.provider();
    provider.signal(Signal::Hup);
    let endpoint = &place.run(&["ls", "-o", "json"]).json()["endpoints"][0];
    assert_eq!((&endpoint["state"], &endpoint["pid"]), (&"alive".into(), &provider.pid().into()));
    assert_eq!(place.run(&["get", "cgroups"]).status, Some(0));
    assert!(provider.ends_well_by(Signal::Term));
    assert_eq!(place.run(&["ls", "--json"]).json()["endpoints"], serde_json::json!([]));
}

#[test]
fn a_killed_provider_is_absent_and_stale_until_a_new_one_takes_the_name_over() {
    let place = Place::new();
    let mut first = place.provider();
    first.end_by(Signal::Kill);
    assert_eq!(place.run(&["get", "cgroups", "--timeout", "50ms"]).status, Some(3));
    // Windows leaves nothing behind.
    let left = place.run(&["ls", "--format", "json"]).json()["endpoints"].clone();
    assert!(left.as_array().unwrap().iter().all(|left| left["state"] == "stale"), "{left:#}");

    let second = place.provider();
    let endpoint = &place.run(&["ls", "--format", "json"]).json()["endpoints"][0];
    assert_eq!((&endpoint["state"], &endpoint["pid"]), (&"alive".into(), &second.pid().into()));
    assert_eq!(place.run(&["get", "cgroups"]).status, Some(0));
}

#[test]
fn a_failed_scan_or_bind_is_reported_with_advice() {
    let place = Place::new();
    let empty = place.temp();
    let nothing = place.exits(1, &["provide", "cgroups", "--root", empty.to_str().unwrap()]);
    assert!(nothing.stderr.contains("no cgroup hierarchy"), "{nothing:?}");
    assert!(nothing.stderr.contains("--root"), "{nothing:?}");
}

#[test]
fn nothing_is_provided_where_others_may_put_something_in_its_place() {
    let Some(place) = Place::with_shell() else { return };
    fs::create_dir(place.run_dir()).unwrap();
    chmod("0777", &place.run_dir());
    let unsafe_dir = place.exits(1, &["provide", "cgroups"]);
    assert!(unsafe_dir.stderr.contains("chmod go-w"), "{unsafe_dir:?}");
}

#[test]
fn a_client_without_the_providers_token_is_refused() {
    let place = Place::new();
    let file = place.root().join("token");
    fs::write(&file, format!("{ONE}\n")).unwrap();
    let _provider = place.provider_with("BELLWIRE_TOKEN", ONE);
    let get = &["get", "cgroups", "--timeout", "9s"][..];
    for client in [get, &["ping", "cgroups-snapshot", "-c1"]] {
        let ended = place.exits(4, client);
        assert!(ended.stderr.contains("the client has none"), "{ended:?}");
        let ended = Ended::of(place.command(client).env("BELLWIRE_TOKEN", OTHER));
        assert_eq!(ended.status, Some(4), "{ended:?}");
        assert!(ended.stderr.contains("BELLWIRE_TOKEN"), "{ended:?}");
        let ended = Ended::of(place.command(client).env("BELLWIRE_TOKEN", ONE));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let of_file = [client, &["--token-file", file.to_str().unwrap()]].concat();
        let ended = Ended::of(place.command(&of_file).env("BELLWIRE_TOKEN", OTHER));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
    let ended = Ended::of(place.command(get).env("BELLWIRE_TOKEN", "one"));
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("32 hexadecimal digits"), "{ended:?}");
}

/// What `kill -9` would have taken along.
#[test]
fn a_refusal_is_printed_with_its_time_and_reason_when_it_happens() {
    let place = Place::new();
    let mut provider = place.provider_with("BELLWIRE_TOKEN", ONE);
    place.exits(4, &["get", "cgroups", "--timeout", "9s"]);
    let line = provider.stderr_until("was refused");
    let (time, what) = line.split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.contains('T') && time.ends_with('Z'), "{line}");
    assert!(what.contains("session") && what.contains("BELLWIRE_TOKEN"), "{line}");
    let stat = &mut place.command(&["stat", "--format", "json"]);
    let reply = Ended::of(stat.env("BELLWIRE_TOKEN", ONE)).json()["services"][0].clone();
    // A client may have come again.
    let refused = reply["stats"]["clients_refused"].as_u64().unwrap();
    assert!(refused >= 1, "{reply:#}");
    assert_eq!(reply["server"]["incidents"][0]["refused"], refused, "{reply:#}");
    for (format, part) in [("table", "refused"), ("openmetrics", "kind=\"refused\"} ")] {
        let stat = &mut place.command(&["stat", "--format", format]);
        let reply = Ended::of(stat.env("BELLWIRE_TOKEN", ONE)).stdout;
        assert!(reply.contains(part), "{reply}");
    }
    provider.end_by(Signal::Kill);
}

/// systemd gives each unit an invocation id of its own, and a shell beside them has none.
#[test]
fn two_systemd_units_and_a_shell_understand_each_other() {
    let place = Place::new();
    let _provider = place.provider_with("INVOCATION_ID", ONE);
    let get = ["get", "cgroups", "--timeout", "9s"];
    for id in ["", OTHER] {
        let ended = Ended::of(place.command(&get).env("INVOCATION_ID", id));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
}
