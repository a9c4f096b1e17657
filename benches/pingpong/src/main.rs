//! What probes and a tracer cost: calls between two processes, for `benches/probes`, which builds this with probes and
//! without.
//!
//! `pingpong BATCHES` prints the time of a hot call in nanoseconds: the median of the quickest tenth of the batches,
//! which were not disturbed. `pingpong traced TRACER [ROUNDS [LOAD [MODE]]]` compares each load without and with that
//! `bellwire-trace` attached.

mod load;
mod traced;

use std::path::Path;

use load::Load;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", load, dir] => load::serve(Load::named(load), Path::new(dir)),
        ["traced", tracer, ref rest @ ..] => {
            let rounds = rest.first().map_or(80, |rounds| rounds.parse().unwrap());
            traced::compare(Path::new(tracer), rounds, rest.get(1).copied(), rest.get(2).copied());
        }
        [] => alone(2_000),
        [batches] => alone(batches.parse().unwrap()),
        _ => panic!("usage: pingpong [BATCHES | traced TRACER [ROUNDS [LOAD [MODE]]]]"),
    }
}

fn alone(batches: usize) {
    const BATCH: u32 = 500;
    let mut pair = load::Pair::start(Load::Hot);
    let mut took: Vec<f64> =
        (0..batches).map(|_| pair.run(BATCH).as_secs_f64() * 1e9 / f64::from(BATCH)).collect();
    took.sort_unstable_by(f64::total_cmp);
    println!("{:.2}", took[batches / 20]);
}
