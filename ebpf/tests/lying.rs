//! A peer's times are its word.

use crate::support::process::Process;
use crate::support::tracer::{Tracer, number, stage};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_client_with_false_times_spoils_its_own_figures_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start("server", dir.path());
    let mut liar = Process::start("client", dir.path());
    let mut honest = Process::start("client", dir.path());
    let args = ["breakdown", "--by-session", "-p", &server.pid().to_string()];
    let Some(tracer) = Tracer::start(&args) else { return };
    for _ in 0..10 {
        liar.ask("lie 3");
        honest.ask("calls 3 0");
    }
    let (tables, status, told) = tracer.finish_and_tell();
    assert!(status.success());
    // Of each pair the second call lied; those were sampled, and not counted.
    let disordered = told.split(" calls whose times are not in order").next().unwrap();
    let disordered: u64 = disordered.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(disordered >= 10, "{told}");
    let of = |pid: u32| tables.iter().find(|table| table["client"] == pid);
    let table = of(honest.pid()).unwrap();
    assert_eq!(table["calls"], 30, "{table:#}");
    let longest = number(stage(table, "call"), "max_ns");
    assert!(longest < 600 * SECOND, "{table:#}");
    // Nobody believed it: the server and the liar's session are well.
    assert_eq!(liar.ask("calls 1 0"), "done");
    assert_eq!(server.ask("well?"), "2");
}
