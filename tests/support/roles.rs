//! What child processes do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::blobs::{self, Settings};
use super::child::Parent;
use super::gate::Gate;
use super::guard::TEST_TIMEOUT;
use super::services::{Echo, Numbers, numbers};
use super::test_server::{client_config, serve_all, server_config};
use bellwire::{Backoff, Client, RunDir, Server, ServerConfig, ServerStats, SnapshotCache};

/// Plays a role until the parent is gone, or ends it.
pub(crate) fn play(role: &str, parent: Parent) {
    let (name, words) = role.split_once(' ').unwrap_or((role, ""));
    let unknown = |words: &[&str]| panic!("what is {words:?}?");
    match name {
        "server" => serve(parent, words.parse().unwrap_or(0)),
        "blobs" => blobs::serve(parent, &Settings::parse(words.split_whitespace()), unknown),
        "blob-client" => blobs::call(parent, unknown),
        "client" => call(parent),
        "watcher" => watch(parent),
        role => panic!("no such role: {role}"),
    }
}

/// Provides everything, with so many workers.
pub(crate) fn serve(mut parent: Parent, workers: usize) {
    let writer = parent.writer();
    let gate = Gate::new(move |who| writer.send_line(&format!("came {who}")));
    let run_dir = RunDir::from_environment();
    let config = ServerConfig::default().workers(workers);
    let mut builder = Server::builder_with_config(&run_dir, server_config(config));
    builder.inherit_sockets().unwrap();
    let publisher = serve_all(&mut builder, &gate);
    let server = builder.start().unwrap();
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["stats"] => parent.send_line(&format_stats(&server.stats())),
            ["open"] => {
                gate.open();
                parent.send_line("opened");
            }
            ["publish", first, count] => {
                let bytes = numbers(first.parse().unwrap(), count.parse().unwrap());
                parent.send_line(&publisher.publish(&bytes).unwrap().to_string());
            }
            ["stop"] => {
                gate.open();
                return parent.send_line(&format_stats(&server.stop()));
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

/// The counters that a server in another process reports, in their order.
fn reported_counters(stats: &mut ServerStats) -> [&mut u64; 10] {
    let ServerStats { sessions, admitted, handshakes_failed, accepted, answered, .. } = stats;
    let ServerStats { refused, lost, poisoned, rings, parks, .. } = stats;
    [
        sessions,
        admitted,
        handshakes_failed,
        accepted,
        answered,
        refused,
        lost,
        poisoned,
        rings,
        parks,
    ]
}

pub(crate) fn format_stats(stats: &ServerStats) -> String {
    reported_counters(&mut stats.clone()).map(|number| number.to_string()).join(" ")
}

/// What a server in another process reported.
pub(crate) fn parse_stats(line: &str) -> ServerStats {
    let mut stats = ServerStats::default();
    for (field, number) in reported_counters(&mut stats).into_iter().zip(line.split(' ')) {
        *field = number.parse().unwrap();
    }
    stats
}

/// Opens sessions with "echo" and "hold", and calls on command.
fn call(mut parent: Parent) {
    let run_dir = RunDir::from_environment();
    let mut clients: Vec<Client<Echo>> = Vec::new();
    let mut holders = Vec::new();
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["open"] => {
                let mut client = Client::with_config(&run_dir, client_config());
                client.call(&vec![1; 8]).unwrap();
                clients.push(client);
                parent.send_line("opened");
            }
            ["close"] => {
                clients.pop().unwrap();
                parent.send_line("closed");
            }
            ["call", times] => {
                for at in 0..times.parse::<u64>().unwrap() {
                    let request = at.to_le_bytes().to_vec();
                    assert_eq!(clients[0].call(&request).unwrap(), request);
                }
                parent.send_line("called");
            }
            ["ask", times] => {
                let mut client =
                    Client::<super::services::Hold>::with_config(&run_dir, client_config());
                let session = client.connect().unwrap();
                for at in 0..times.parse().unwrap() {
                    session.submit(&at).unwrap();
                }
                holders.push(client);
                parent.send_line("asked");
            }
            ["ask-all", times] => {
                for client in &mut holders {
                    for at in 0..times.parse().unwrap() {
                        client.session().unwrap().submit(&at).unwrap();
                    }
                }
                parent.send_line("asked");
            }
            ["post", times] => {
                let mut client =
                    Client::<super::services::Hold>::with_config(&run_dir, client_config());
                let session = client.connect().unwrap();
                parent.send_line("posts");
                for at in 0..times.parse().unwrap() {
                    session.post(&at).unwrap();
                }
                holders.push(client);
                parent.send_line("posted");
            }
            ["hold", who] => {
                let mut client =
                    Client::<super::services::Hold>::with_config(&run_dir, client_config());
                let answer = client.call(&who.parse().unwrap());
                parent.send_line(&format!("{answer:?}"));
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

/// Waits for changes, and reports each.
fn watch(parent: Parent) {
    let run_dir = RunDir::from_environment();
    let config = client_config().backoff(
        Backoff::default().initial(Duration::from_millis(1)).max(Duration::from_millis(5)),
    );
    let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, config);
    let _ = cache.refresh_within(TEST_TIMEOUT).unwrap();
    parent.send_line("ready");
    // The parent sends nothing: only its end is noticed.
    let ended = Arc::new(Mutex::new(parent));
    let writer = ended.lock().unwrap().writer();
    std::thread::spawn(move || {
        while ended.lock().unwrap().next_line().is_some() {}
        std::process::exit(0);
    });
    loop {
        let found = cache.wait_for_change(None).unwrap();
        let current = cache.current().unwrap();
        let first = u64::from_le_bytes(current.bytes()[..8].try_into().unwrap());
        writer.send_line(&format!(
            "{found:?} {} {first} {}",
            current.generation(),
            current.index()
        ));
    }
}
