//! Tasks that find the lane full.

use std::pin::pin;
use std::time::Duration;

use bellwire::{AsyncClient, Backpressure, CallError, Executed, Geometry};
use tokio::task::{JoinHandle, JoinSet};

use super::{fill, idle_stats, in_each_runtime, until};
use crate::support::services::Hold;
use crate::support::test_server::{TestServer, client_config};

const LEAST: u64 = 4096;

/// A session with a full lane, whose provider's only thread is held; and the task that waits for the answers.
async fn full(fixture: &TestServer) -> (bellwire::AsyncSession<Hold>, JoinSet<u64>) {
    let lane = Geometry::new(LEAST).unwrap();
    let config = client_config().lane(client_config().lane.size(lane).max_learned(lane));
    let client = AsyncClient::<Hold>::with_config(fixture.run_dir(), config);
    let session = client.connect().await.unwrap();
    let mut calls = fill(&session).await;
    assert_eq!(fixture.arrivals.next(), 0);
    // Taking the first one has made room for others.
    let more = fill(&session).await;
    calls.spawn(async move { more.join_all().await.into_iter().sum() });
    (session, calls)
}

#[test]
fn tasks_queue_for_room_and_dropped_ones_do_not_block_the_others() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let (session, calls) = full(&fixture).await;
        let sent = session.stats().made;
        let call = |who: u64| {
            let session = session.backpressure(Backpressure::Wait);
            tokio::spawn(async move { session.call(&who).await })
        };
        let waiting: Vec<_> = (0..300).map(|nth| call(1 << 32 | nth)).collect();
        let batch = tokio::spawn({
            let session = session.backpressure(Backpressure::Wait);
            async move { session.call_batch(&[7; 100]).await }
        });
        let fails = session.backpressure(Backpressure::Fail);
        let failed = [fails.call(&9).await.map(drop), fails.call_batch(&[9; 100]).await.map(drop)];
        assert!(failed.iter().all(|failed| matches!(failed, Err(CallError::WouldBlock))));
        for task in waiting.iter().step_by(2) {
            task.abort();
        }
        // A task that another thread is polling could otherwise still find the room that is made below.
        let leaving = waiting.iter().step_by(2);
        until("those who leave are gone", || leaving.clone().all(JoinHandle::is_finished)).await;
        assert_eq!(session.stats().made, sent, "nobody was sent");
        fixture.release();
        let mut answered = 0;
        for (nth, task) in (0..).zip(waiting) {
            match task.await {
                Ok(answer) => {
                    assert_eq!(answer.unwrap(), 1 << 32 | nth);
                    answered += 1;
                }
                Err(error) => assert!(error.is_cancelled() && nth % 2 == 0, "{nth}: {error}"),
            }
        }
        assert_eq!(answered, 150);
        let answers: Result<Vec<u64>, _> = batch.await.unwrap().unwrap().into_iter().collect();
        assert_eq!(answers.unwrap(), [7; 100]);
        calls.join_all().await;
        let stats = idle_stats(&session);
        assert_eq!((stats.made, stats.answered), (sent + 151, sent + 151));
        assert_eq!((stats.requests.size, stats.requests.grows), (LEAST, 0));
        assert_eq!(fails.call(&5).await.unwrap(), 5, "nobody waits");
    });
}

#[test]
fn calls_that_end_before_they_are_sent_are_counted() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let (session, calls) = full(&fixture).await;
        let before = session.stats();
        assert_eq!(before.unsent, 2, "the lane was found full twice");
        let fails = session.backpressure(Backpressure::Fail).call(&1).await;
        assert!(matches!(fails, Err(CallError::WouldBlock)), "{fails:?}");
        let waiting = session.backpressure(Backpressure::Wait);
        // Dropped after it was polled once.
        assert!(tokio::time::timeout(Duration::ZERO, waiting.call(&2)).await.is_err());
        let soon = Duration::from_millis(5);
        let late = waiting.call_within(&3, soon).await.map(|_| ());
        let late_batch = waiting.call_batch_within(&[4, 5], soon).await.map(|_| ());
        for late in [late, late_batch] {
            assert!(
                matches!(late, Err(CallError::Deadline { executed: Executed::No })),
                "{late:?}"
            );
        }
        let stats = session.stats();
        assert_eq!((stats.unsent, stats.made), (6, before.made));
        drop(waiting);
        fixture.release();
        calls.join_all().await;
        idle_stats(&session);
    });
}

#[test]
fn backpressure_grow_proceeds_while_other_tasks_wait_for_room() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let (session, calls) = full(&fixture).await;
        let sent = session.stats().made;
        let waiting = session.backpressure(Backpressure::Wait);
        let mut waits = pin!(async move { waiting.call(&7).await });
        // Polled once, before any task wants to grow.
        assert!(tokio::time::timeout(Duration::ZERO, &mut waits).await.is_err());
        let grows = tokio::spawn({
            let session = session.backpressure(Backpressure::Grow);
            async move { session.call(&8).await }
        });
        // A waiting request may be sent as soon as there is room.
        until("it is sent", || session.stats().made > sent).await;
        assert_eq!((session.stats().requests.size, session.stats().requests.grows), (2 * LEAST, 1));
        fixture.release();
        assert_eq!((grows.await.unwrap().unwrap(), waits.await.unwrap()), (8, 7));
        calls.join_all().await;
        idle_stats(&session);
    });
}
