//! What child processes do.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwire::{
    Client, ClientConfig, Refreshed, RunDir, Server, ServerConfig, ServerStats, SnapshotCache,
};
use rustix::thread::{SecureComputingMode, set_secure_computing_mode};

use super::blobs::{self, Settings};
use super::child::Parent;
use super::gate::Gate;
use super::house::{patient, serve_all};
use super::kernel;
use super::services::{Echo, Numbers, numbers};
use crate::resize::serve_exactly;

/// Plays a role until the parent is gone, or says that it is enough.
pub(crate) fn play(role: &str, parent: Parent) {
    let mut words = role.split(' ');
    let name = words.next().unwrap();
    let word = words.next();
    let number = word.and_then(|word| word.parse().ok());
    let seed = word.and_then(|word| word.parse().ok());
    match name {
        "server" => serve(parent, number.unwrap_or(0)),
        "pinned-server" => {
            kernel::pin(&[number.unwrap()]);
            serve(parent, 0);
        }
        "exact" => serve_exactly(parent, seed.unwrap()),
        "blobs" => blobs::serve(parent, &Settings::parse(role.split(' ').skip(1))),
        "blob-client" => blobs::call(parent),
        "client" => call(parent),
        "watcher" => watch(parent),
        "admission" => crate::admission::play(parent, role),
        "limits" => crate::limits::play(parent, role),
        "reader" => read_without_system_calls(parent),
        role => panic!("no such role: {role}"),
    }
}

/// Provides everything, with so many workers.
fn serve(mut parent: Parent, workers: usize) {
    let voice = Mutex::new(parent.voice());
    let gate = Gate::new(move |who| writeln!(voice.lock().unwrap(), "came {who}").unwrap());
    let run_dir = RunDir::from_environment();
    let config = ServerConfig { workers, ..ServerConfig::default() };
    let mut builder = Server::builder_with(&run_dir, config);
    let publisher = serve_all(&mut builder, &gate);
    let server = builder.start().unwrap();
    parent.tell("ready");
    while let Some(line) = parent.hear() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["stats"] => parent.tell(&tell_stats(&server.stats())),
            ["open"] => {
                gate.open();
                parent.tell("opened");
            }
            ["publish", first, count] => {
                let bytes = numbers(first.parse().unwrap(), count.parse().unwrap());
                parent.tell(&publisher.publish(&bytes).unwrap().to_string());
            }
            ["stop"] => {
                gate.open();
                return parent.tell(&tell_stats(&server.stop()));
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

pub(crate) fn tell_stats(stats: &ServerStats) -> String {
    let ServerStats { sessions, admitted, turned_away, accepted, .. } = *stats;
    let ServerStats { answered, refused, lost, poisoned, rings, parks, .. } = *stats;
    let all = [
        sessions,
        admitted,
        turned_away,
        accepted,
        answered,
        refused,
        lost,
        poisoned,
        rings,
        parks,
    ];
    all.map(|number| number.to_string()).join(" ")
}

/// What a server in another process told.
pub(crate) fn parse_stats(line: &str) -> ServerStats {
    let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
    let mut stats = ServerStats::default();
    for field in [
        &mut stats.sessions,
        &mut stats.admitted,
        &mut stats.turned_away,
        &mut stats.accepted,
        &mut stats.answered,
        &mut stats.refused,
        &mut stats.lost,
        &mut stats.poisoned,
        &mut stats.rings,
        &mut stats.parks,
    ] {
        *field = numbers.next().unwrap();
    }
    stats
}

/// Opens sessions with "echo" and "hold", and calls as it is told.
fn call(mut parent: Parent) {
    let run_dir = RunDir::from_environment();
    let mut clients: Vec<Client<Echo>> = Vec::new();
    parent.tell("ready");
    while let Some(line) = parent.hear() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["open"] => {
                let mut client = Client::with_config(&run_dir, patient());
                client.call(&vec![1; 8]).unwrap();
                clients.push(client);
                parent.tell("opened");
            }
            ["close"] => {
                clients.pop().unwrap();
                parent.tell("closed");
            }
            ["call", times] => {
                for at in 0..times.parse::<u64>().unwrap() {
                    let request = at.to_le_bytes().to_vec();
                    assert_eq!(clients[0].call(&request).unwrap(), request);
                }
                parent.tell("called");
            }
            ["hold", who] => {
                let mut client = Client::<super::services::Hold>::with_config(&run_dir, patient());
                let answer = client.call(&who.parse().unwrap());
                parent.tell(&format!("{answer:?}"));
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

/// Waits for changes, and tells each.
fn watch(parent: Parent) {
    let run_dir = RunDir::from_environment();
    let config =
        ClientConfig { backoff: (Duration::from_millis(1), Duration::from_millis(5)), ..patient() };
    let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, config);
    let _ = cache.refresh().unwrap();
    parent.tell("ready");
    // The parent asks nothing: only its end is noticed.
    let ended = Arc::new(Mutex::new(parent));
    let voice = ended.lock().unwrap().voice();
    std::thread::spawn(move || {
        while ended.lock().unwrap().hear().is_some() {}
        std::process::exit(0);
    });
    loop {
        let found = cache.wait_for_change(None).unwrap();
        let current = cache.current().unwrap();
        let first = u64::from_le_bytes(current.bytes()[..8].try_into().unwrap());
        let line = format!("{found:?} {} {first} {}", current.generation(), current.index());
        if writeln!(&voice, "{line}").is_err() {
            return;
        }
    }
}

/// Refreshes a cache a thousand times, with nothing allowed but reading and writing.
fn read_without_system_calls(mut parent: Parent) {
    let run_dir = RunDir::from_environment();
    let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, patient());
    assert_eq!(cache.refresh().unwrap(), Refreshed::Changed);
    parent.tell("ready");
    parent.hear().unwrap();
    let voice = parent.voice();
    let reader = std::thread::spawn(move || {
        // From here on any other system call ends this thread.
        set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
        let mut unchanged = 0;
        for _ in 0..1000 {
            unchanged += u32::from(matches!(cache.refresh(), Ok(Refreshed::Unchanged)));
        }
        let told = if unchanged == 1000 { "unchanged\n" } else { "different\n" };
        let _ = rustix::io::write(&voice, told.as_bytes());
        // Not even to end is allowed.
    });
    // Panics either way, and ends the process with it: the kernel ended the thread.
    reader.join().unwrap();
}
