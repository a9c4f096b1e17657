//! The tracer must not trust the times of a peer.

use crate::support::process::Process;
use crate::support::tracer::{Tracer, number, stage};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_client_with_false_times_affects_only_its_own_counts() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start("server", dir.path());
    let mut faulty = Process::start("client", dir.path());
    let mut honest = Process::start("client", dir.path());
    let Some(tracer) = Tracer::start_at(&server, &["breakdown", "--by-session"]) else { return };
    for _ in 0..10 {
        faulty.ask("false-times 3");
        honest.ask("calls 3 0");
    }
    let (tables, status, messages) = tracer.finish_with_messages();
    assert!(status.success());
    // The second call of each pair had false times: it was sampled and not counted.
    let disordered = messages.split(" messages whose times are not in order").next().unwrap();
    let disordered: u64 = disordered.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(disordered >= 10, "{messages}");
    let of = |pid: u32| tables.iter().find(|table| table["client"] == pid);
    let table = of(honest.pid()).unwrap();
    assert_eq!(table["calls"], 30, "{table:#}");
    let longest = number(stage(table, "call"), "max_ns");
    assert!(longest < 600 * SECOND, "{table:#}");
    // The false times did no other harm: the server and both sessions work.
    assert_eq!(faulty.ask("calls 1 0"), "done");
    assert_eq!(server.ask("admitted"), "2");
}
