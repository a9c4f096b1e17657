//! A load process of the benchmark.

use std::io::BufRead;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{Client, ClientConfig, RunDir};
use bellwire_process::{self as process, plain};
use hdrhistogram::{CreationError, Histogram};

use super::protocol::{Connected, Done, LEN, Load, Mirror, Order};
use crate::bench::args::BenchLoad;
use crate::exit::{Exit, Failure, chain};
use crate::out;

/// The number of threads of one process for paced calls; each has its own sessions.
const MOST_THREADS: usize = 50;
/// Long enough that a busy machine does not fail a call or a handshake.
const PATIENCE: Duration = Duration::from_secs(60);

/// One session, of either kind.
enum Caller {
    Bellwire(Box<Client<Mirror>>),
    Plain(plain::Client),
}

/// The results of one thread.
struct Seen {
    calls: u64,
    /// Always `Some`: the bounds are valid.
    took: Option<Histogram<u64>>,
    failed: Option<String>,
}

/// Creates a histogram of nanoseconds, up to 100 s.
pub(super) fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3)
}

pub(crate) fn run(run_dir: &RunDir, args: &BenchLoad) -> Result<Exit, Failure> {
    process::end_with_parent();
    let mut callers = Vec::with_capacity(args.sessions);
    let mut short = None;
    while callers.len() < args.sessions && short.is_none() {
        match Caller::connect(run_dir, args) {
            Ok(caller) => callers.push(caller),
            Err(why) => short = Some(why),
        }
    }
    out::json_line(&Connected { sessions: callers.len(), short })?;
    for line in std::io::stdin().lock().lines() {
        let Ok(order) = serde_json::from_str::<Order>(&line?) else { break };
        out::json_line(&follow(&order, &mut callers))?;
    }
    Ok(Exit::Ok)
}

fn follow(order: &Order, callers: &mut [Caller]) -> Done {
    let threads = match order.load {
        Load::Closed => 1,
        Load::Paced { .. } => callers.len().clamp(1, MOST_THREADS),
    };
    let share = callers.len().div_ceil(threads).max(1);
    let begun = Instant::now();
    let until = begun + Duration::from_millis(order.millis);
    let seen: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = callers
            .chunks_mut(share)
            .zip(0_u32..)
            .map(|(mine, number)| {
                scope.spawn(move || match order.load {
                    Load::Closed => closed(mine, until),
                    Load::Paced { rate } => paced(mine, rate, number, until),
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut all = Seen::new();
    let mut calls = 0;
    for seen in seen {
        calls += seen.calls;
        if let (Some(all), Some(took)) = (&mut all.took, seen.took) {
            let _ = all.add(took);
        }
        all.failed = all.failed.or(seen.failed);
    }
    let took = all.took.iter().flat_map(Histogram::iter_recorded);
    Done {
        calls,
        nanos: nanos(begun.elapsed()),
        took: took.map(|step| (step.value_iterated_to(), step.count_at_value())).collect(),
        failed: all.failed,
    }
}

/// Calls each session in turn, one call after the other.
fn closed(callers: &mut [Caller], until: Instant) -> Seen {
    let mut seen = Seen::new();
    loop {
        for caller in &mut *callers {
            let Some(ended) = seen.call(caller) else { return seen };
            if ended >= until {
                return seen;
            }
        }
    }
}

/// Calls each session `rate` times a second. After a delay of more than a call, the missed calls are skipped.
fn paced(callers: &mut [Caller], rate: u32, number: u32, until: Instant) -> Seen {
    let mut seen = Seen::new();
    let share = u32::try_from(callers.len()).unwrap_or(u32::MAX);
    let gap = Duration::from_secs(1) / rate.saturating_mul(share).max(1);
    // Spread over the interval instead of all together.
    let mut due =
        Instant::now() + (Duration::from_secs(1) / rate).mul_f64(f64::from(number % 50) / 50.0);
    loop {
        for caller in &mut *callers {
            if due >= until {
                return seen;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let Some(ended) = seen.call(caller) else { return seen };
            due = (due + gap).max(ended.checked_sub(gap).unwrap_or(ended));
        }
    }
}

impl Caller {
    fn connect(run_dir: &RunDir, args: &BenchLoad) -> Result<Self, String> {
        if args.subject.backend().is_none() {
            return plain(&args.socket).map(Self::Plain);
        }
        let config = ClientConfig::default().timeout(PATIENCE).connect_timeout(PATIENCE);
        let mut client = Client::with_config(run_dir, config);
        match client.connect() {
            Ok(_) => Ok(Self::Bellwire(Box::new(client))),
            Err(error) => Err(chain(&error)),
        }
    }

    fn call(&mut self) -> Result<(), String> {
        let request = [7; LEN];
        let answer = match self {
            Self::Bellwire(client) => client.call(&request).map_err(|error| chain(&error))?,
            Self::Plain(client) => {
                let mut answer = [0; LEN];
                client.call(&request, &mut answer).map_err(|error| error.to_string())?;
                answer
            }
        };
        if answer == request { Ok(()) } else { Err("a wrong answer".into()) }
    }
}

impl Seen {
    fn new() -> Self {
        Self { calls: 0, took: histogram().ok(), failed: None }
    }

    /// Makes a call and returns when it ended; `None` if it failed.
    fn call(&mut self, caller: &mut Caller) -> Option<Instant> {
        let begun = Instant::now();
        match caller.call() {
            Ok(()) => {
                let ended = Instant::now();
                self.calls += 1;
                if let Some(took) = &mut self.took {
                    took.saturating_record(nanos(ended - begun).max(1));
                }
                Some(ended)
            }
            Err(why) => {
                self.failed = Some(why);
                None
            }
        }
    }
}

fn plain(socket: &Path) -> Result<plain::Client, String> {
    plain::Client::connect(socket).map_err(|error| error.to_string())
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
