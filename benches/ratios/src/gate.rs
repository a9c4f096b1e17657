//! The ratios that `ci/budget` holds against `ci/budget.toml`, one line each: see `docs/budget.md`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bellwire::{Refreshed, SpinPolicy};
use bellwire_floor::reads::Words;
use bellwire_floor::{Cpus, Prober, copy, futex, hot, ns_each};

use crate::provider::{Echo, Provider, Sink, call, stream, timed};
use crate::ratio::{Failure, Report, Sample, compare};

/// What measures a ratio.
type Gate = fn(Cpus) -> Result<Report, Failure>;

/// How long one of them may take. On a busy machine, where two processes that spin take turns, it would take minutes.
const LIMIT: Duration = Duration::from_secs(15);

/// Measures each ratio, or that with this name. The line of a ratio that cannot be measured here says so.
pub fn run(cpus: Cpus, only: Option<&str>) {
    let gates: [(&str, Gate); 4] = [
        ("hot-call", hot_call),
        ("parked-call", parked_call),
        ("stream-64", stream_64),
        ("refresh-unchanged", refresh_unchanged),
    ];
    for (name, measure) in
        gates.into_iter().filter(|(name, _)| only.is_none_or(|only| *name == only))
    {
        match measure(cpus) {
            Ok(report) => {
                eprint!("{report}");
                println!("gate {name} {}", report.line());
            }
            Err(error) => println!("gate {name} none 0 0 {error}"),
        }
    }
}

/// Takes no more samples once the time is up: then nothing is judged.
fn in_time(sample: impl FnMut() -> Sample) -> impl FnMut() -> Sample {
    let (began, mut sample) = (Instant::now(), sample);
    move || match began.elapsed() > LIMIT {
        true => Err(format!("not done within {} s: this machine is busy", LIMIT.as_secs()).into()),
        false => sample(),
    }
}

fn hot_call(cpus: Cpus) -> Result<Report, Failure> {
    const CALLS: u64 = 10_000;
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, SpinPolicy::default());
    let mut prober = Prober::start(cpus)?;
    let mut client = provider.client::<Echo>();
    let mut floor = hot::UnpausedFloor::start(cpus, 64)?;
    compare(
        "hot call, 64 B / hot floor",
        40,
        in_time(|| Ok(ns_each(floor.round_trips(CALLS)?, CALLS))),
        || {
            call(&mut client, 2_000);
            Ok(ns_each(call(&mut client, CALLS), CALLS))
        },
        Some(&mut prober),
    )
}

fn parked_call(cpus: Cpus) -> Result<Report, Failure> {
    const CALLS: u64 = 250;
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, SpinPolicy::NEVER);
    let mut client = provider.client::<Echo>();
    let mut floor = futex::Floor::start(cpus)?;
    compare(
        "parked call, 64 B / bare futex",
        40,
        in_time(|| Ok(ns_each(floor.round_trips(CALLS)?, CALLS))),
        || Ok(ns_each(call(&mut client, CALLS), CALLS)),
        None,
    )
}

fn stream_64(cpus: Cpus) -> Result<Report, Failure> {
    const MESSAGES: u64 = 50_000;
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, SpinPolicy::default());
    let mut prober = Prober::start(cpus)?;
    let mut client = provider.client::<Sink>();
    let mut floor = copy::Floor::start(cpus, 64, 256 << 10)?;
    compare(
        "stream, 64 B, each answered / plain copy",
        40,
        in_time(|| Ok(ns_each(floor.messages(MESSAGES)?, MESSAGES))),
        || {
            stream(&mut client, 5_000);
            Ok(ns_each(stream(&mut client, MESSAGES), MESSAGES))
        },
        Some(&mut prober),
    )
}

/// Next to two loads with Acquire.
fn refresh_unchanged(cpus: Cpus) -> Result<Report, Failure> {
    const REFRESHES: u64 = 500_000;
    let provider = Provider::start(cpus, SpinPolicy::default());
    let mut cache = provider.cache();
    let words = Words::default();
    let mut refresh = || assert_eq!(black_box(&mut cache).refresh().unwrap(), Refreshed::Unchanged);
    compare(
        "refresh, unchanged / two loads",
        30,
        || Ok(ns_each(words.loads(REFRESHES), REFRESHES)),
        || Ok(ns_each(timed(REFRESHES, &mut refresh), REFRESHES)),
        None,
    )
}
