//! The honest client: a call of 64 bytes each millisecond, a snapshot refresh and a new session each 100 ms, by the
//! typed interface.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{CallError, Client, ErrorKind, RefreshError, RunDir, SnapshotCache, Status};
use bellwire_cgroups::CgroupsSnapshot;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::life;
use crate::services::Echo;

const CALL_EVERY: Duration = Duration::from_millis(1);
const OTHERS_EVERY: Duration = Duration::from_millis(100);

/// What became of the honest client's calls in one window of time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Window {
    /// Calls that were answered.
    pub calls: u64,
    /// Calls, sessions and snapshots that the server did not want.
    pub refused: u64,
    /// Those that failed otherwise, by their deadline for instance.
    pub failed: u64,
    /// Sessions that were opened anew, each with one call.
    pub sessions: u64,
    /// The median of the calls of the session that stays, in microseconds.
    pub p50_us: f64,
    /// Their 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The first failure, or refusal.
    pub first: Option<String>,
}

/// Connects, reports that, and serves the runner windows: for each line, a number of seconds, it prints a [`Window`].
/// The end of the input also ends the current window.
///
/// # Errors
/// The first call failed.
pub fn run(run_dir: &RunDir) -> Result<(), Box<dyn std::error::Error>> {
    let mut caller = Client::<Echo>::new(run_dir);
    caller.call(&vec![0; 64])?;
    let mut cache = SnapshotCache::<CgroupsSnapshot>::new(run_dir);
    cache.refresh()?;
    let (wish, wishes) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        while life::await_line(&mut line) {
            if let Ok(seconds) = line.trim().parse() {
                let _ = wish.send(seconds);
            }
        }
    });
    life::tell("ready")?;
    while let Ok(seconds) = wishes.recv() {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let window = thread::scope(|scope| {
            let (over, is_over) = mpsc::channel();
            let cache = &mut cache;
            let others = scope.spawn(move || others(run_dir, cache, &is_over));
            let mut window = calls(&mut caller, until, &wishes);
            drop(over);
            window.add(others.join().unwrap_or_default());
            window
        });
        life::tell(&serde_json::to_string(&window)?)?;
    }
    Ok(())
}

/// Calls until then, or until the runner wants no more.
fn calls(caller: &mut Client<Echo>, until: Instant, wishes: &Receiver<f64>) -> Window {
    let mut window = Window::default();
    // Three digits; a sample of any height is taken.
    let Ok(mut histogram) = Histogram::<u64>::new(3) else { return window };
    let mut due = Instant::now();
    while due < until {
        match wishes.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
        let start = Instant::now();
        if window.count(caller.call(&vec![1; 64])) {
            window.calls += 1;
            let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            // The calls that would have begun meanwhile count as well.
            let _ = histogram.record_correct(took, 1_000_000);
        }
        // Missed calls are not made up for.
        due = (due + CALL_EVERY).max(Instant::now());
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    (window.p50_us, window.p99_us, window.max_us) = (at(0.5), at(0.99), at(1.0));
    window
}

/// Refreshes snapshots, and opens sessions, until the other thread is done.
fn others(
    run_dir: &RunDir,
    cache: &mut SnapshotCache<CgroupsSnapshot>,
    is_over: &Receiver<()>,
) -> Window {
    let mut window = Window::default();
    while is_over.recv_timeout(OTHERS_EVERY) == Err(RecvTimeoutError::Timeout) {
        match cache.refresh() {
            Err(RefreshError::Call(error)) => _ = window.count::<()>(Err(error)),
            Err(error) => window.fail(error.to_string()),
            Ok(_) => {}
        }
        let mut newcomer = Client::<Echo>::new(run_dir);
        window.sessions += u64::from(window.count(newcomer.call(&vec![2; 64])));
    }
    window
}

impl Window {
    /// Whether it succeeded.
    fn count<T>(&mut self, called: Result<T, CallError>) -> bool {
        let Err(error) = called else { return true };
        if matches!(error, CallError::Refused { .. } | CallError::Declined { status: Status::Busy })
            || error.kind() == ErrorKind::WouldBlock
        {
            self.refused += 1;
            self.first.get_or_insert(error.to_string());
        } else {
            self.fail(error.to_string());
        }
        false
    }

    fn fail(&mut self, why: String) {
        self.failed += 1;
        self.first.get_or_insert(why);
    }

    fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.refused += other.refused;
        self.failed += other.failed;
        self.first = self.first.take().or(other.first);
    }
}
