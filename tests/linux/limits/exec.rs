//! The embedding process forks, and executes another program.

use std::process::{Command, Stdio};

use bellwire::{Client, Doorbell, RunDir, SnapshotCache};

use crate::support::child::{Parent, Process};
use crate::support::gate::Gate;
use crate::support::guard::TEST_TIMEOUT;
use crate::support::services::{Echo, Numbers, numbers};
use crate::support::test_server::{Dir, client_config, serve_all};

/// A provider and its client in one process, with everything that a session can hold; then another program lists what
/// it inherited.
pub(super) fn play(mut parent: Parent) {
    let run_dir = RunDir::from_environment();
    let mut builder = bellwire::Server::builder(&run_dir);
    let publisher = serve_all(&mut builder, &Gate::new(|_| {}));
    let server = builder.start().unwrap();
    publisher.publish(&numbers(1, 3)).unwrap();
    let config = client_config().doorbell(Doorbell::Eventfd);
    let mut client = Client::<Echo>::with_config(&run_dir, config);
    let canceller = client.canceller().unwrap();
    assert_eq!(client.call(&vec![1; 100_000]).unwrap(), vec![1; 100_000]);
    let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, client_config());
    cache.refresh_within(TEST_TIMEOUT).unwrap();
    parent.send_line("ready");
    parent.next_line().unwrap();
    let own = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let listing = Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .stdin(Stdio::null())
        .output()
        .expect("ls(1) is there");
    let left: Vec<_> = String::from_utf8(listing.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once(" -> ").map(|(_, target)| target.to_owned()))
        // Its own: three standard streams, and the directory that it reads.
        .filter(|target| {
            !["/dev/null", "/proc/", "pipe:"].iter().any(|own| target.starts_with(own))
        })
        .collect();
    parent.send_line(&format!("{own} {left:?}"));
    // None of that was the end of anything.
    assert_eq!(client.call(&vec![2]).unwrap(), [2]);
    parent.send_line("done");
    drop((canceller, server));
}

#[test]
fn a_program_that_the_embedding_process_executes_inherits_nothing() {
    let dir = Dir::new();
    let mut embedder = Process::start("limits exec", &dir.run_dir);
    let reply = embedder.ask("list");
    let (own, left) = reply.split_once(' ').unwrap();
    assert!(
        own.parse::<u32>().unwrap() > 10,
        "the process holds too little to show anything: {reply}"
    );
    assert_eq!(left, "[]");
    assert_eq!(embedder.next_line(), "done");
}
