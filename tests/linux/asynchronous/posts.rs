//! One-way requests of tasks.

use std::pin::pin;
use std::time::Duration;

use bellwire::{AsyncClient, AsyncSession, Backpressure, CallError, ErrorKind, ServerConfig};
use tokio::time::timeout;

use super::{client, in_each_runtime, until};
use crate::processes::stopped::Stopped;
use crate::support::child::Process;
use crate::support::guard::TEST_TIMEOUT;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config};

const SOON: Duration = Duration::from_millis(10);

/// A session whose provider's only thread is held by a one-way request: it answers nothing, whatever happens.
async fn held(fixture: &TestServer) -> AsyncSession<Hold> {
    let session = client::<Hold>(fixture.run_dir()).connect().await.unwrap();
    session.post(&0).await.unwrap();
    assert_eq!(fixture.arrivals.next(), 0);
    session
}

#[test]
fn posts_of_tasks_are_handled_however_they_travel() {
    in_each_runtime(async || {
        for workers in [0, 2] {
            let fixture = TestServer::with(ServerConfig::default().workers(workers));
            let session = client::<Echo>(fixture.run_dir()).connect().await.unwrap();
            let mut posts = 0;
            for len in [0, 100, 8_000, 9_000, 300_000] {
                for _ in 0..20 {
                    session.post(&vec![7; len]).await.unwrap();
                    session.raw().post(&vec![8; len]).await.unwrap();
                    posts += 2;
                }
                assert_eq!(session.call(&vec![9; len]).await.unwrap(), vec![9; len], "beside them");
            }
            session.post_batch(&[vec![1; 10], vec![], vec![2; 5_000]]).await.unwrap();
            let too_many = vec![vec![]; session.max_batch() + 1];
            let refused = session.post_batch(&too_many).await.unwrap_err();
            assert!(matches!(refused, CallError::TooManyItems { .. }), "{refused}");
            posts += 1;
            session.flush(TEST_TIMEOUT).await.unwrap();
            let stats = session.stats();
            assert_eq!((stats.posts_taken, stats.posts_lost, stats.in_flight), (posts, 0, 0));
            assert_eq!((stats.made, stats.answered, stats.unsent), (posts + 5, 5, 1));
            until("all are handled", || fixture.stats().posted == posts).await;
        }
    });
}

#[test]
fn a_flush_waits_only_for_posts_made_before_it() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let session = held(&fixture).await;
        session.flush(TEST_TIMEOUT).await.unwrap();
        session.post(&1).await.unwrap();
        let late = session.flush(SOON).await.unwrap_err();
        assert!(matches!(late, CallError::Deadline { .. }), "{late}");
        let waits = session.clone();
        let mut first = Box::pin(async move { waits.flush(TEST_TIMEOUT).await });
        assert!(timeout(Duration::ZERO, &mut first).await.is_err());
        session.post(&2).await.unwrap();
        // Whoever drops one does not disturb the others.
        assert!(timeout(SOON, session.flush(TEST_TIMEOUT)).await.is_err());
        let second = tokio::spawn({
            let session = session.clone();
            async move { session.flush(TEST_TIMEOUT).await }
        });
        tokio::task::yield_now().await;
        fixture.release();
        first.await.unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(session.stats().posts_taken, 3);
    });
}

#[test]
fn a_post_that_is_dropped_while_it_waits_for_room_is_not_sent() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let session = held(&fixture).await;
        let mut sent = 1;
        let fails = session.backpressure(Backpressure::Fail);
        let full = loop {
            match fails.post(&sent).await {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, CallError::WouldBlock), "{full}");
        let waits = session.backpressure(Backpressure::Wait);
        assert!(timeout(SOON, waits.post(&u64::MAX)).await.is_err());
        let number = sent;
        let mut last = Box::pin(waits.post(&number));
        assert!(timeout(Duration::ZERO, &mut last).await.is_err());
        // It waits beside one that waits for room.
        let mut flush = Box::pin(waits.flush(TEST_TIMEOUT));
        assert!(timeout(SOON, &mut flush).await.is_err());
        fixture.release();
        flush.await.unwrap();
        last.await.unwrap();
        sent += 1;
        waits.flush(TEST_TIMEOUT).await.unwrap();
        let stats = session.stats();
        assert_eq!((stats.made, stats.posts_taken, stats.unsent), (sent, sent, 2));
        until("all are handled", || fixture.stats().posted == sent).await;
        assert_eq!(fixture.arrivals.so_far(), (1..sent).collect::<Vec<_>>());
    });
}

#[test]
fn a_flush_ends_though_a_call_waits_for_an_answer_to_be_sent() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let mut server = Process::start("server 1", &dir.run_dir);
        let config = client_config().max_in_flight(1);
        let client = AsyncClient::<Hold>::with_config(&dir.run_dir, config);
        let session = client.connect().await.unwrap();
        let mut calls = pin!(async { tokio::join!(session.call(&1), session.call(&2)) });
        assert!(timeout(Duration::ZERO, &mut calls).await.is_err());
        assert_eq!(server.next_line(), "came 1");
        {
            let stopped = Stopped::new(&server);
            // It does not wait behind the second call, as a post would.
            let grows = session.backpressure(Backpressure::Grow);
            grows.post(&3).await.unwrap();
            let mut flush = pin!(session.flush(TEST_TIMEOUT));
            assert!(timeout(SOON, &mut flush).await.is_err());
            drop(stopped);
            flush.await.unwrap();
        }
        server.send_line("open");
        let (first, second) = calls.await;
        assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
    });
}

#[test]
fn a_killed_provider_ends_a_flush_and_leaves_the_unconsumed_posts() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let mut server = Process::start("server", &dir.run_dir);
        let session = client::<Hold>(&dir.run_dir).connect().await.unwrap();
        session.post(&0).await.unwrap();
        assert_eq!(server.next_line(), "came 0");
        for number in 1..=7 {
            session.post(&number).await.unwrap();
        }
        let mut flush = pin!(session.flush(TEST_TIMEOUT));
        assert!(timeout(SOON, &mut flush).await.is_err());
        server.kill();
        assert_eq!(flush.await.unwrap_err().kind(), ErrorKind::PeerGone);
        let stats = session.stats();
        assert_eq!((stats.posts_taken, stats.posts_lost, stats.in_flight), (1, 7, 0));
        assert_eq!(session.post(&8).await.unwrap_err().kind(), ErrorKind::PeerGone);
    });
}
