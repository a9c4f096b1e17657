//! Where a handler runs, and what a call costs there: on the reactor's thread, in a worker, or as a task of a tokio runtime.
//!
//! `cargo run --release --features derive,tokio --example handlers`

use std::error::Error;
use std::time::{Duration, Instant};

use bellwire::{Client, RunDir, Server, ServerConfig};

#[derive(bellwire::Service)]
#[service(name = "increment", request = u64, response = u64)]
struct Increment;

/// The median and 99th percentile of a round trip, and one call's share of 256 in flight.
fn measure(client: &mut Client<Increment>) -> Result<[Duration; 3], Box<dyn Error>> {
    let session = client.connect()?;
    let mut times = Vec::with_capacity(20_000);
    for number in 0..20_000 {
        let began = Instant::now();
        assert_eq!(session.call(&number)?, number + 1);
        times.push(began.elapsed());
    }
    times.sort();
    let numbers: Vec<u64> = (0..256).collect();
    let began = Instant::now();
    for _ in 0..100 {
        session.call_many(&numbers, |at, answer| assert_eq!(answer.ok(), Some(at as u64 + 1)))?;
    }
    let share = began.elapsed() / 25_600;
    Ok([times.len() / 2, times.len() * 99 / 100]
        .map(|at| times.get(at).copied().unwrap_or_default()))
    .map(|[median, slow]| [median, slow, share])
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let _entered = runtime.enter();
    let dir = std::env::temp_dir().join(format!("bellwire-handlers-{}", std::process::id()));
    for round in 1..=5 {
        for handler in ["reactor", "worker", "task"] {
            let run_dir = RunDir::new(&dir);
            let workers = if handler == "worker" { 1 } else { 0 };
            let config = ServerConfig::default().workers(workers);
            let mut builder = Server::builder_with_config(&run_dir, config);
            match handler {
                "task" => builder
                    .serve_async::<Increment, _>(|_, number| async move { Ok(number + 1) })?,
                _ => builder.serve::<Increment>(|_, number| Ok(number + 1))?,
            };
            let server = builder.start()?;
            let [median, slow, share] = measure(&mut Client::new(&run_dir))?;
            println!(
                "{round} {handler:8} {median:8.1?} {slow:8.1?} p99 {share:8.1?} of 256 in flight"
            );
            server.stop();
        }
    }
    Ok(std::fs::remove_dir_all(dir)?)
}
