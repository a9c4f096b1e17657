//! A service that is slow in five ways, to try the tracer on: `docs/tracing.md` investigates each of them. On Linux.
//!
//! ```text
//! cargo run --release --example slow -- handler|processor|reader|stopped|lane [SECONDS]
//! ```
//!
//! It starts a server in a process of its own and calls it. As root, `bellwire-trace` shows the cause of the delay.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellwire::{
    CallError, Client, ClientConfig, Geometry, LaneConfig, RunDir, Server, ServerConfig, Service,
    SpinPolicy,
};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Sleeps for as many microseconds as a request begins with.
struct Orders;

impl Service for Orders {
    const NAME: &'static str = "orders";
    type Request = Vec<u8>;
    type Response = Vec<u8>;
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let fault = words.first().map_or("handler", String::as_str);
    if let Some(dir) = fault.strip_prefix("serve:") {
        return serve(&RunDir::new(dir));
    }
    let seconds = words.get(1).map_or(Ok(10), |text| text.parse())?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let dir = tempfile::tempdir()?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg(format!("serve:{}", dir.path().display()))
        .stdin(Stdio::piped())
        .spawn()?;
    let lane = LaneConfig::default().size(Geometry::new(4096)?);
    let config = ClientConfig::default().spin(SpinPolicy::NEVER).lane(lane);
    let mut client = Client::<Orders>::with_config(&RunDir::new(dir.path()), config);
    client.wait_available(Duration::from_secs(10))?;
    println!("client {}, server {}", std::process::id(), server.id());
    let outcome = match fault {
        "handler" => handler(&mut client, end),
        "processor" => processor(&mut client, server.id(), end),
        "reader" => reader(&mut client, end),
        "stopped" => stopped(&mut client, server.id(), end),
        "lane" => lane_that_grows(&mut client, end),
        other => Err(format!("no such fault: {other}").into()),
    };
    drop(server.stdin.take());
    server.wait()?;
    outcome
}

fn serve(run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let config = ServerConfig::default().spin(SpinPolicy::NEVER);
    let mut builder = Server::builder_with_config(run_dir, config);
    builder.serve::<Orders>(|_, mut request| {
        let micros = request.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        std::thread::sleep(Duration::from_micros(micros.into()));
        request.truncate(64);
        Ok(request)
    })?;
    let _server = builder.start()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn order(micros: u32, bytes: usize) -> Vec<u8> {
    let mut request = micros.to_le_bytes().to_vec();
    request.resize(bytes, 0);
    request
}

/// One request in a hundred takes 5 ms in the handler.
fn handler(client: &mut Client<Orders>, end: Instant) -> Result<(), Box<dyn Error>> {
    let mut number = 0_u32;
    while Instant::now() < end {
        number += 1;
        client.call(&order(if number % 100 == 0 { 5000 } else { 0 }, 64))?;
    }
    Ok(())
}

/// The server shares a processor with two threads that never rest.
fn processor(client: &mut Client<Orders>, server: u32, end: Instant) -> Result<(), Box<dyn Error>> {
    let mut first = CpuSet::new();
    first.set(0);
    for task in std::fs::read_dir(format!("/proc/{server}/task"))? {
        let tid = task?.file_name().to_str().and_then(|tid| tid.parse().ok());
        sched_setaffinity(tid.and_then(Pid::from_raw), &first)?;
    }
    for _ in 0..2 {
        std::thread::spawn(move || {
            let _ = sched_setaffinity(None, &first);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        });
    }
    while Instant::now() < end {
        client.call(&order(0, 64))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The client sends many requests and looks for answers every 20 ms.
fn reader(client: &mut Client<Orders>, end: Instant) -> Result<(), Box<dyn Error>> {
    let session = client.connect()?;
    let mut open = 0;
    while Instant::now() < end {
        for _ in 0..16 {
            match session.submit(&order(0, 64)) {
                Ok(_) => open += 1,
                Err(CallError::WouldBlock) => break,
                Err(error) => return Err(error.into()),
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        while open > 0 && session.try_reply()?.is_some() {
            open -= 1;
        }
    }
    Ok(())
}

/// The server is stopped for 50 ms twice a second, as by a debugger or a freezer.
fn stopped(client: &mut Client<Orders>, server: u32, end: Instant) -> Result<(), Box<dyn Error>> {
    let pid = i32::try_from(server).ok().and_then(Pid::from_raw).ok_or("a process has an id")?;
    std::thread::spawn(move || {
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(450));
            let _ = kill_process(pid, Signal::STOP);
            std::thread::sleep(Duration::from_millis(50));
            let _ = kill_process(pid, Signal::CONT);
        }
    });
    while Instant::now() < end {
        client.call(&order(200, 64))?;
    }
    Ok(())
}

/// Each request is twice as long as the one before, until the lane has grown to 1 MiB.
fn lane_that_grows(client: &mut Client<Orders>, end: Instant) -> Result<(), Box<dyn Error>> {
    // For a tracer to attach.
    std::thread::sleep(end.saturating_duration_since(Instant::now()) / 2);
    for power in 6..20 {
        client.call(&order(0, 1 << power))?;
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}
