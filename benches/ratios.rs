//! Bellwire's key figures, as ratios to the machine's own costs, in one run.

use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::Duration;

use bellwire::{Client, Service};

use crate::large;
use crate::many_clients;
use crate::pipeline;
use crate::provider::{Echo, Provider, Sink, Wait, timed};
use crate::scale;
use crate::snapshot::{LOOKS, keys, look_ups, unchanged};
use crate::stream::{posts, stream};
use bellwire_floor::copy::Shape;
use bellwire_floor::{Cpus, Prober, Ratio, copy, futex, hot, ns_each};

pub type Outcome = Result<bool, Box<dyn StdError + Send + Sync>>;

/// Prints every ratio; fails when a target is missed.
pub fn run(cpus: Cpus, only: Option<&str>) -> ExitCode {
    println!(
        "\nratios to the machine's own cost, taken in turns within this run (target: at most)"
    );
    let steps: [(&str, fn(Cpus) -> Outcome); 15] = [
        ("hot calls", hot_calls),
        ("parked calls", parked_calls),
        ("streams", streams),
        ("doorbells", doorbells),
        ("snapshots", snapshots),
        ("grow", large::grow),
        ("attach", large::attach),
        ("bulk", large::bulk),
        ("pipeline", pipeline::sixteen),
        ("batches", pipeline::batches),
        ("scale connect", scale::connect),
        ("scale idle", scale::idle_crowd),
        ("scale eight", scale::eight),
        ("scale server", many_clients::server_time),
        ("scale fairness", scale::fairness),
    ];
    let mut met = true;
    for (name, step) in
        steps.into_iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only)))
    {
        match step(cpus) {
            Ok(reached) => met &= reached,
            Err(error) => {
                eprintln!("{name}: {error}");
                met = false;
            }
        }
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn hot_calls(cpus: Cpus) -> Outcome {
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::Spin);
    let mut prober = Prober::start(cpus)?;
    let small = hot_call::<Echo<64>>(&provider, cpus, &mut prober, &[7; 64], 64, Some(2.0))?;
    let large = hot_call::<Echo<1024>>(&provider, cpus, &mut prober, &[7; 1024], 1024, None)?;
    Ok(small && large)
}

/// Against two floors. The one that spins without a pause is steady, and the one that the target is for. With a pause
/// in the loop the floor synchronises with the length of the pause, some 40 ns, and differs much from run to run: it
/// is shown for information.
///
/// The third is a ring without a session: each message is in other cache lines than the one before. It shows the part
/// of the memory in a call's time.
fn hot_call<S: Service>(
    provider: &Provider,
    cpus: Cpus,
    prober: &mut Prober,
    request: &S::Request,
    size: usize,
    target: Option<f64>,
) -> Outcome {
    const CALLS: u64 = 20_000;
    let mut client = provider.client::<S>();
    let mut call = || {
        // Both ends were asleep while the floor ran: get hot first.
        timed(2_000, || drop(client.call(request).unwrap()));
        Ok(ns_each(timed(CALLS, || drop(client.call(request).unwrap())), CALLS))
    };
    let mut floor = hot::Bare::start(cpus, size)?;
    let mut ratio = Ratio::new(format!("call, hot, {size} B / hot floor"));
    if let Some(target) = target {
        ratio = ratio.target(target);
    }
    let floor = || Ok(ns_each(floor.round_trips(CALLS)?, CALLS));
    let report = ratio.run(60, floor, &mut call, Some(&mut *prober))?;
    println!("{report}");
    let mut floor = hot::Floor::start(cpus, size)?;
    let floor = || Ok(ns_each(floor.round_trips(CALLS)?, CALLS));
    let ratio = Ratio::new(format!("call, hot, {size} B / hot floor that pauses"));
    println!("{}", ratio.run(60, floor, &mut call, Some(&mut *prober))?);
    let mut rings = bellwire_floor::pipeline::Floor::start(cpus, size, 1)?;
    let floor = || Ok(ns_each(rings.messages(CALLS)?, CALLS));
    let ratio = Ratio::new(format!("call, hot, {size} B / bare rings, one in flight"));
    println!("{}", ratio.run(60, floor, &mut call, Some(prober))?);
    Ok(report.met().unwrap_or(true))
}

fn parked_calls(cpus: Cpus) -> Outcome {
    const CALLS: u64 = 500;
    let mut met = true;
    let places =
        [("two processors", cpus.two()?, Some(1.25)), ("one processor", Cpus::same()?, None)];
    for (place, cpus, target) in places {
        let provider = Provider::start(cpus, Wait::Park);
        let mut client = provider.client::<Echo<64>>();
        let mut floor = futex::Floor::start(cpus)?;
        let mut ratio = Ratio::new(format!("call, parked, {place} / bare futex"));
        if let Some(target) = target {
            ratio = ratio.target(target);
        }
        let report = ratio.run(
            30,
            || Ok(ns_each(floor.round_trips(CALLS)?, CALLS)),
            || {
                Ok(ns_each(
                    timed(CALLS, || assert_eq!(client.call(&[7; 64]).unwrap(), [7; 64])),
                    CALLS,
                ))
            },
            None,
        )?;
        println!("{report}");
        met &= report.met().unwrap_or(true);
    }
    Ok(met)
}

fn streams(cpus: Cpus) -> Outcome {
    let cpus = cpus.two()?;
    let provider = Provider::start(cpus, Wait::Spin);
    let mut prober = Prober::start(cpus)?;
    one_stream::<Sink<64>>(&provider, cpus, &mut prober, &[7; 64], 64)?;
    one_stream::<Sink<1024>>(&provider, cpus, &mut prober, &[7; 1024], 1024)?;
    Ok(true)
}

fn one_stream<S: Service<Response = ()>>(
    provider: &Provider,
    cpus: Cpus,
    prober: &mut Prober,
    request: &S::Request,
    size: usize,
) -> Result<(), Box<dyn StdError + Send + Sync>> {
    const MESSAGES: u64 = 50_000;
    let mut client = provider.client::<S>();
    let mut floor = copy::Floor::start(cpus, Shape::new(size, 1).ring(256 << 10))?;
    let ways: [(&str, fn(&mut Client<S>, &S::Request, u64) -> Duration); 2] =
        [("each answered", stream), ("one-way", posts)];
    for (way, send) in ways {
        let report = Ratio::new(format!("stream, {size} B, {way} / plain copy")).run(
            40,
            || Ok(ns_each(floor.messages(MESSAGES)?, MESSAGES)),
            || {
                send(&mut client, request, 5_000);
                Ok(ns_each(send(&mut client, request, MESSAGES), MESSAGES))
            },
            Some(prober),
        )?;
        println!("{report}");
    }
    Ok(())
}

/// A hot call makes no system call: the doorbells rung over 100 000 calls, at best of some tries, since a
/// shared machine takes processors away.
fn doorbells(cpus: Cpus) -> Outcome {
    const CALLS: u64 = 100_000;
    let provider = Provider::start(cpus.two()?, Wait::Spin);
    let mut client = provider.client::<Echo<64>>();
    let mut best = u64::MAX;
    for _ in 0..10 {
        timed(2_000, || assert_eq!(client.call(&[7; 64]).unwrap(), [7; 64]));
        let before = client.session().unwrap().stats();
        timed(CALLS, || assert_eq!(client.call(&[7; 64]).unwrap(), [7; 64]));
        let after = client.session().unwrap().stats();
        best = best.min(after.rings - before.rings + after.parks - before.parks);
    }
    let met = best < CALLS / 1_000;
    println!(
        "call, hot: {best} rings and parks in {CALLS} calls (provider {}), target below 100: {}",
        provider.pid(),
        verdict(met)
    );
    Ok(met)
}

fn snapshots(cpus: Cpus) -> Outcome {
    let provider = Provider::start(cpus, Wait::Spin);
    let mut cache = provider.cache(1_000);
    let mut met = true;
    let n = 200_000;
    let best = |sample: &mut dyn FnMut() -> f64| (0..20).map(|_| sample()).fold(f64::MAX, f64::min);
    let mut say = |name: &str, ns: f64, target: f64| {
        met &= ns < target;
        println!("{name}: {ns:.1} ns, target below {target}: {}", verdict(ns < target));
    };
    say(
        "refresh, unchanged, 1 000 cgroups",
        best(&mut || ns_each(unchanged(&mut cache, n), n)),
        20.0,
    );
    let keys = keys(&cache);
    for (name, look) in LOOKS {
        let ns = best(&mut || ns_each(look_ups(&cache, &keys, n, look), n));
        say(&format!("look-up by {name}, 1 000 cgroups"), ns, 15.0);
    }
    Ok(met)
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
