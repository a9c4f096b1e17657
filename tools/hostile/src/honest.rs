//! The honest client: through the typed interface, a call of 64 bytes each millisecond, and a snapshot refresh and a new
//! session each 100 ms.

use std::error::Error;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{CallError, Client, ErrorKind, RefreshError, RunDir, SnapshotCache, Status};
use bellwire_cgroups::CgroupsSnapshot;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::services::Echo;

const CALL_INTERVAL: Duration = Duration::from_millis(1);
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// The results of the honest client's calls in one window of time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Window {
    /// Calls that were answered.
    pub(crate) calls: u64,
    /// Calls, sessions and snapshots that the server refused.
    pub(crate) refused: u64,
    /// Those that failed for another reason, for instance because their deadline passed.
    pub(crate) failed: u64,
    /// New sessions that were opened, each for one call.
    pub(crate) sessions: u64,
    /// The median latency of the calls in the long-lived session, in microseconds.
    pub(crate) p50_us: f64,
    /// The 99th percentile of that latency.
    pub(crate) p99_us: f64,
    /// The maximum of that latency.
    pub(crate) max_us: f64,
    /// The message of the first failure or refusal.
    pub(crate) first: Option<String>,
}

/// Connects, writes `ready`, and then measures: for each line from the runner, the length of a window in seconds, it
/// writes a [`Window`]. The end of the input also ends the current window.
pub(crate) fn run(run_dir: &RunDir) -> Result<(), Box<dyn Error>> {
    let mut caller = Client::<Echo>::new(run_dir);
    caller.call(&vec![0; 64])?;
    let mut cache = SnapshotCache::<CgroupsSnapshot>::new(run_dir);
    cache.refresh()?;
    let (sender, window_lengths) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if let Ok(seconds) = line.parse() {
                let _ = sender.send(seconds);
            }
        }
    });
    println!("ready");
    while let Ok(seconds) = window_lengths.recv() {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let window = thread::scope(|scope| {
            let (done, is_done) = mpsc::channel();
            let cache = &mut cache;
            let refreshing = scope.spawn(move || refresh_and_reconnect(run_dir, cache, &is_done));
            let mut window = calls(&mut caller, until, &window_lengths);
            drop(done);
            window.add(refreshing.join().unwrap_or_default());
            window
        });
        println!("{}", serde_json::to_string(&window)?);
    }
    Ok(())
}

/// Calls until `until`, or until the runner sends another line or closes the input.
fn calls(caller: &mut Client<Echo>, until: Instant, window_lengths: &Receiver<f64>) -> Window {
    let mut window = Window::default();
    // Three significant digits, without an upper limit for a value.
    let Ok(mut histogram) = Histogram::<u64>::new(3) else { return window };
    let mut due = Instant::now();
    while due < until {
        match window_lengths.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
        let start = Instant::now();
        if window.count(caller.call(&vec![1; 64])) {
            window.calls += 1;
            let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            // Corrects for coordinated omission: the calls that were due meanwhile count as well.
            let _ = histogram.record_correct(took, 1_000_000);
        }
        // Calls that were missed are not sent later.
        due = (due + CALL_INTERVAL).max(Instant::now());
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    (window.p50_us, window.p99_us, window.max_us) = (at(0.5), at(0.99), at(1.0));
    window
}

/// Refreshes snapshots and opens sessions until the sender of `is_done` is dropped.
fn refresh_and_reconnect(
    run_dir: &RunDir,
    cache: &mut SnapshotCache<CgroupsSnapshot>,
    is_done: &Receiver<()>,
) -> Window {
    let mut window = Window::default();
    while is_done.recv_timeout(REFRESH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        match cache.refresh() {
            Err(RefreshError::Call(error)) => _ = window.count::<()>(Err(error)),
            Err(error) => window.fail(error.to_string()),
            Ok(_) => {}
        }
        let mut client = Client::<Echo>::new(run_dir);
        window.sessions += u64::from(window.count(client.call(&vec![2; 64])));
    }
    window
}

impl Window {
    /// Counts a failure, and returns whether the call succeeded.
    fn count<T>(&mut self, result: Result<T, CallError>) -> bool {
        let Err(error) = result else { return true };
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
