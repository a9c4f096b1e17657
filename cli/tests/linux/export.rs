//! `bellwire export`, scraped.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::{MetricNumber, OpenMetricsType, OpenMetricsValue};

use crate::support::{Place, Running, Signal};

/// What an HTTP server answers: its status line and headers, and what it sends.
fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn exporter(place: &Place) -> (Running, SocketAddr) {
    let mut exporter = place.start(&["export", "--listen", "127.0.0.1:0"]);
    let line = exporter.stderr_until("listening on");
    let address = line.split("http://").nth(1).unwrap().trim_end_matches("/metrics");
    (exporter, address.trim_end_matches("/metrics").parse().unwrap())
}

/// Each sample of a family, by its labels.
fn values(text: &str) -> BTreeMap<(String, Vec<String>), f64> {
    let exposition = parse_openmetrics(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut values = BTreeMap::new();
    for (name, family) in &exposition.families {
        for sample in family.iter_samples() {
            let number = match &sample.value {
                OpenMetricsValue::Counter(counter) => {
                    assert_eq!(family.family_type, OpenMetricsType::Counter);
                    &counter.value
                }
                OpenMetricsValue::Gauge(number) => number,
                // How many there were.
                OpenMetricsValue::Histogram(histogram) => &histogram.buckets.last().unwrap().count,
                other => panic!("{name}: {other:?}"),
            };
            let number = match number {
                MetricNumber::Int(number) => *number as f64,
                MetricNumber::Float(number) => *number,
            };
            let labels = sample.get_labelset().unwrap();
            let labels = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            values.insert((name.clone(), labels), number);
        }
    }
    values
}

#[test]
fn a_scrape_is_valid_and_has_the_counters_of_the_provider() {
    let place = Place::new();
    let provider = place.provider();
    for _ in 0..3 {
        assert_eq!(place.run(&["get", "cgroups"]).status, Some(0));
    }
    let (mut exporter, address) = exporter(&place);
    let (head, body) = ask(address, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let types: Vec<&str> =
        head.lines().filter(|line| line.to_lowercase().starts_with("content-type:")).collect();
    let expected = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(types, [expected]);
    assert!(body.ends_with("# EOF\n") && body.matches("# EOF").count() == 1, "{body}");
    let scraped = values(&body);
    let service = vec!["service=cgroups-snapshot".to_owned()];
    let of = |name: &str| scraped[&(name.to_owned(), service.clone())];
    assert_eq!(of("bellwire_up"), 1.0);
    assert_eq!(of("bellwire_requests_accepted"), 3.0);
    assert_eq!(of("bellwire_requests_answered"), 3.0);
    assert_eq!(of("bellwire_attachments_sent"), 3.0);
    assert_eq!(of("bellwire_requests_in_flight"), 0.0);
    assert!(of("bellwire_received_bytes") >= 48.0);
    let pid = vec![format!("pid={}", provider.pid())];
    assert!(scraped[&("bellwire_server_sessions_limit".to_owned(), pid)] >= 1000.0);

    // The same without a server in between.
    let printed = place.run(&["stat", "--format", "openmetrics"]);
    let printed = values(&printed.stdout);
    // The exporter has seen a client that was about to leave, or not.
    let is_kept = |(name, _): &&(String, Vec<String>)| name != "bellwire_call_seconds";
    let [printed, scraped] = [&printed, &scraped].map(|values| values.keys().filter(is_kept));
    assert!(printed.eq(scraped), "{body}");

    drop(provider);
    let (_, body) = ask(address, "GET /metrics");
    assert_eq!(body, "# EOF\n", "it stopped, and its endpoint is gone");
    assert!(ask(address, "GET /").0.starts_with("HTTP/1.1 404"));
    assert!(ask(address, "POST /metrics").0.starts_with("HTTP/1.1 405"));
    assert_eq!(exporter.end_by(Signal::Int).code(), Some(0));
}

#[test]
fn a_scrape_has_the_latencies_of_clients_that_have_left_too() {
    let place = Place::new();
    let _provider = place.provider();
    let (_exporter, address) = exporter(&place);
    let service = vec!["service=cgroups-snapshot".to_owned()];
    let timed = || {
        let scraped = values(&ask(address, "GET /metrics").1);
        scraped.get(&("bellwire_call_seconds".to_owned(), service.clone())).copied().unwrap_or(0.0)
    };
    // Another test's client counts, too, while nobody can see its server: between their starts, and their ends.
    let other = timed();
    let mut client =
        place.start(&["ping", "cgroups-snapshot", "--count", "0", "--interval", "10ms"]);
    let mut before = other;
    while before < other + 5.0 {
        let now = timed();
        assert!(now >= before);
        before = now;
    }
    client.end_by(Signal::Int);
    assert!(timed() >= before);
}

#[test]
fn a_client_that_sends_or_reads_nothing_holds_up_no_other() {
    let place = Place::new();
    let (_exporter, address) = exporter(&place);
    let stuck = [
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n",
    ];
    let mut streams = Vec::new();
    for request in stuck.into_iter().cycle().take(70) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request}").unwrap();
        // It is answered before its body is waited for.
        assert!(stream.read(&mut [0; 16]).unwrap() > 0);
        streams.push(stream);
    }
    streams.extend((0..70).map(|_| TcpStream::connect(address).unwrap()));
    assert!(ask(address, "GET /metrics").0.starts_with("HTTP/1.1 200"));
}

#[test]
fn a_missing_run_dir_has_no_providers() {
    let place = Place::new();
    let (_exporter, address) = exporter(&place);
    let (head, body) = ask(address, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(body, "# EOF\n");
}
