//! Batches of tasks: they behave as those of a thread, and are dropped as calls are.

use std::sync::Arc;
use std::time::Duration;

use bellwire::{
    AsyncClient, Backpressure, CallError, Executed, Geometry, HandlerError, Limits, ServerConfig,
    Service,
};
use tokio::task::JoinSet;

use super::{client, fill, in_each_runtime, killed, settled, until};
use crate::support::child::Process;
use crate::support::services::{Echo, Hold, Moody};
use crate::support::test_server::{Dir, TestServer, patient, provide, provide_with};

/// What became of each item.
fn in_short<R: std::fmt::Debug>(
    answers: impl IntoIterator<Item = Result<R, Box<CallError>>>,
) -> Vec<String> {
    answers.into_iter().map(|answer| format!("{answer:?}")).collect()
}

#[test]
fn each_item_gets_the_answer_that_it_gets_in_a_batch_of_a_blocking_session() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let moods = [Moody::ANSWER, Moody::FAIL, Moody::PANIC, 77, Moody::ANSWER, Moody::RAMBLE];
        let asked = client::<Moody>(fixture.run_dir());
        for some in [&moods[..], &moods[..1], &[]] {
            let mut blocking = fixture.client::<Moody>();
            let told = in_short(blocking.connect().unwrap().call_batch(some).unwrap());
            assert_eq!(in_short(asked.call_batch(some).await.unwrap()), told);
            let session = asked.connect().await.unwrap();
            assert_eq!(in_short(session.call_batch(some).await.unwrap()), told);
        }
        let session = asked.connect().await.unwrap();
        let stats = settled(&session);
        assert_eq!((stats.made, stats.answered, stats.failed), (6, 6, 0), "a batch is one");
    });
}

#[test]
fn a_batch_above_the_providers_limit_is_not_sent_and_the_error_says_the_limit() {
    in_each_runtime(async || {
        let fixture = TestServer::with(ServerConfig::default().max_batch(2));
        let client = client::<Echo>(fixture.run_dir());
        let items = [vec![1], vec![2], vec![3]];
        let error = client.call_batch(&items).await.unwrap_err();
        assert!(matches!(error, CallError::TooManyItems { items: 3, limit: 2 }), "{error}");
        let session = client.connect().await.unwrap();
        for chunk in items.chunks(session.max_batch()) {
            assert_eq!(session.call_batch(chunk).await.unwrap().len(), chunk.len());
        }
        let stats = settled(&session);
        assert_eq!((stats.made, stats.answered, stats.unsent), (2, 2, 1));
    });
}

#[test]
fn an_item_that_has_no_room_in_the_message_fails_alone() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        // Of the message; and of the largest lane, in which a batch is one record.
        let least = Limits { max_lane: Geometry::new(4096).unwrap(), ..Limits::default() };
        for limits in [Limits { max_message: 2000, ..Limits::default() }, least] {
            let lane = Geometry::new(4096).unwrap();
            let config = patient().lane(patient().lane.limits(limits).size(lane).max_learned(lane));
            let client = AsyncClient::<Echo>::with_config(fixture.run_dir(), config);
            let items = [vec![1; 700], vec![2; 5000], vec![3; 800], vec![4; 1500], vec![5; 9]];
            let answers = client.call_batch(&items).await.unwrap();
            for (nth, (item, answer)) in items.iter().zip(answers).enumerate() {
                match answer.map_err(CallError::from) {
                    Ok(answer) => assert!(nth != 1 && nth != 3 && answer == *item, "{nth}"),
                    Err(CallError::TooLarge { len, limit, .. }) => {
                        assert!((nth == 1 || nth == 3) && len > limit && limit <= 2000, "{nth}");
                    }
                    other => panic!("{nth}: {other:?}"),
                }
            }
            assert!(client.connect().await.unwrap().stats().requests.grows == 0);
        }
    });
}

#[test]
fn batches_and_calls_of_many_tasks_on_one_session_get_their_own_answers() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let config = ServerConfig::default().workers(3).max_in_flight(8192);
        let server =
            provide_with::<Hold>(&dir.run_dir, config, |_, who| Ok::<_, HandlerError>(who));
        let session = client::<Hold>(&dir.run_dir).connect().await.unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..200_u64 {
            let session = session.clone();
            tasks.spawn(async move {
                for round in 0..10 {
                    // Of all lengths, some longer than what the lane holds at first.
                    let numbers: Vec<u64> =
                        (0..task * round).map(|nth| task << 32 | round << 16 | nth).collect();
                    let answers = session.call_batch(&numbers).await.unwrap();
                    let answers: Result<Vec<u64>, _> = answers.into_iter().collect();
                    assert_eq!(answers.unwrap(), numbers);
                    assert_eq!(session.call(&task).await.unwrap(), task);
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!((settled(&session).made, settled(&session).failed), (4000, 0));
        drop(session);
        assert_eq!(server.stop().answered, 4000);
    });
}

#[test]
fn a_batch_that_is_dropped_before_its_handler_began_never_reaches_it() {
    in_each_runtime(async || {
        let fixture = TestServer::with(ServerConfig::default().workers(1));
        let session = client::<Hold>(fixture.run_dir()).connect().await.unwrap();
        let batch = |numbers: [u64; 2]| {
            let session = session.clone();
            tokio::spawn(async move { session.call_batch(&numbers).await })
        };
        let first = batch([1, 2]);
        until("the first is held", || fixture.arrivals.so_far() == [1]).await;
        let dropped: Vec<_> = (10..20).map(|who| batch([who, who])).collect();
        until("all are sent", || session.stats().made == 11).await;
        for task in dropped {
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert_eq!((session.stats().failed, session.stats().in_flight), (10, 1));
        until("the cancellations are taken", || fixture.stats().refused == 10).await;
        // In time, and too late.
        let soon = Duration::from_millis(5);
        let late = session.call_batch_within(&[5], soon).await;
        assert!(matches!(late, Err(CallError::Deadline { executed: Executed::Maybe })), "{late:?}");
        until("that is taken, too", || fixture.stats().refused == 11).await;
        fixture.release();
        assert_eq!(in_short(first.await.unwrap().unwrap()), ["Ok(1)", "Ok(2)"]);
        assert_eq!(in_short(batch([3, 4]).await.unwrap().unwrap()), ["Ok(3)", "Ok(4)"]);
        assert_eq!(fixture.arrivals.so_far(), [2, 3, 4], "no handler saw those that were dropped");
        let stats = settled(&session);
        assert_eq!((stats.made, stats.answered, stats.failed), (13, 2, 11));
        drop(session);
        let stats = fixture.close();
        assert_eq!((stats.accepted, stats.answered, stats.refused), (13, 2, 11));
    });
}

#[test]
fn a_batch_that_meets_a_full_lane_waits_in_line_or_fails_at_once() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let lane = Geometry::new(4096).unwrap();
        let config = patient().lane(patient().lane.size(lane).max_learned(lane));
        let client = AsyncClient::<Hold>::with_config(fixture.run_dir(), config);
        let session = client.connect().await.unwrap();
        let calls = fill(&session).await;
        assert_eq!(fixture.arrivals.next(), 0);
        let more = fill(&session).await;
        let sent = session.stats().made;
        let numbers = [7; 100];
        let fails = session.backpressure(Backpressure::Fail).call_batch(&numbers).await;
        assert!(matches!(fails, Err(CallError::WouldBlock)), "{fails:?}");
        let soon = Duration::from_millis(5);
        let in_vain =
            session.backpressure(Backpressure::Wait).call_batch_within(&numbers, soon).await;
        let not_sent = matches!(in_vain, Err(CallError::Deadline { executed: Executed::No }));
        assert!(not_sent, "{in_vain:?}");
        let waits = tokio::spawn({
            let session = session.backpressure(Backpressure::Wait);
            async move { session.call_batch(&numbers).await }
        });
        fixture.release();
        assert_eq!(in_short(waits.await.unwrap().unwrap()), vec!["Ok(7)"; 100]);
        calls.join_all().await;
        more.join_all().await;
        assert_eq!((settled(&session).made, settled(&session).requests.grows), (sent + 1, 0));
    });
}

#[test]
fn a_provider_that_is_killed_fails_batches_and_its_successor_gets_those_that_did_not_run() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let server = Process::start("server", &dir.run_dir);
        let client = Arc::new(client::<Hold>(&dir.run_dir));
        let session = client.connect().await.unwrap();
        let mut batches = JoinSet::new();
        for who in 0..50_u64 {
            let session = session.clone();
            batches.spawn(async move { session.call_batch(&[who, who + 1]).await });
        }
        until("all are sent", || session.stats().made == 50).await;
        let ran = killed(server, batches).await;
        assert!((1..50).contains(&ran), "the one in the handler, and what was read with it: {ran}");
        assert_eq!(settled(&session).failed, 50);
        let gone = session.call_batch(&[1]).await;
        assert!(matches!(gone, Err(CallError::PeerGone { executed: Executed::No })), "{gone:?}");

        assert!(matches!(client.call_batch(&[1]).await, Err(CallError::Absent { .. })));
        let mut next = Process::start("server", &dir.run_dir);
        assert_eq!(next.ask("open"), "opened");
        let mut answers = client.call_batch(&[5, 6]).await;
        while let Err(CallError::Absent { .. }) = answers {
            tokio::task::yield_now().await;
            answers = client.call_batch(&[5, 6]).await;
        }
        assert_eq!(in_short(answers.unwrap()), ["Ok(5)", "Ok(6)"]);
    });
}

/// It may run twice.
struct Again;

impl Service for Again {
    const NAME: &'static str = "again";
    const IDEMPOTENT: bool = true;
    type Request = u64;
    type Response = u64;
}

#[test]
fn a_batch_of_an_idempotent_service_is_sent_again_to_the_successor() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let serve =
            |offset: u64| provide::<Again>(&dir.run_dir, move |_, number| Ok(number + offset));
        let first = serve(100);
        let client = Arc::new(client::<Again>(&dir.run_dir));
        assert_eq!(in_short(client.call_batch(&[1, 2]).await.unwrap()), ["Ok(101)", "Ok(102)"]);
        let session = client.connect().await.unwrap();
        // Whether the client has noticed yet or not, it is one call.
        first.stop();
        let second = serve(200);
        let again = tokio::spawn({
            let client = Arc::clone(&client);
            async move { client.call_batch(&[1, 2]).await }
        });
        assert_eq!(in_short(again.await.unwrap().unwrap()), ["Ok(201)", "Ok(202)"]);
        assert!(!session.is_open());
        drop((client, session));
        second.stop();
    });
}
