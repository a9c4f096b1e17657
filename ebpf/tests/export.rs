//! `export`, scraped as by Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use openmetrics_parser::OpenMetricsValue;
use openmetrics_parser::openmetrics::parse_openmetrics;

use crate::support::process::{Process, pair};
use crate::support::tracer::Tracer;
use crate::support::wait_until;

/// The tracer of a server, and the address at which it is scraped.
fn export(server: &Process, args: &[&str]) -> Option<(Tracer, String)> {
    let listens = ["export", "--listen", "127.0.0.1:0"];
    let mut tracer = Tracer::start_at(server, &[&listens, args].concat())?;
    let address = tracer.line()["listening"].as_str().unwrap().to_owned();
    Some((tracer, address))
}

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
    let (_dir, server, mut client) = pair();
    let Some((tracer, address)) = export(&server, &[]) else { return };
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
    assert!(quick.clone().count() > 5 && quick.clone().all(|bucket| bucket.count.as_f64() == 0.0));
    assert_eq!(receive.buckets.last().map(|bucket| bucket.count.as_f64()), Some(25.0));
    assert!(exposition.families.contains_key("bellwire_trace_lost"));

    // The counts are cumulative.
    client.ask("calls 5 0");
    let (_, body) = get(&address, "/metrics");
    assert!(
        body.contains("bellwire_call_stage_seconds_count{service=\"nap\",pattern=\"call\",stage=\"call\"} 30\n"),
        "{body}"
    );

    // The slowest call is the example of the bucket that holds it.
    let example = body.lines().find(|line| line.contains(" # {session=\"")).unwrap();
    assert!(example.contains("stage=\"call\""), "{example}");
    let seconds: f64 = example.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((0.002..10.0).contains(&seconds), "{example}");

    assert!(get(&address, "/").0.starts_with("HTTP/1.1 404 "));
    assert!(send(&address, "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
    // Clients that send nothing, or endless garbage, get no response; the next one is served.
    let _silent: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut endless = TcpStream::connect(&address).unwrap();
    let _ = endless.write_all(&[b'x'; 100_000]);
    assert!(get(&address, "/metrics").0.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(tracer.finish().1.success());
}

/// A cgroup of the unified hierarchy, which is removed with what is in it; `None`, with a message, if that is not permitted.
struct Cgroup {
    path: PathBuf,
    /// As a process sees it.
    name: String,
}

impl Cgroup {
    fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let of = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (at, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(at))
        };
        let Some(root) = mounts.lines().find_map(of) else {
            eprintln!("skipped: there is no unified hierarchy of cgroups");
            return None;
        };
        let parent = format!("/bellwire-{}", std::process::id());
        let name = format!("{parent}/{name}");
        let path = root.join(&name[1..]);
        if let Err(error) = std::fs::create_dir_all(&path) {
            eprintln!("skipped: a cgroup cannot be made: {error}");
            return None;
        }
        Some(Self { path, name })
    }

    fn take(&self, pid: u32) {
        std::fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel removes those that are left empty only, and processes leave some time after they are killed.
        let is_gone = || std::fs::remove_dir(&self.path).is_ok();
        wait_until(is_gone);
        let _ = self.path.parent().map(std::fs::remove_dir);
    }
}

#[test]
fn a_scrape_names_the_unit_and_the_pod_of_both_ends() {
    const POD: &str = "01234567-89ab-cdef-0123-456789abcdef";
    let Some(unit) = Cgroup::new("orders.service") else { return };
    let Some(pod) = Cgroup::new(&format!("pod{POD}")) else { return };
    let (_dir, server, mut client) = pair();
    unit.take(server.pid());
    pod.take(client.pid());
    let Some((tracer, address)) = export(&server, &["--by-session"]) else { return };
    client.ask("calls 5 0");
    let (_, body) = get(&address, "/metrics");
    let exposition = parse_openmetrics(&body).unwrap();
    let family = &exposition.families["bellwire_call_stage_seconds"];
    let sample = family.iter_samples().next().unwrap();
    let labels = sample.get_labelset().unwrap();
    for (name, value) in [
        ("server_unit", "orders.service"),
        ("server_cgroup", &unit.name),
        ("client_pod", POD),
        ("client_cgroup", &pod.name),
    ] {
        assert_eq!(labels.get_label_value(name), Some(value), "{body}");
    }
    assert_eq!(labels.get_label_value("client_unit"), None, "{body}");
    assert!(tracer.finish().1.success());
}
