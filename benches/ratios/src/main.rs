//! What hot paths cost beside the machine's own cost, for `ci/budget`, and what probes and a tracer add, for `benches/probes`.
//!
//! `bellwire-ratios gate [NAME]` prints ratios to the machine's own cost. `bellwire-ratios hot [BATCHES]` prints the time of a
//! hot call in nanoseconds: the median of the quickest tenth of the batches, which were not disturbed. `bellwire-ratios traced
//! TRACER [ROUNDS [LOAD [MODE]]]` compares each load without and with that `bellwire-trace` attached.
//!
//! The other end is a real process, pinned to the second processor. `bellwire bench` measures everything else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    unreachable_pub,
    missing_docs,
    reason = "a bench that cannot go on says so by panicking"
)]

mod gate;
mod load;
mod provider;
mod ratio;
mod traced;

use std::path::Path;
use std::process::ExitCode;

use bellwire_floor::Cpus;

fn main() -> ExitCode {
    if let Some(code) = bellwire_floor::peer_main(&[(provider::ROLE, provider::serve)]) {
        return code;
    }
    let cpus = Cpus::pick().expect("no processor to pin to");
    cpus.pin_client().expect("cannot pin to a processor");
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["gate", ref rest @ ..] => gate::run(cpus, rest.first().copied()),
        ["traced", tracer, ref rest @ ..] => {
            let rounds = rest.first().map_or(80, |rounds| rounds.parse().unwrap());
            let (load, mode) = (rest.get(1).copied(), rest.get(2).copied());
            traced::compare(cpus, Path::new(tracer), rounds, load, mode);
        }
        ["hot", ref rest @ ..] => {
            hot(cpus, rest.first().map_or(2_000, |batches| batches.parse().unwrap()));
        }
        _ => panic!(
            "usage: bellwire-ratios gate [NAME] | hot [BATCHES] | traced TRACER [ROUNDS [LOAD [MODE]]]"
        ),
    }
    ExitCode::SUCCESS
}

fn hot(cpus: Cpus, batches: usize) {
    const BATCH: u32 = 500;
    let mut pair = load::Pair::start(cpus, load::Load::Hot);
    let mut took: Vec<f64> =
        (0..batches).map(|_| pair.run(BATCH).as_secs_f64() * 1e9 / f64::from(BATCH)).collect();
    took.sort_unstable_by(f64::total_cmp);
    println!("{:.2}", took[batches / 20]);
}
