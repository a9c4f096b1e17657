//! Providers, runtimes and sessions that end, and sessions that are idle.

use std::sync::Arc;

use bellwire::{CallError, Executed, ProviderState};
use tokio::task::JoinSet;

use super::{client, current, idle_stats, in_each_runtime, killed, several, until};
use crate::support::child::Process;
use crate::support::kernel;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer};

#[test]
fn a_provider_that_is_killed_fails_every_call_and_batch_and_its_successor_is_found() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let server = Process::start("server", &dir.run_dir);
        let client = Arc::new(client::<Hold>(&dir.run_dir));
        let session = client.connect().await.unwrap();
        assert_eq!(session.provider_pid(), Some(server.pid()));
        let mut calls = JoinSet::new();
        for who in 0..100_u64 {
            let session = session.clone();
            calls.spawn(async move {
                match who % 2 {
                    0 => session.call(&who).await.map(drop),
                    _ => session.call_batch(&[who, who + 1]).await.map(drop),
                }
            });
        }
        until("all are sent", || session.stats().made == 100).await;
        let ran = killed(server, calls).await;
        assert!(
            (1..100).contains(&ran),
            "the one in the handler, and those that were read with it: {ran}"
        );
        assert!(!session.is_open());
        for gone in [session.call(&1).await.map(drop), session.call_batch(&[1]).await.map(drop)] {
            assert!(
                matches!(gone, Err(CallError::PeerGone { executed: Executed::No })),
                "{gone:?}"
            );
        }
        assert_eq!(idle_stats(&session).failed, 100);

        assert!(matches!(client.call_batch(&[1]).await, Err(CallError::Absent { .. })));
        assert_eq!(client.state(), ProviderState::Absent);
        let mut next = Process::start("server", &dir.run_dir);
        assert_eq!(next.ask("open"), "opened");
        let mut answer = client.call(&5).await;
        while let Err(CallError::Absent { .. }) = answer {
            tokio::task::yield_now().await;
            answer = client.call(&5).await;
        }
        assert_eq!(answer.unwrap(), 5);
    });
}

#[test]
fn a_provider_that_stops_is_noticed_by_calls_and_by_checks() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let client = client::<Echo>(fixture.run_dir());
        let session = client.connect().await.unwrap();
        assert_eq!(session.call(&vec![1]).await.unwrap(), [1]);
        fixture.close();
        until("the end is noticed", || !session.is_open()).await;
        assert!(matches!(client.call(&vec![1]).await, Err(CallError::Absent { .. })));
    });
}

#[test]
fn calls_of_another_runtime_fail_when_the_runtime_of_the_session_ends() {
    for drives in [current(), several()] {
        let fixture = TestServer::open();
        let session = drives.block_on(client::<Hold>(fixture.run_dir()).connect()).unwrap();
        let other = several();
        let call = other.spawn({
            let session = session.clone();
            async move { session.call(&1).await }
        });
        assert_eq!(fixture.arrivals.next(), 1);
        drives.shutdown_background();
        let ended = other.block_on(call).unwrap();
        assert!(
            matches!(ended, Err(CallError::Cancelled { executed: Executed::Maybe })),
            "{ended:?}"
        );
        let late = other.block_on(session.call(&2));
        assert!(matches!(late, Err(CallError::Cancelled { executed: Executed::No })), "{late:?}");
        assert!(!session.is_open());
        assert_eq!(idle_stats(&session).failed, 1);
    }
}

#[test]
fn the_last_clone_ends_the_session_though_its_runtime_does_nothing_any_more() {
    let fixture = TestServer::open();
    let runtime = current();
    let session = runtime.block_on(client::<Echo>(fixture.run_dir()).connect()).unwrap();
    let other = session.clone();
    drop(session);
    assert_eq!(runtime.block_on(other.call(&vec![2])).unwrap(), [2]);
    drop(other);
    crate::support::guard::until("the session is over", || fixture.stats().sessions == 0);
}

#[test]
fn a_call_outside_a_runtime_is_an_error() {
    let fixture = TestServer::open();
    let client = client::<Echo>(fixture.run_dir());
    let mut connects = Box::pin(client.connect());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        connects.as_mut().poll(&mut context).is_ready()
    }));
    assert!(panics.is_err(), "as documented");
    drop(connects);
    assert_eq!(current().block_on(client.call(&vec![1])).unwrap(), [1], "and may go on in one");
}

#[test]
fn an_idle_session_wakes_neither_end() {
    let dir = Dir::new();
    let server = Process::start("server", &dir.run_dir);
    let client = Process::start("async-idle", &dir.run_dir);
    let pids = [server.pid(), client.pid()];
    for pid in pids {
        crate::support::guard::until("both ends sleep", || kernel::is_asleep(pid));
    }
    kernel::assert_no_wake_ups(|| pids.map(kernel::sleeps).iter().sum());
}
