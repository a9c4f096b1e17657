//! The demo's provider process.

use std::io::Read;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{EventPublisher, RunDir, Server};
use bellwire_cgroups::CgroupsSnapshot;

use super::args::DemoProvider;
use super::burst::{DemoPhase, Handler, Order, Phase, answer};
use super::protocol::{DemoPing, DemoTick, FromProvider, Served};
use crate::exit::{Exit, Failure, chain};
use crate::out;
use crate::provide::{Feed, Source, unserved};
use crate::stop::{Stop, Why};
use bellwire_cgroups::scan::Limits;

/// How many events are published at once, and how often.
const TICKS: u64 = 100;
const TICK: Duration = Duration::from_millis(10);

pub(crate) fn run(run_dir: &RunDir, args: &DemoProvider) -> Result<Exit, Failure> {
    let stop = Stop::on_termination()?;
    let mut builder = Server::builder(run_dir);
    let failed = |error| unserved(run_dir, &error);
    let publisher = builder.publish::<CgroupsSnapshot>().map_err(failed)?;
    builder.serve::<DemoPing>(|_, request| Ok(DemoPing::answer(request))).map_err(failed)?;
    let ticks = builder.events::<DemoTick>(DemoTick::DEPTH).map_err(failed)?;
    let handler = Handler::default();
    handler.join(&mut builder).map_err(failed)?;
    let (sender, orders) = mpsc::channel();
    let stopped = sender.clone();
    stop.on_request(move || drop(stopped.send(Order::Stop)));
    let phase = builder.serve::<DemoPhase>(move |_, phase| answer(&sender, phase.0));
    phase.map_err(failed)?;
    let source = match &args.root {
        Some(root) => Source::hierarchy(root, Limits::default()),
        None => Source::synthetic(),
    };
    let mut feed = Feed::new(source, publisher);
    let first = feed.step().map_err(|error| Failure::of(Exit::Failed, "no snapshot", &error))?;
    let server = builder.start().map_err(failed)?;
    let (cgroups, mode) =
        first.map_or((0, String::new()), |fed| (fed.cgroups, fed.mode.to_string()));
    out::json_line(&FromProvider::Ready { cgroups, mode })?;
    end_with_parent(&stop);
    tick(ticks, &stop);
    let (generations, failed_scans) = follow(&mut feed, args.interval, &orders);
    let stats = server.stop();
    out::json_line(&FromProvider::Done(Served {
        sessions: stats.admitted,
        turned_away: stats.turned_away,
        accepted: stats.accepted,
        answered: stats.answered,
        refused: stats.refused,
        lost: stats.lost,
        poisoned: stats.poisoned,
        rings: stats.rings,
        parks: stats.parks,
        generations,
        failed_scans,
        burst: handler.arrivals(),
    }))?;
    Ok(Exit::Ok)
}

/// Publishes changes, or what an order asks for. Returns how many generations there were, and how many scans failed.
fn follow(feed: &mut Feed, interval: Duration, orders: &Receiver<Order>) -> (u64, u64) {
    let (mut generations, mut failed) = (1, 0);
    // The machine's source, while another one is published.
    let mut real = None;
    let mut due = Instant::now() + interval;
    loop {
        match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Order::Phase(Phase::Show { cgroups, seed })) => {
                let until_now = feed.replace_source(Source::Synthetic { count: cgroups, seed });
                real.get_or_insert(until_now);
            }
            Ok(Order::Phase(Phase::Real)) => {
                if let Some(real) = real.take() {
                    feed.replace_source(real);
                }
            }
            Ok(Order::Phase(Phase::AsItIs)) => continue,
            Err(RecvTimeoutError::Timeout) => {
                due = (due + interval).max(Instant::now());
                // Synthetic cgroups do not change.
                if real.is_some() {
                    continue;
                }
            }
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return (generations, failed),
        }
        match feed.step() {
            Ok(Some(_)) => generations += 1,
            Ok(None) => {}
            Err(error) => {
                failed += 1;
                if failed == 1 {
                    eprintln!("bellwire demo: the last snapshot stays: {}", chain(&error));
                }
            }
        }
    }
}

/// Publishes events until the end: some at a time, a hundred times a second.
fn tick(ticks: EventPublisher<DemoTick>, stop: &Stop) {
    let stop = stop.clone();
    thread::spawn(move || {
        while stop.requested().is_none() {
            let first = ticks.sent() + 1;
            let events: Vec<u64> = (first..first + TICKS).map(DemoTick::contents).collect();
            if let Err(error) = ticks.send_all(&events) {
                eprintln!("bellwire demo: no events any more: {}", chain(&error));
                return;
            }
            stop.sleep_until(Instant::now() + TICK);
        }
    });
}

/// Ends this process when its standard input ends: when the demo asks for it, or was killed itself.
fn end_with_parent(stop: &Stop) {
    let stop = stop.clone();
    thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        stop.request(Why::Asked);
    });
}
