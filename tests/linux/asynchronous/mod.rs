//! Sessions that the tasks of a tokio runtime share.

mod arrival;
mod batches;
mod dropped;
mod ends;
mod full;
mod posts;
mod served;
mod snapshots;
mod spinning;
mod tasks;

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use bellwire::{
    AsyncClient, AsyncSession, Backpressure, CallError, Executed, RunDir, ServerConfig, Service,
    SessionStats,
};
use bellwire_memfd::clock;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::support::child::{Parent, Process};
use crate::support::gate::{Arrivals, Gate};
use crate::support::guard::{TEST_TIMEOUT, scaled, test_deadline};
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, Reconciled, client_config, provide_with};

/// Runs a test in a runtime of one thread, and in one of two.
#[track_caller]
fn in_each_runtime(test: impl AsyncFn()) {
    for runtime in [current, several] {
        let runtime = runtime();
        runtime.block_on(async {
            // Dropped by a panic if it hangs, which releases the handlers that it holds.
            let mut test = pin!(test());
            tokio::time::timeout(scaled(TEST_TIMEOUT), &mut test).await.expect("it hangs");
        });
    }
}

fn current() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn several() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Polls until it is true, and yields to other tasks.
async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let guard = test_deadline();
    while !is_true() {
        assert!(clock::now() < guard, "never: {what}");
        tokio::task::yield_now().await;
    }
}

/// Kills a provider whose handler is at the first of these calls. How many of them may have run.
async fn killed<T: Debug + 'static>(
    mut server: Process,
    mut calls: JoinSet<Result<T, CallError>>,
) -> u32 {
    let heard = move || {
        assert!(server.next_line().starts_with("came"));
        server
    };
    let mut server = tokio::task::spawn_blocking(heard).await.unwrap();
    server.kill();
    let mut ran = 0;
    while let Some(answer) = calls.join_next().await {
        match answer.unwrap() {
            Err(CallError::PeerGone { executed }) => ran += u32::from(executed == Executed::Maybe),
            other => panic!("{other:?}"),
        }
    }
    ran
}

fn client<S: Service>(run_dir: &RunDir) -> AsyncClient<S>
where
    S::Response: Send,
{
    AsyncClient::with_config(run_dir, client_config())
}

/// A provider that answers at once, and 0 when the gate is opened.
fn gated(dir: &Dir, config: ServerConfig) -> (Reconciled, Gate, Arrivals) {
    let (gate, arrivals) = Gate::with_channel();
    let held = gate.clone();
    let server = provide_with::<Hold>(&dir.run_dir, config, move |_, who| {
        if who == 0 {
            held.pass(0);
        }
        Ok(who)
    });
    (server, gate, arrivals)
}

/// Calls until the lane is full, of a provider that takes nothing. What is returned waits for the answers.
async fn fill(session: &AsyncSession<Hold>) -> JoinSet<u64> {
    let mut calls = JoinSet::new();
    loop {
        let (session, before) = (session.backpressure(Backpressure::Fail), session.stats().made);
        let call = tokio::spawn({
            let session = session.clone();
            async move { session.call(&before).await }
        });
        until("it is sent or fails", || call.is_finished() || session.stats().made > before).await;
        if call.is_finished() {
            let full = call.await.unwrap();
            assert!(matches!(full, Err(CallError::WouldBlock)), "{full:?}");
            return calls;
        }
        let call = Dropping(call);
        calls.spawn(async move { call.answer().await });
    }
}

/// A task that ends when it is dropped.
struct Dropping(tokio::task::JoinHandle<Result<u64, CallError>>);

impl Dropping {
    async fn answer(mut self) -> u64 {
        (&mut self.0).await.unwrap().unwrap()
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The counters of a session that has nothing in flight.
#[track_caller]
fn idle_stats<S: Service>(session: &AsyncSession<S>) -> SessionStats
where
    S::Response: Send,
{
    let stats = session.stats();
    assert_eq!((stats.made, stats.in_flight), (stats.answered + stats.failed, 0), "{stats:?}");
    stats
}

/// A process that has called once, and is idle.
pub(crate) fn idle(mut parent: Parent) {
    let client = client::<Echo>(&RunDir::from_environment());
    let runtime = current();
    runtime.block_on(async {
        client.call(&vec![1]).await.unwrap();
        // The runtime keeps running, idle.
        let waits = tokio::spawn(std::future::pending::<()>());
        parent.send_line("ready");
        let hears = tokio::task::spawn_blocking(move || while parent.next_line().is_some() {});
        hears.await.unwrap();
        waits.abort();
    });
    runtime.shutdown_timeout(Duration::ZERO);
}
