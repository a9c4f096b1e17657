//! Many requests in flight, from one call.

use std::time::Duration;

use bellwire::{CallError, Executed, Geometry, LaneConfig, ServerConfig};

use super::{Doubler, Setup, double, failed, in_short};
use crate::support::services::Hold;
use crate::support::test_server::{TestServer, client_config};

#[test]
fn many_calls_get_each_its_own_answer() {
    for workers in [0, 2] {
        let mut setup = Setup::by_item(ServerConfig::default().workers(workers));
        let requests: Vec<u64> = (0..50_000).map(|nth| nth * 7 % 101).collect();
        let mut answers: Vec<Option<Result<usize, String>>> = vec![None; requests.len()];
        let each = |nth: usize, answer| {
            let answer = in_short([answer]).remove(0);
            assert!(answers[nth].replace(answer).is_none(), "{nth} was answered twice");
        };
        setup.session().call_many(&requests, each).unwrap();
        for (request, answer) in requests.iter().zip(answers) {
            let wanted = match double(*request) {
                Ok(bytes) => Ok(bytes.len()),
                Err(_) => failed(*request),
            };
            assert_eq!(answer, Some(wanted));
        }
        let stats = setup.session().stats();
        assert_eq!((stats.made, stats.in_flight), (50_000, 0));
        assert_eq!(stats.answered + stats.failed, 50_000);
    }
}

#[test]
fn no_calls_at_all_are_over_at_once() {
    let mut setup = Setup::by_item(ServerConfig::default());
    setup.session().call_many(&[], |_, _| panic!("nothing was asked")).unwrap();
}

#[test]
fn many_calls_finish_through_a_lane_that_holds_few_requests() {
    let lane = Geometry::new(4096).unwrap();
    let client = client_config().lane(client_config().lane.size(lane));
    let config = ServerConfig::default().max_in_flight(3).lane(LaneConfig::default().size(lane));
    let mut setup = Setup::with(config, client, |builder| {
        builder.serve::<Doubler>(|_, number| double(number)).unwrap();
    });
    let requests = [99_u64; 10_000];
    let mut answered = 0;
    setup.session().call_many(&requests, |_, answer| answered += answer.unwrap().len()).unwrap();
    assert_eq!(answered, 198 * requests.len());
}

#[test]
fn an_answer_to_an_earlier_request_stays_for_its_caller() {
    let mut setup = Setup::by_item(ServerConfig::default());
    let session = setup.session();
    let before = session.submit(&50).unwrap();
    let mut lens = Vec::new();
    session.call_many(&[1, 2], |_, answer| lens.push(answer.unwrap().len())).unwrap();
    assert_eq!(lens, [2, 4]);
    session.wait().unwrap();
    let (ticket, answer) = session.try_reply().unwrap().unwrap();
    assert_eq!((ticket, answer.unwrap().len()), (before, 100));
}

#[test]
fn cancelling_all_of_it_cancels_each_call_in_flight() {
    let fixture = TestServer::open();
    let mut client = fixture.client::<Hold>();
    let session = client.session().unwrap();
    let canceller = session.canceller().unwrap();
    let mut outcomes = Vec::new();
    let gone = std::thread::scope(|scope| {
        let each = |nth: usize, answer: Result<u64, CallError>| outcomes.push((nth, answer));
        let call = scope.spawn(|| session.call_many(&[1, 2, 3], each).unwrap_err());
        fixture.arrivals.next();
        canceller.cancel();
        call.join().unwrap()
    });
    assert!(matches!(gone, CallError::Cancelled { .. }), "{gone}");
    assert_eq!(outcomes.len(), 3);
    for (wanted, (nth, answer)) in outcomes.into_iter().enumerate() {
        assert_eq!(nth, wanted);
        let error = answer.unwrap_err();
        assert!(matches!(error, CallError::Cancelled { executed: Executed::Maybe }), "{error}");
    }
    let stats = session.stats();
    assert_eq!((stats.made, stats.failed, stats.in_flight), (3, 3, 0));
}

#[test]
fn after_the_provider_stopped_each_call_reports_that_it_did_not_run() {
    let setup = Setup::by_item(ServerConfig::default());
    let mut client = setup.stop_server();
    let session = client.session().unwrap();
    let mut reported = 0;
    let each = |_, answer| {
        assert!(matches!(answer, Err(CallError::PeerGone { executed: Executed::No })));
        reported += 1;
    };
    let gone = session.call_many(&[1, 2], each).unwrap_err();
    assert!(matches!(gone, CallError::PeerGone { .. }), "{gone}");
    assert_eq!(reported, 2);
}

#[test]
fn unanswered_calls_end_at_their_deadline() {
    let fixture = TestServer::open();
    let config = client_config().timeout(Duration::from_millis(20));
    let mut client = fixture.client_with::<Hold>(config);
    let session = client.session().unwrap();
    let mut reported = 0;
    let late = session.call_many(&[1, 2], |_, answer| {
        assert!(matches!(answer, Err(CallError::Deadline { executed: Executed::Maybe })));
        reported += 1;
    });
    assert!(matches!(late, Err(CallError::Deadline { .. })), "{late:?}");
    assert_eq!(reported, 2);
}

#[test]
fn no_more_requests_are_in_flight_than_the_client_is_configured_for() {
    let fixture = TestServer::with(ServerConfig::default().workers(1));
    let config = client_config().max_in_flight(3);
    let mut client = fixture.client_with::<Hold>(config);
    let session = client.session().unwrap();
    for at in 0..3 {
        session.submit(&at).unwrap();
    }
    let error = session.submit(&3).unwrap_err();
    assert!(matches!(error, CallError::WouldBlock), "{error}");
    assert_eq!((session.stats().made, session.stats().in_flight), (3, 3));
    fixture.release();
    // A call that may wait does so, for the oldest answer.
    assert_eq!(session.call(&4).unwrap(), 4);
    for at in 0..3 {
        assert_eq!(session.wait_reply(Duration::from_secs(60)).unwrap().1.unwrap(), at);
    }
    let requests: Vec<u64> = (0..1000).collect();
    let mut answers = Vec::new();
    session.call_many(&requests, |at, answer| answers.push((at, answer.unwrap()))).unwrap();
    answers.sort_unstable();
    let wanted: Vec<_> = requests.iter().map(|at| (*at as usize, *at)).collect();
    assert_eq!(answers, wanted);
}
