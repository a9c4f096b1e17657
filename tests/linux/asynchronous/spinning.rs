//! Sessions whose driver looks for answers instead of sleeping.

use std::time::Duration;

use bellwire::{AsyncSession, CallError, Executed, ServerConfig};
use bellwire_core::sync::{AtomicBool, Ordering};
use tokio::runtime::Runtime;

use super::{client, current, gated, idle_stats, in_each_runtime, several};
use crate::support::services::Hold;
use crate::support::test_server::Dir;

/// More than the calls after which a task looks for its answer itself.
const WARM_UP_CALLS: u64 = 300;

async fn warm_up(session: &AsyncSession<Hold>) {
    for who in 1..=WARM_UP_CALLS {
        assert_eq!(session.call(&who).await.unwrap(), who);
    }
}

#[track_caller]
fn is_late(answer: &Result<u64, CallError>) {
    let is_late = matches!(answer, Err(CallError::Deadline { executed: Executed::Maybe }));
    assert!(is_late, "{answer:?}");
}

#[test]
fn a_call_that_is_held_ends_at_its_deadline_though_others_are_answered_all_the_time() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let (_server, gate, _) = gated(&dir, ServerConfig::default().workers(2));
        let session = client::<Hold>(&dir.run_dir).connect().await.unwrap();
        warm_up(&session).await;
        let late = tokio::spawn({
            let session = session.clone();
            async move { session.call_within(&0, Duration::from_millis(5)).await }
        });
        while !late.is_finished() {
            warm_up(&session).await;
        }
        is_late(&late.await.unwrap());
        gate.open();
        warm_up(&session).await;
        idle_stats(&session);
    });
}

#[test]
fn a_call_ends_at_its_deadline_though_the_runtime_of_its_session_stands_still() {
    for drives in [current(), several()] {
        let dir = Dir::new();
        let (_server, gate, _) = gated(&dir, ServerConfig::default().workers(2));
        let session = drives.block_on(async {
            let session = client::<Hold>(&dir.run_dir).connect().await.unwrap();
            warm_up(&session).await;
            session
        });
        let soon = Duration::from_millis(5);
        let call = |runtime: &Runtime| runtime.block_on(session.call_within(&0, soon));
        is_late(&call(&current()));
        is_late(&call(&drives));
        gate.open();
    }
}

#[test]
fn tasks_of_both_kinds_of_runtime_take_turns_on_one_session() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let (_server, _gate, _) = gated(&dir, ServerConfig::default().workers(2));
        let session = client::<Hold>(&dir.run_dir).connect().await.unwrap();
        // The task that calls alone never waits for long, and lets this one run all the same.
        static OVER: AtomicBool = AtomicBool::new(false);
        OVER.store(false, Ordering::Relaxed);
        let alone = tokio::spawn({
            let session = session.clone();
            async move {
                while !OVER.load(Ordering::Relaxed) {
                    warm_up(&session).await;
                }
            }
        });
        let other = std::thread::spawn({
            let session = session.clone();
            move || current().block_on(warm_up(&session))
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
        OVER.store(true, Ordering::Relaxed);
        alone.await.unwrap();
        tokio::task::spawn_blocking(move || other.join().unwrap()).await.unwrap();
        idle_stats(&session);
    });
}
