//! Batches of tasks: they behave as those of a thread.

use std::sync::Arc;

use bellwire::{AsyncClient, CallError, Geometry, HandlerError, Limits, ServerConfig, Service};
use tokio::task::JoinSet;

use super::{client, idle_stats, in_each_runtime};
use crate::support::services::{AsRequested, Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config, provide, provide_with};

/// What became of each item.
fn in_short<R: std::fmt::Debug>(
    answers: impl IntoIterator<Item = Result<R, Box<CallError>>>,
) -> Vec<String> {
    answers.into_iter().map(|answer| format!("{answer:?}")).collect()
}

#[test]
fn each_item_gets_the_same_answer_as_in_a_blocking_batch() {
    in_each_runtime(async || {
        let fixture = TestServer::open();
        let outcomes = [
            AsRequested::ANSWER,
            AsRequested::FAIL,
            AsRequested::PANIC,
            77,
            AsRequested::ANSWER,
            AsRequested::LARGE,
        ];
        let asked = client::<AsRequested>(fixture.run_dir());
        for some in [&outcomes[..], &outcomes[..1], &[]] {
            let mut blocking = fixture.client::<AsRequested>();
            let expected = in_short(blocking.connect().unwrap().call_batch(some).unwrap());
            assert_eq!(in_short(asked.call_batch(some).await.unwrap()), expected);
            let session = asked.connect().await.unwrap();
            assert_eq!(in_short(session.call_batch(some).await.unwrap()), expected);
        }
        let session = asked.connect().await.unwrap();
        let stats = idle_stats(&session);
        assert_eq!((stats.made, stats.answered, stats.failed), (6, 6, 0), "a batch is one");
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
            let config = client_config()
                .lane(client_config().lane.limits(limits).size(lane).max_learned(lane));
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
        assert_eq!((idle_stats(&session).made, idle_stats(&session).failed), (4000, 0));
        drop(session);
        assert_eq!(server.stop().answered, 4000);
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
