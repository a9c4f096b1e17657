//! `export`, scraped as by Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;

use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::{MetricNumber, OpenMetricsValue};

use crate::support::process::Process;
use crate::support::tracer::Tracer;

/// Sends a request, and returns the head and the body of the response.
fn send(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn get(address: &str, path: &str) -> (String, String) {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

#[test]
fn a_scrape_has_the_histograms_of_every_stage() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let mut client = Process::start("client", dir.path());
    let pid = server.pid().to_string();
    let Some(mut tracer) = Tracer::start(&["export", "-p", &pid, "--listen", "127.0.0.1:0"]) else {
        return;
    };
    let address = tracer.line()["listening"].as_str().unwrap().to_owned();
    client.ask("calls 25 2000");
    let (head, body) = get(&address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    let exposition = parse_openmetrics(&body).unwrap();
    let family = &exposition.families["bellwire_call_stage_seconds"];
    let sample = family
        .iter_samples()
        .find(|sample| {
            let labels = sample.get_labelset().unwrap();
            labels.get_label_value("stage") == Some("receive")
                && labels.get_label_value("service") == Some("nap")
        })
        .unwrap();
    let OpenMetricsValue::Histogram(receive) = &sample.value else { panic!("{body}") };
    assert_eq!(receive.count, Some(25));
    // Each slept for 2 ms.
    assert!(receive.sum.unwrap().as_f64() >= 25.0 * 0.002, "{body}");
    let quick = receive.buckets.iter().filter(|bucket| bucket.upper_bound < 0.002);
    assert!(quick.clone().count() > 5 && quick.clone().all(|bucket| count(bucket.count) == 0.0));
    assert_eq!(receive.buckets.last().map(|bucket| count(bucket.count)), Some(25.0));
    assert!(exposition.families.contains_key("bellwire_trace_lost"));

    // The counts are cumulative.
    client.ask("calls 5 0");
    let (_, body) = get(&address, "/metrics");
    assert!(
        body.contains("bellwire_call_stage_seconds_count{service=\"nap\",stage=\"call\"} 30\n"),
        "{body}"
    );

    assert!(get(&address, "/").0.starts_with("HTTP/1.1 404 "));
    assert!(send(&address, "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
    // A client that sends nothing, or endless garbage, gets no response; the next one is served.
    drop(TcpStream::connect(&address).unwrap());
    let mut endless = TcpStream::connect(&address).unwrap();
    let _ = endless.write_all(&[b'x'; 100_000]);
    assert!(get(&address, "/metrics").0.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(tracer.finish().1.success());
}

fn count(number: MetricNumber) -> f64 {
    number.as_f64()
}
