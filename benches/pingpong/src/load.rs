//! A client and its server, and what passes between them.

use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwire::{
    CallError, Client, ClientConfig, Geometry, LaneConfig, RunDir, Server, ServerConfig, Service,
    SpinPolicy,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

const PAYLOAD: usize = 64;

struct Echo;

impl Service for Echo {
    const NAME: &'static str = "echo";
    type Request = [u8; PAYLOAD];
    type Response = [u8; PAYLOAD];
}

/// Answers nothing: one way.
struct Sink;

impl Service for Sink {
    const NAME: &'static str = "sink";
    type Request = [u8; PAYLOAD];
    type Response = ();
}

/// What passes, and how both ends wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One call at a time, both ends spinning on processors of their own.
    Hot,
    /// Requests as fast as the lane takes them.
    Stream,
    /// One call at a time, both ends asleep each turn on processors of their own.
    Parked,
    /// The same on one processor.
    ParkedTogether,
    /// Parked, so many calls a second.
    Paced(u32),
}

pub const LOADS: [Load; 7] = [
    Load::Paced(100),
    Load::Paced(1_000),
    Load::Paced(10_000),
    Load::Hot,
    Load::Stream,
    Load::Parked,
    Load::ParkedTogether,
];

impl Load {
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Stream => "stream",
            Self::Parked => "parked",
            Self::ParkedTogether => "parked-together",
            Self::Paced(100) => "100",
            Self::Paced(1_000) => "1000",
            Self::Paced(_) => "10000",
        }
    }

    pub fn named(name: &str) -> Self {
        LOADS.into_iter().find(|load| load.name() == name).unwrap()
    }

    fn spin(self) -> SpinPolicy {
        let long = Duration::from_millis(1);
        match self {
            Self::Hot | Self::Stream => SpinPolicy { max: long, worth: long },
            _ => SpinPolicy::NEVER,
        }
    }
}

/// The server's process: until the other end of its standard input is gone.
pub fn serve(load: Load, dir: &Path) {
    pin(usize::from(load != Load::ParkedTogether));
    let config = ServerConfig::default().spin(load.spin());
    let mut builder = Server::builder_with(&RunDir::new(dir), config);
    builder.serve::<Echo>(|_, request| Ok(request)).unwrap();
    builder.serve::<Sink>(|_, _| Ok(())).unwrap();
    let _server = builder.start().unwrap();
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// A server in a process of its own, and its client in this one.
pub struct Pair {
    load: Load,
    server: Child,
    echo: Client<Echo>,
    sink: Client<Sink>,
    _dir: TempDir,
}

impl Pair {
    pub fn start(load: Load) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Command::new(std::env::current_exe().unwrap())
            .args(["serve", load.name()])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        pin(0);
        let lane = Geometry::new(256 << 10).unwrap();
        let config =
            ClientConfig::default().spin(load.spin()).lane(LaneConfig::default().size(lane));
        let run_dir = RunDir::new(dir.path());
        let mut echo = Client::with_config(&run_dir, config.clone());
        let mut sink = Client::with_config(&run_dir, config);
        while echo.connect().is_err() || sink.connect().is_err() {
            std::thread::yield_now();
        }
        Self { load, server, echo, sink, _dir: dir }
    }

    /// The time of so many calls.
    pub fn run(&mut self, calls: u32) -> Duration {
        let began = Instant::now();
        match self.load {
            Load::Stream => self.stream(calls),
            _ => self.call(calls),
        }
        began.elapsed()
    }

    /// The nanoseconds of each of so many calls, one after the other, so many a second.
    pub fn run_paced(&mut self, calls: u32, rate: u32) -> Vec<f64> {
        let mut due = Instant::now();
        let mut one = || {
            due += Duration::from_secs(1) / rate;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.run(1).as_secs_f64() * 1e9
        };
        (0..calls).map(|_| one()).collect()
    }

    fn call(&mut self, calls: u32) {
        let request = [7; PAYLOAD];
        for _ in 0..calls {
            black_box(self.echo.call(black_box(&request)).unwrap());
        }
    }

    fn stream(&mut self, calls: u32) {
        let session = self.sink.session().unwrap();
        let request = [7; PAYLOAD];
        let (mut sent, mut answered) = (0, 0);
        while answered < calls {
            while sent < calls {
                match session.submit(&request) {
                    Ok(_) => sent += 1,
                    Err(CallError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            while let Some((_, answer)) = session.try_reply().unwrap() {
                answer.unwrap();
                answered += 1;
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        self.server.wait().unwrap();
    }
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    let _ = sched_setaffinity(None, &cpus);
}
