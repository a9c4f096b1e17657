//! What idle sessions cost their two processes: descriptors, threads, memory. `docs/operating.md` has the figures.
//!
//! `cargo run --release --example sessions -- 1000 [eventfd|socket] [workers]`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellwire::{Client, ClientConfig, Doorbell, RunDir, Server, ServerConfig, Service};
use bellwire_process::{PROGRAM, ResourceUsage, resource_usage};

struct Echo;

impl Service for Echo {
    const NAME: &'static str = "echo";
    type Request = Vec<u8>;
    type Response = Vec<u8>;
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| args.get(at).map_or(Ok(or), |text| text.parse());
    let (sessions, workers) = (number(0, 1000)?, number(2, 0)?);
    let doorbell = match args.get(1).map(String::as_str) {
        Some("socket") => Doorbell::Socket,
        _ => Doorbell::Eventfd,
    };
    match std::env::var_os("SESSIONS_RUN_DIR") {
        Some(run_dir) => serve(&RunDir::new(run_dir), sessions, doorbell, workers),
        None => measure(&args, sessions),
    }
}

/// Provides until nobody listens any more.
fn serve(
    run_dir: &RunDir,
    sessions: usize,
    doorbell: Doorbell,
    workers: usize,
) -> Result<(), Box<dyn Error>> {
    let max_sessions = sessions + 1;
    let config =
        ServerConfig::default().doorbell(doorbell).workers(workers).max_sessions(max_sessions);
    // All of them are of one user.
    let config = config.max_sessions_per_user(Some(max_sessions));
    let mut builder = Server::builder_with_config(run_dir, config);
    builder.serve::<Echo>(|_, request| Ok(request))?;
    let server = builder.start()?;
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new())?;
    eprintln!("{:?}", server.stop());
    Ok(())
}

fn measure(args: &[String], sessions: usize) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut server = Command::new(PROGRAM)
        .args(args)
        .env("SESSIONS_RUN_DIR", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let ready = server.stdout.take().ok_or("no output")?;
    BufReader::new(ready).read_line(&mut String::new())?;
    let run_dir = RunDir::new(dir.path());
    let config = ClientConfig::default().connect_timeout(Duration::from_secs(10));
    let pids = [server.id(), std::process::id()];
    let mut clients = Vec::with_capacity(sessions);
    let mut open = || -> Result<(), Box<dyn Error>> {
        let mut client = Client::<Echo>::with_config(&run_dir, config.clone());
        client.call(&vec![1; 64])?;
        clients.push(client);
        Ok(())
    };
    // The first one brings what is there once for all.
    open()?;
    let before = pids.map(resource_usage);
    let begun = Instant::now();
    for _ in 1..=sessions {
        open()?;
    }
    let took = begun.elapsed();
    println!("{sessions} sessions more, opened and called once in {took:.2?}");
    for (who, (pid, before)) in ["server", "client"].into_iter().zip(pids.into_iter().zip(before)) {
        let (before, now) = (before?, resource_usage(pid)?);
        let each =
            |of: fn(&ResourceUsage) -> u64| (of(&now) - of(&before)) as f64 / sessions as f64;
        println!(
            "{who}: {:.2} descriptors, {:.1} KiB of RSS and {:.2} memfds each; {} threads in all",
            each(|held| held.descriptors),
            each(|held| held.rss) / 1024.0,
            each(|held| held.memfds),
            now.threads,
        );
    }
    drop(clients);
    let _ = server.stdin.take().ok_or("no input")?.write_all(b"\n");
    server.wait()?;
    Ok(())
}
