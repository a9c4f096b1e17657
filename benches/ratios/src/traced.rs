//! The same load without a tracer and with one, alternating, between the same two processes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use bellwire_floor::Cpus;
use rustix::process::{Pid, Signal, kill_process};

use crate::load::{LOADS, Load, Pair};

/// How long a load runs at a time: short, since what else the machine does changes within a second.
const WINDOW: Duration = Duration::from_millis(60);
/// Batches of so long hold some samples each, and are short enough for some to pass undisturbed.
const BATCH: Duration = Duration::from_millis(2);
/// What the tracer does: its name here, and its arguments.
const MODES: [(&str, &[&str]); 5] = [
    ("default", &["hist"]),
    ("record", &["record", "--output", "/dev/null"]),
    ("slower", &["snoop", "--all-slower-than", "10ms"]),
    ("5000", &["hist", "--rate", "5000"]),
    ("all", &["hist", "--rate", "all"]),
];

/// What one window measured, in nanoseconds a call.
#[derive(Clone, Copy)]
struct Window {
    /// Of the quicker half of the batches: disturbances by other processes are in the other half.
    mean: f64,
    /// Of single calls.
    median: f64,
}

pub fn compare(cpus: Cpus, tracer: &Path, rounds: usize, only: Option<&str>, mode: Option<&str>) {
    println!("attached against not, {rounds} windows each, in turns; a positive cost is time lost");
    let (mut attach, mut detach) = (Vec::new(), Vec::new());
    for (loaded, load) in
        LOADS.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name))
    {
        let mut pair = Pair::start(cpus, load);
        // Warm, and as many calls as fill a batch.
        let calls = fill(&mut pair);
        for (name, args) in
            MODES.into_iter().filter(|(name, _)| mode.is_none_or(|mode| mode == *name))
        {
            let mut ratios = [Vec::new(), Vec::new()];
            let mut before = window(&mut pair, load, calls);
            let mut plain = Vec::new();
            for _ in 0..rounds {
                let (child, took) = start(tracer, args);
                attach.push(took);
                let with = window(&mut pair, load, calls);
                detach.push(stop(child));
                let after = window(&mut pair, load, calls);
                ratios[0].push(2.0 * with.mean / (before.mean + after.mean) - 1.0);
                ratios[1].push(2.0 * with.median / (before.median + after.median) - 1.0);
                plain.push(before.mean);
                before = after;
            }
            let [mean, median] = ratios.map(spread);
            plain.sort_unstable_by(f64::total_cmp);
            print!(
                "{loaded:<16} {name:<8} {:>8.0} ns a call alone; mean {mean}",
                plain[rounds / 2]
            );
            println!(
                "{}",
                if load == Load::Stream { String::new() } else { format!("; p50 {median}") }
            );
        }
    }
    println!("attach: {}", times(attach));
    println!("detach: {}", times(detach));
}

fn fill(pair: &mut Pair) -> u32 {
    let mut calls = 16;
    while pair.run(calls) < BATCH {
        calls *= 2;
    }
    calls
}

fn window(pair: &mut Pair, load: Load, calls: u32) -> Window {
    let began = Instant::now();
    let mut batches = Vec::new();
    let mut single = Vec::new();
    if let Load::Paced(rate) = load {
        // At least as many calls as a median needs.
        single = pair.run_at_rate((rate / 5).max(100), rate);
        batches.clone_from(&single);
    }
    while !matches!(load, Load::Paced(_)) && began.elapsed() < WINDOW {
        batches.push(pair.run(calls).as_secs_f64() * 1e9 / f64::from(calls));
        if load != Load::Stream {
            single.extend((0..calls / 4).map(|_| pair.run(1).as_secs_f64() * 1e9));
        }
    }
    batches.sort_unstable_by(f64::total_cmp);
    single.sort_unstable_by(f64::total_cmp);
    let quick = &batches[..batches.len().div_ceil(2)];
    let median = single.get(single.len() / 2).copied().unwrap_or(1.0);
    Window { mean: quick.iter().sum::<f64>() / quick.len() as f64, median }
}

/// A tracer that is attached.
struct Traced {
    child: Child,
    /// Its output, which has to be read.
    _stderr: BufReader<ChildStderr>,
}

/// A tracer that is attached to this program, and how long that took.
fn start(tracer: &Path, args: &[&str]) -> (Traced, Duration) {
    let began = Instant::now();
    let mut child = Command::new(tracer)
        .args(args)
        .args(["--json", "--exe"])
        .arg(std::env::current_exe().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("attached"), "{line}");
    (Traced { child, _stderr: stderr }, began.elapsed())
}

fn stop(mut tracer: Traced) -> Duration {
    let began = Instant::now();
    kill_process(Pid::from_child(&tracer.child), Signal::INT).unwrap();
    // 1: it saw no call, or none that was slow.
    assert!(tracer.child.wait().unwrap().code().is_some_and(|code| code < 2));
    began.elapsed()
}

/// The median, and the interval that holds it in 95 of 100 cases.
fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_unstable_by(f64::total_cmp);
    let n = ratios.len();
    let half = 0.98 * (n as f64).sqrt();
    let low = ((n as f64 / 2.0 - half).max(0.0)) as usize;
    let high = ((n as f64 / 2.0 + half) as usize).min(n - 1);
    let percent = |at: usize| 100.0 * ratios[at];
    format!("{:+.2} % ({:+.2} to {:+.2})", percent(n / 2), percent(low), percent(high))
}

fn times(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let n = times.len();
    format!("median {:.0?}, most {:.0?}, {n} times", times[n / 2], times[n - 1])
}
