//! The demo's provider process.

use std::io::Read;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::cgroups::CgroupsSnapshot;
use bellwire::{RunDir, Server};

use super::burst::{DemoStage, Handler, Order, Stage, answer};
use super::protocol::{DemoPing, FromProvider, Served};
use crate::args::DemoProvider;
use crate::cgroups::Limits;
use crate::exit::{Exit, Failure, chain};
use crate::out;
use crate::provide::{Feed, Source, unserved};
use crate::stop::{Stop, Why};

pub(crate) fn run(run_dir: &RunDir, args: &DemoProvider) -> Result<Exit, Failure> {
    let stop = Stop::on_termination()?;
    let mut builder = Server::builder(run_dir);
    let failed = |error| unserved(run_dir, &error);
    let publisher = builder.publish::<CgroupsSnapshot>().map_err(failed)?;
    builder.serve::<DemoPing>(|_, request| Ok(DemoPing::answer(request))).map_err(failed)?;
    let handler = Handler::default();
    handler.join(&mut builder).map_err(failed)?;
    let (sender, orders) = mpsc::channel();
    let stopped = sender.clone();
    stop.on_request(move || drop(stopped.send(Order::Stop)));
    let stage = builder.serve::<DemoStage>(move |_, stage| answer(&sender, stage.0));
    stage.map_err(failed)?;
    let source = match &args.root {
        Some(root) => Source::hierarchy(root, Limits::default()),
        None => Source::made_up(),
    };
    let mut feed = Feed::new(source, publisher);
    let first = feed.step().map_err(|error| Failure::of(Exit::Failed, "no snapshot", &error))?;
    let server = builder.start().map_err(failed)?;
    let (cgroups, mode) =
        first.map_or((0, String::new()), |fed| (fed.cgroups, fed.mode.to_string()));
    out::json_line(&FromProvider::Ready { cgroups, mode })?;
    end_with_parent(&stop);
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

/// Publishes what changed, or what it is told to. How many generations there were, and how many scans failed.
fn follow(feed: &mut Feed, interval: Duration, orders: &Receiver<Order>) -> (u64, u64) {
    let (mut generations, mut failed) = (1, 0);
    // While something else is shown.
    let mut real = None;
    let mut due = Instant::now() + interval;
    loop {
        match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Order::Stage(Stage::Show { cgroups, seed })) => {
                let until_now = feed.replace_source(Source::Synthetic { count: cgroups, seed });
                real.get_or_insert(until_now);
            }
            Ok(Order::Stage(Stage::Real)) => {
                if let Some(real) = real.take() {
                    feed.replace_source(real);
                }
            }
            Ok(Order::Stage(Stage::AsItIs)) => continue,
            Err(RecvTimeoutError::Timeout) => {
                due = (due + interval).max(Instant::now());
                // What is made up does not change.
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

/// Standard input ends when the demo wants this process to end, and when the demo itself was killed.
fn end_with_parent(stop: &Stop) {
    let stop = stop.clone();
    thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        stop.request(Why::Asked);
    });
}
