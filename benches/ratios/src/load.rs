//! A client and its server, and what passes between them.

use std::time::{Duration, Instant};

use bellwire::{Client, SpinPolicy};
use bellwire_floor::Cpus;

use crate::provider::{Echo, Provider, Sink, call, stream};

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

pub const LOADS: [(&str, Load); 7] = [
    ("100", Load::Paced(100)),
    ("1000", Load::Paced(1_000)),
    ("10000", Load::Paced(10_000)),
    ("hot", Load::Hot),
    ("stream", Load::Stream),
    ("parked", Load::Parked),
    ("parked-together", Load::ParkedTogether),
];

/// A server in a process of its own, and its clients in this one.
pub struct Pair {
    load: Load,
    echo: Client<Echo>,
    sink: Client<Sink>,
    _provider: Provider,
}

impl Pair {
    pub fn start(cpus: Cpus, load: Load) -> Self {
        let long = Duration::from_millis(1);
        let spin = match load {
            Load::Hot | Load::Stream => SpinPolicy { max: long, pays_within: long },
            _ => SpinPolicy::NEVER,
        };
        let cpus = if load == Load::ParkedTogether { cpus.same() } else { cpus };
        let provider = Provider::start(cpus, spin);
        Self { load, echo: provider.client(), sink: provider.client(), _provider: provider }
    }

    /// The time of so many calls.
    pub fn run(&mut self, calls: u32) -> Duration {
        match self.load {
            Load::Stream => stream(&mut self.sink, calls.into()),
            _ => call(&mut self.echo, calls.into()),
        }
    }

    /// The nanoseconds of each of so many calls, one after the other, so many a second.
    pub fn run_at_rate(&mut self, calls: u32, rate: u32) -> Vec<f64> {
        let mut due = Instant::now();
        let mut one = || {
            due += Duration::from_secs(1) / rate;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.run(1).as_secs_f64() * 1e9
        };
        (0..calls).map(|_| one()).collect()
    }
}
