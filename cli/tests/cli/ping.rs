use crate::support::{Place, Signal};

#[test]
fn a_known_service_is_called_on_one_session() {
    let place = Place::new();
    let provider = place.provider();
    let ended = place.exits(0, &["ping", "cgroups-snapshot", "-c", "3", "-i", "0s"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].contains("calls on one session"), "{ended:?}");
    let session = format!("session with process {} opened", provider.pid());
    assert!(lines[1].starts_with("1: ") && lines[1].contains(&session), "{ended:?}");
    assert_eq!(ended.stdout.matches("opened").count(), 1, "{ended:?}");
    assert!(lines[4].contains("3 calls, 3 answered, 0 % lost"), "{ended:?}");
    assert!(lines[5].contains("min") && !lines[5].contains(" ns"), "too fast: {ended:?}");
}

#[test]
fn each_try_is_an_object_for_programs() {
    let place = Place::new();
    let _provider = place.provider();
    let ended = place.exits(0, &["ping", "cgroups-snapshot", "-c", "2", "-i", "0s", "-o", "json"]);
    let tries: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((tries.len(), &tries[1]["try"]), (2, &2.into()), "{ended:?}");
    assert!(tries.iter().all(|tried| tried["nanos"].as_u64() > Some(0)), "{ended:?}");
    let absent = place.exits(3, &["ping", "foreign", "-c", "1", "--json"]);
    assert!(absent.json()["error"].as_str().unwrap().contains("nobody provides"), "{absent:?}");
}

#[test]
fn any_service_is_measured_by_handshakes() {
    let place = Place::new();
    let server = place.foreign();
    let refused = place.run(&["ping", "foreign", "-c", "2", "-i", "0s"]);
    assert_eq!(refused.status, Some(0), "a refusal answers: {refused:?}");
    assert!(refused.stdout.contains("one handshake each"), "{refused:?}");
    assert!(refused.stdout.contains("version 42 of foreign"), "{refused:?}");
    assert!(refused.stdout.contains("2 handshakes, 2 answered"), "{refused:?}");

    let welcomed =
        place.exits(0, &["ping", "foreign", "--service-version", "42", "-c", "2", "-i", "0s"]);
    let by = format!("welcomed by process {}", std::process::id());
    assert!(welcomed.stdout.contains(&by), "{welcomed:?}");

    let stats = server.stop();
    assert_eq!((stats.admitted, stats.handshakes_failed, stats.poisoned), (2, 2, 0));
}

#[test]
fn an_absent_service_is_all_loss_and_exits_with_3() {
    let place = Place::new();
    for service in ["cgroups-snapshot", "foreign"] {
        let ended = place.exits(3, &["ping", service, "-c", "2", "-i", "0s"]);
        assert!(ended.stdout.contains("0 answered, 100 % lost"), "{ended:?}");
        assert!(ended.stderr.contains("nobody provides"), "{ended:?}");
    }
}

#[test]
fn a_provider_that_does_not_answer_is_a_deadline() {
    let Some(place) = Place::with_shell() else { return };
    let mut provider = place.provider();
    provider.signal(Signal::Stop);
    let ended = place.run(&["ping", "foreign", "-c", "1", "--timeout", "50ms"]);
    assert_eq!(ended.status, Some(3), "another service is absent still: {ended:?}");
    let args = ["ping", "cgroups-snapshot", "-c", "1", "--timeout", "50ms"];
    for args in [&args[..], &[&args[..], &["--service-version", "1"]].concat()] {
        place.exits(5, args);
    }
    provider.signal(Signal::Cont);
    assert!(provider.end_by(Signal::Term).success());
}

#[test]
fn a_signal_ends_it_with_a_summary() {
    let Some(place) = Place::with_shell() else { return };
    let _provider = place.provider();
    let mut ping = place.start(&["ping", "cgroups-snapshot", "-c", "0", "-i", "1h"]);
    ping.stdout_until("1: ");
    assert!(ping.end_by(Signal::Int).success());
    assert!(ping.rest().0.contains("1 calls, 1 answered"));
}
