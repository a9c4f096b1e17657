//! `bellwire watch`: what happens in a service, as it happens.

use bellwire::{Event, EventPublisher, RunDir, Server};

use crate::support::{Place, Signal};

struct News;

impl Event for News {
    const NAME: &'static str = "news";
    type Message = Vec<u8>;
}

fn provider(place: &Place) -> (Server, EventPublisher<News>) {
    let mut builder = Server::builder(&RunDir::new(place.run_dir()));
    let publisher = builder.events::<News>(64 << 10).unwrap();
    (builder.start().unwrap(), publisher)
}

fn send(publisher: &EventPublisher<News>, events: &[&[u8]]) {
    for event in events {
        publisher.send(&event.to_vec()).unwrap();
    }
}

#[test]
fn events_are_printed_as_text_as_digits_and_as_json() {
    let place = Place::new();
    let (_server, publisher) = provider(&place);
    send(&publisher, &[b"all is well", b"\xff\x00", b""]);
    let printed = |args: &[&str]| {
        let all = [&["watch", "news", "--oldest", "--count", "3"], args].concat();
        let ended = place.run(&all);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        ended.stdout
    };
    assert_eq!(printed(&[]), "1  all is well\n2  ff00\n3  \n");
    assert_eq!(printed(&["--hex"]).lines().next(), Some("1  616c6c2069732077656c6c"));
    let lines = printed(&["--json"]);
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({ "sequence": 1, "text": "all is well" }));
    assert_eq!(lines[1], serde_json::json!({ "sequence": 2, "hex": "ff00" }));
}

#[test]
fn watch_waits_for_an_absent_provider_and_reports_it() {
    let place = Place::new();
    let mut watch = place.start(&["watch", "news", "--oldest"]);
    watch.stderr_until("waiting for a provider of news");
    let (_server, publisher) = provider(&place);
    send(&publisher, &[b"first"]);
    watch.stdout_until("first");
    let mut refused = place.start(&["watch", "news", "--service-version", "77"]);
    refused.stderr_until("not version 77");
}

#[test]
fn a_late_refusal_is_reported() {
    let Some(place) = Place::with_shell() else { return };
    let mut provider = place.provider();
    provider.signal(Signal::Stop);
    let mut watch = place.start(&["watch", "cgroups-snapshot", "--service-version", "77"]);
    // It looks after 100 ms, while the provider is stopped.
    std::thread::sleep(std::time::Duration::from_millis(400));
    provider.signal(Signal::Cont);
    watch.stderr_until("not version 77");
    assert!(provider.end_by(Signal::Term).success());
}

#[test]
fn missed_events_are_counted() {
    let Some(place) = Place::with_shell() else { return };
    let (_server, publisher) = provider(&place);
    let mut watch = place.start(&["watch", "news", "--oldest", "--json"]);
    send(&publisher, &[b"first"]);
    assert!(watch.stdout_until("first").contains("\"sequence\":1"));
    watch.signal(Signal::Stop);
    for _ in 0..10_000 {
        send(&publisher, &[b"too many"]);
    }
    send(&publisher, &[b"last"]);
    watch.signal(Signal::Cont);
    assert!(watch.stdout_until("missed").contains("\"missed\":"));
    assert!(watch.stdout_until("last").contains("\"sequence\":10002"));
}

#[test]
fn an_absent_provider_and_a_timeout_have_their_exit_codes() {
    let place = Place::new();
    let absent = place.exits(3, &["watch", "news", "--timeout", "1ms"]);
    assert!(absent.stderr.contains("nobody provides news"), "{absent:?}");
    let (_server, _publisher) = provider(&place);
    place.exits(5, &["watch", "news", "--timeout", "300ms"]);
    place.exits(4, &["watch", "news", "--service-version", "2", "--timeout", "300ms"]);
}
