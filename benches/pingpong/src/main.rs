//! Hot ping-pong between two processes on two processors, for comparing two builds: `benches/probes` does that.
//!
//! Prints the time of a call in nanoseconds: the median of the quickest tenth of the batches, which nobody else on
//! the machine disturbed.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellwire::{Client, ClientConfig, RunDir, Server, ServerConfig, Service, SpinPolicy};
use rustix::thread::{CpuSet, sched_setaffinity};

const BATCH: u32 = 500;
const PAYLOAD: usize = 64;

struct Echo;

impl Service for Echo {
    const NAME: &'static str = "echo";
    type Request = [u8; PAYLOAD];
    type Response = [u8; PAYLOAD];
}

fn main() {
    let mut words = std::env::args().skip(1);
    let first = words.next();
    let long = Duration::from_millis(1);
    let spin = SpinPolicy { max: long, worth: long };
    if first.as_deref() == Some("serve") {
        pin(1);
        let run_dir = RunDir::new(words.next().unwrap());
        let mut builder =
            Server::builder_with(&run_dir, ServerConfig { spin, ..ServerConfig::default() });
        builder.serve::<Echo>(|_, request| Ok(request)).unwrap();
        let _server = builder.start().unwrap();
        // Until the other end of the pipe is gone.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        return;
    }
    let batches: usize = first.map_or(2_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .arg(dir.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    pin(0);
    let config = ClientConfig { spin, ..ClientConfig::default() };
    let mut client = Client::<Echo>::with_config(&RunDir::new(dir.path()), config);
    let request = [7; PAYLOAD];
    while client.call(&request).is_err() {
        std::thread::yield_now();
    }
    let mut took: Vec<f64> = (0..batches)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..BATCH {
                black_box(client.call(black_box(&request)).unwrap());
            }
            began.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
        })
        .collect();
    took.sort_unstable_by(f64::total_cmp);
    println!("{:.2}", took[batches / 20]);
    drop(server.stdin.take());
    server.wait().unwrap();
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    let _ = sched_setaffinity(None, &cpus);
}
