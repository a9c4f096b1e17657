//! Calls that were dropped.

use std::time::Duration;

use bellwire::{Backpressure, CallError, Executed, ServerConfig};

use super::{client, fill, idle_stats, in_each_runtime, until};
use crate::support::services::Hold;
use crate::support::test_server::TestServer;

fn one_worker() -> TestServer {
    TestServer::with(ServerConfig::default().workers(1))
}

#[test]
fn calls_and_batches_that_are_dropped_before_their_handler_began_never_reach_it() {
    in_each_runtime(async || {
        let fixture = one_worker();
        let session = client::<Hold>(fixture.run_dir()).connect().await.unwrap();
        let call = |who: u64| {
            let session = session.clone();
            tokio::spawn(async move {
                match who % 2 {
                    0 => session.call_batch(&[who, who]).await.map(drop),
                    _ => session.call(&who).await.map(drop),
                }
            })
        };
        let first = call(1);
        until("the first is held", || fixture.arrivals.so_far() == [1]).await;
        let dropped: Vec<_> = (10..20).map(call).collect();
        until("all are sent", || session.stats().made == 11).await;
        for task in dropped {
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert_eq!((session.stats().failed, session.stats().in_flight), (10, 1));
        until("the cancellations are taken", || fixture.stats().refused == 10).await;
        let soon = Duration::from_millis(5);
        let late = session.call_batch_within(&[5], soon).await;
        assert!(matches!(late, Err(CallError::Deadline { executed: Executed::Maybe })), "{late:?}");
        until("that is taken, too", || fixture.stats().refused == 11).await;
        fixture.release();
        first.await.unwrap().unwrap();
        assert_eq!(session.call(&2).await.unwrap(), 2);
        assert_eq!(session.call_batch(&[3, 4]).await.unwrap().len(), 2);
        assert_eq!(fixture.arrivals.so_far(), [2, 3, 4], "no handler saw those that were dropped");
        let stats = idle_stats(&session);
        assert_eq!((stats.made, stats.answered, stats.failed), (14, 3, 11));
        drop(session);
        let stats = fixture.close();
        assert_eq!((stats.accepted, stats.answered, stats.refused), (14, 3, 11));
    });
}

#[test]
fn a_call_dropped_while_its_handler_runs_disturbs_no_other_call() {
    in_each_runtime(async || {
        let fixture = one_worker();
        let session = client::<Hold>(fixture.run_dir()).connect().await.unwrap();
        for who in 0..20 {
            let task = tokio::spawn({
                let session = session.clone();
                async move { session.call(&who).await }
            });
            until("it is sent", || session.stats().made == who + 1).await;
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        fixture.release();
        assert_eq!(session.call(&99).await.unwrap(), 99, "late answers are nobody else's");
        assert_eq!(idle_stats(&session).failed, 20);
    });
}

#[test]
fn a_call_ends_at_its_deadline_and_reports_whether_it_may_have_run() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let session = client::<Hold>(fixture.run_dir()).connect().await.unwrap();
        let soon = Duration::from_millis(5);
        let late = session.call_within(&1, soon).await;
        assert!(matches!(late, Err(CallError::Deadline { executed: Executed::Maybe })), "{late:?}");
        assert_eq!(fixture.arrivals.next(), 1);
        let mut held = fill(&session).await;
        let in_line = session.backpressure(Backpressure::Wait).call_within(&3, soon).await;
        let in_vain = matches!(in_line, Err(CallError::Deadline { executed: Executed::No }));
        assert!(in_vain, "{in_line:?}");
        held.shutdown().await;
        until("those that are held are given up", || session.stats().in_flight == 0).await;
        fixture.release();
        assert_eq!(session.call(&4).await.unwrap(), 4);
        idle_stats(&session);
    });
}
