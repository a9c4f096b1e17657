//! The ratios that `ci/budget` holds against `ci/budget.toml`, one line each: see `docs/budget.md`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bellwire::{CallError, Client, Refreshed, SnapshotCache};

use crate::provider::{Echo, Provider, Sink, Wait, timed};
use bellwire_floor::ratio::{Report, Sample};
use bellwire_floor::reads::Words;
use bellwire_floor::{Cpus, Prober, Ratio, copy, futex, hot, ns_each};

type Failure = Box<dyn std::error::Error + Send + Sync>;
/// What measures a ratio.
type Gate = fn(Cpus) -> Result<Report, Failure>;

/// How long one of them may take. On a busy machine, where two processes that spin take turns, it would take minutes.
const LIMIT: Duration = Duration::from_secs(15);

/// Measures each ratio whose name holds `only`. The line of a ratio that cannot be measured here says so.
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
                eprintln!("{report}");
                println!("gate {name} {}", line(&report));
            }
            Err(error) => println!("gate {name} none 0 0 {error}"),
        }
    }
}

/// The median of the placement that most rounds had, those rounds, all rounds, and why the others do not count.
fn line(report: &Report) -> String {
    let Report { total, moved, crowded, .. } = report;
    let (median, kept) = match report.best() {
        Some(best) => (format!("{:.3}", best.ratio.median), best.kept),
        None => ("none".to_owned(), 0),
    };
    let elsewhere: usize = report.groups.iter().skip(1).map(|group| group.kept).sum();
    format!("{median} {kept} {total} {moved} moved, {crowded} crowded, {elsewhere} in other places")
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
    let provider = Provider::start(cpus, Wait::Spin);
    let mut prober = Prober::start(cpus)?;
    let mut client = provider.client::<Echo>();
    let mut floor = hot::Bare::start(cpus, 64)?;
    let mut call = || assert_eq!(client.call(&[7; 64]).unwrap(), [7; 64]);
    Ratio::new("hot call, 64 B / hot floor").run(
        40,
        in_time(|| Ok(ns_each(floor.round_trips(CALLS)?, CALLS))),
        || {
            timed(2_000, &mut call);
            Ok(ns_each(timed(CALLS, &mut call), CALLS))
        },
        Some(&mut prober),
    )
}

fn parked_call(cpus: Cpus) -> Result<Report, Failure> {
    const CALLS: u64 = 250;
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::Park);
    let mut client = provider.client::<Echo>();
    let mut floor = futex::Floor::start(cpus)?;
    Ratio::new("parked call, 64 B / bare futex").run(
        40,
        in_time(|| Ok(ns_each(floor.round_trips(CALLS)?, CALLS))),
        || {
            let call = || assert_eq!(client.call(&[7; 64]).unwrap(), [7; 64]);
            Ok(ns_each(timed(CALLS, call), CALLS))
        },
        None,
    )
}

fn stream_64(cpus: Cpus) -> Result<Report, Failure> {
    const MESSAGES: u64 = 50_000;
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::Spin);
    let mut prober = Prober::start(cpus)?;
    let mut client = provider.client::<Sink>();
    let mut floor = copy::Floor::start(cpus, 64, 256 << 10)?;
    Ratio::new("stream, 64 B, each answered / plain copy").run(
        40,
        in_time(|| Ok(ns_each(floor.messages(MESSAGES)?, MESSAGES))),
        || {
            stream(&mut client, &[7; 64], 5_000);
            Ok(ns_each(stream(&mut client, &[7; 64], MESSAGES), MESSAGES))
        },
        Some(&mut prober),
    )
}

/// Next to two loads with Acquire.
fn refresh_unchanged(cpus: Cpus) -> Result<Report, Failure> {
    const REFRESHES: u64 = 500_000;
    let provider = Provider::start(cpus, Wait::Spin);
    let mut cache = provider.cache();
    let words = Words::new();
    let floor = || -> Sample { Ok(ns_each(words.loads(REFRESHES), REFRESHES)) };
    let refresh = |cache: &mut SnapshotCache<_>| {
        assert_eq!(black_box(cache).refresh().unwrap(), Refreshed::Unchanged);
    };
    let measured =
        || -> Sample { Ok(ns_each(timed(REFRESHES, || refresh(&mut cache)), REFRESHES)) };
    Ratio::new("refresh, unchanged / two loads").run(30, floor, measured, None)
}

/// Sends `n` requests as fast as the lane takes them; the clock stops when the last of them was answered.
fn stream(client: &mut Client<Sink>, request: &[u8; 64], n: u64) -> Duration {
    let session = client.session().expect("the session is gone");
    let began = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < n {
        while sent < n {
            match session.submit(request) {
                Ok(_) => sent += 1,
                Err(CallError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some((_, answer)) = session.try_reply().expect("the provider is gone") {
            answer.expect("no answer");
            answered += 1;
        }
    }
    began.elapsed()
}
