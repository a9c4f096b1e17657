//! The stages, compared with what a program measures by its own clock.

use std::process::Command;

use crate::support::process::{Process, program};
use crate::support::tracer::{TRACER, Tracer, number, stage};

/// Attempts: other tests use the processors too, and have ended before the last ones.
const ATTEMPTS: usize = 30;

/// What a call and its handler may differ by, in nanoseconds, if it is more than a tenth. Without optimization, encoding an
/// answer and reading the clock take as long again, and a sampled call longer than the others: 3.7 µs where they took 2.3.
const MARGINS: [u64; 2] = if cfg!(debug_assertions) { [2_000, 400] } else { [200, 200] };

/// For a call that takes little more than the probes do: without optimization, and where a trap is slow, 8.7 µs where it took
/// 4.5, and 0.8 for its handler's 0.1.
const HOT_MARGINS: [u64; 2] = if cfg!(debug_assertions) { [5_000, 1_000] } else { MARGINS };

/// Whether a time of the tracer is that of the program. The tracer's percentiles are the middles of buckets an eighth wide.
fn agrees(traced: u64, own: u64, margin: u64) -> bool {
    let bucket = own / 16;
    traced.abs_diff(own) <= (own / 10).max(margin) + bucket
}

/// Makes calls of `BYTES MICROS PAUSE`, samples them at `rate`, and compares their median and that of the handler. With all
/// sampled, the program's clock has what the probes take too.
#[track_caller]
fn compare(server: &str, client: &str, calls: &str, rate: &str, margins: [u64; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(&format!("clocked-server {server}"), dir.path());
    let mut client = Process::start(&format!("clocked-client {client}"), dir.path());
    client.ask(&format!("20 {}", calls.split_once(' ').unwrap().1));
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut command = Command::new(TRACER);
        command.args(["breakdown", "--json", "-p", &server.pid().to_string(), "--exe"]);
        command.arg(program()).args(["--rate", rate]);
        let Some(tracer) = Tracer::start_by(command) else { return };
        let own = client.ask(calls);
        let tables = tracer.tables();
        let own: Vec<u64> = own.split(' ').map(|word| word.parse().unwrap()).collect();
        let traced = ["call", "handler"].map(|name| number(stage(&tables[0], name), "p50_ns"));
        // The handler ends when its answer is encoded: a few copies after its own clock.
        if (0..2).all(|at| agrees(traced[at], own[at], margins[at])) {
            return;
        }
        seen.push((own, traced, tables[0].to_string()));
    }
    panic!("own call and handler, and traced: {seen:#?}");
}

#[test]
fn a_hot_call_takes_as_long_as_by_its_own_clock() {
    compare("hot", "hot", "300000 64 0", "2000", HOT_MARGINS);
}

#[test]
fn a_hot_call_with_a_busy_handler_takes_as_long_as_by_its_own_clock() {
    compare("hot", "hot", "20000 64 20", "all", MARGINS);
}

#[test]
fn a_parked_call_takes_as_long_as_by_its_own_clock() {
    compare("parked", "parked", "2000 64 50 300", "2000", MARGINS);
}

#[test]
fn a_call_of_two_mebibytes_takes_as_long_as_by_its_own_clock() {
    compare("parked", "parked", "400 2097152 500", "2000", MARGINS);
}

#[test]
fn a_call_of_a_worker_takes_as_long_as_by_its_own_clock() {
    compare("workers", "parked", "2000 64 50 300", "2000", MARGINS);
}
