//! Many tasks on one session.

use std::sync::Arc;

use bellwire::{AsyncClient, Doorbell, ServerConfig};
use tokio::task::JoinSet;

use super::{client, gated, idle_stats, in_each_runtime};
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config};

const TASKS: u64 = 1000;
const EACH: u64 = 10;

#[test]
fn a_thousand_tasks_on_one_session_get_their_own_answers_in_any_order() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        in_each_runtime(async || {
            let dir = Dir::new();
            let config = ServerConfig::default().workers(3).max_in_flight(8192);
            let (server, gate, arrivals) = gated(&dir, config);
            let config = client_config().doorbell(doorbell);
            let session =
                AsyncClient::<Hold>::with_config(&dir.run_dir, config).connect().await.unwrap();

            // Asked first, answered last.
            let first = tokio::spawn({
                let session = session.clone();
                async move { session.call(&0).await }
            });
            tokio::task::spawn_blocking(move || arrivals.next()).await.unwrap();
            let mut tasks = JoinSet::new();
            for task in 1..=TASKS {
                let session = session.clone();
                tasks.spawn(async move {
                    for nth in 1..=EACH {
                        let who = task << 8 | nth;
                        assert_eq!(session.call(&who).await.unwrap(), who);
                    }
                });
            }
            while let Some(task) = tasks.join_next().await {
                task.unwrap();
            }
            assert!(!first.is_finished());
            assert_eq!(session.stats().in_flight, 1);
            gate.open();
            assert_eq!(first.await.unwrap().unwrap(), 0);
            let stats = idle_stats(&session);
            assert_eq!((stats.made, stats.failed), (TASKS * EACH + 1, 0));
            drop(session);
            let stats = server.stop();
            assert_eq!((stats.admitted, stats.answered), (1, TASKS * EACH + 1));
        });
    }
}

#[test]
fn tasks_that_begin_together_share_one_session() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let client = Arc::new(client::<Echo>(fixture.run_dir()));
        let mut tasks = JoinSet::new();
        for task in 0..100_u8 {
            let client = Arc::clone(&client);
            tasks.spawn(async move { assert_eq!(client.call(&vec![task]).await.unwrap(), [task]) });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        drop(client);
        let stats = fixture.close();
        assert_eq!((stats.admitted, stats.answered), (1, 100));
    });
}

#[test]
fn requests_and_answers_of_any_size_arrive_whole() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let client = Arc::new(client::<Echo>(fixture.run_dir()));
        let mut tasks = JoinSet::new();
        for len in [0, 1, 8000, 9000, 100_000, 1 << 20, 3 << 20] {
            let client = Arc::clone(&client);
            tasks.spawn(async move {
                let request = vec![len as u8; len];
                assert!(client.call(&request).await.unwrap() == request, "{len} bytes");
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        drop(client);
        assert_eq!(fixture.close().answered, 7);
    });
}
