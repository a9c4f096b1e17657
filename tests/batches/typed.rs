//! Batches: what each side observes.

use std::time::Duration;

use bellwire::{
    BatchAnswers, CallError, Client, HandlerError, Limits, Malformed, Message, Server,
    ServerBuilder, ServerConfig, Session, Status,
};

use super::{Doubler, Setup, declined, double, failed, in_short};
use crate::support::guard::TEST_TIMEOUT;
use crate::support::services::services;
use crate::support::test_server::{Dir, client_config};

services! {
    /// The same service, for a client whose requests are malformed.
    Bytes(Doubler::NAME): Vec<u8> => Vec<u8>;
}

fn whole(batch: &[u64], answers: &mut BatchAnswers<'_, Vec<u8>>) {
    for number in batch {
        match double(*number) {
            Ok(bytes) => answers.push(&bytes),
            Err(error) => answers.fail(&error),
        }
    }
}

#[test]
fn each_item_of_a_batch_gets_the_answer_of_a_single_call() {
    let requests = [0, 3, 150, 99, 250, 1];
    let wanted = [Ok(0), Ok(6), failed(150), Ok(198), declined(Status::Panicked), Ok(2)];
    for workers in [0, 2] {
        let mut setup = Setup::by_item(ServerConfig::default().workers(workers));
        let replies = setup.session().call_batch(&requests).unwrap();
        assert_eq!(replies.len(), requests.len());
        assert_eq!(in_short(replies), wanted);
        for (request, wanted) in requests.iter().zip(&wanted) {
            assert_eq!(in_short([setup.session().call(request)]).remove(0), *wanted);
        }
    }
}

#[test]
fn a_handler_of_batches_sees_them_whole_and_single_requests_as_batches_of_one() {
    let mut setup = Setup::by_batch(|batch, answers| {
        assert_eq!(answers.due(), batch.len());
        let sum = batch.iter().sum::<u64>();
        for _ in batch {
            answers.push(&vec![1; sum as usize]);
        }
        answers.push(&vec![9; 999]);
    });
    let replies = setup.session().call_batch(&[1, 2, 3]).unwrap();
    assert_eq!(in_short(replies), [Ok(6), Ok(6), Ok(6)]);
    assert_eq!(setup.session().call(&4).unwrap().len(), 4);
    assert_eq!(setup.session().call_batch(&[]).unwrap().len(), 0);
}

#[test]
fn an_item_that_a_batch_handler_fails_or_leaves_out_fails_alone() {
    let mut setup = Setup::by_batch(|batch, answers| {
        whole(batch.get(..3).unwrap_or(batch), answers);
    });
    let replies = in_short(setup.session().call_batch(&[5, 105, 6, 7]).unwrap());
    let left_out = Err("the handler gave no answer to this item".to_owned());
    assert_eq!(replies, [Ok(10), failed(105), Ok(12), left_out]);
    assert_eq!(in_short([setup.session().call(&120)]), [failed(120)]);
}

#[test]
fn a_batch_handler_that_panics_fails_the_batch_and_nothing_else() {
    let mut setup = Setup::by_batch(whole);
    let failed = setup.session().call_batch(&[1, 200, 2]).unwrap_err();
    assert!(matches!(failed, CallError::Declined { status: Status::Panicked }), "{failed}");
    assert_eq!(in_short(setup.session().call_batch(&[1, 2]).unwrap()), [Ok(2), Ok(4)]);
}

#[test]
fn an_item_that_cannot_be_decoded_fails_alone_and_reaches_no_handler() {
    let good = 4_u64.to_le_bytes().to_vec();
    let requests = [vec![1], good.clone(), vec![], vec![2; 9], good, vec![3]];
    let malformed = declined(Status::Malformed);
    let wanted = [malformed.clone(), Ok(8), malformed.clone(), malformed.clone(), Ok(8), malformed];
    for setup in [Setup::by_item(ServerConfig::default()), Setup::by_batch(whole)] {
        let mut client = Client::<Bytes>::with_config(&setup._dir.run_dir, client_config());
        let session = client.connect().unwrap();
        assert_eq!(in_short(session.call_batch(&requests).unwrap()), wanted);
    }
}

/// How a provider serves: item by item, or whole batches.
const STYLES: [fn(&mut ServerBuilder); 2] = [
    |builder| {
        builder.serve::<Doubler>(|_, number| double(number)).unwrap();
    },
    |builder| {
        builder.serve_batches::<Doubler>(|_, batch, answers| whole(batch, answers)).unwrap();
    },
];

#[test]
fn an_answer_that_has_no_room_in_the_message_fails_alone() {
    for style in STYLES {
        for workers in [0, 1] {
            let limits = Limits { max_message: 400, ..Limits::default() };
            let client = client_config().lane(client_config().lane.limits(limits));
            let config = ServerConfig::default().workers(workers);
            let mut setup = Setup::with(config, client, style);
            let replies = in_short(setup.session().call_batch(&[90, 95, 5, 90, 6]).unwrap());
            let none = declined(Status::TooLarge);
            assert_eq!(replies, [Ok(180), none.clone(), Ok(10), none, Ok(12)]);
        }
    }
}

#[test]
fn a_request_that_has_no_room_in_the_message_fails_alone() {
    let styles: [fn(&mut ServerBuilder); 2] = [
        |builder| {
            builder.serve::<Bytes>(|_, bytes| Ok::<_, HandlerError>(bytes)).unwrap();
        },
        |builder| {
            let echo = |batch: &[Vec<u8>], answers: &mut BatchAnswers<'_, Vec<u8>>| {
                batch.iter().for_each(|bytes| answers.push(bytes));
            };
            builder.serve_batches::<Bytes>(move |_, batch, answers| echo(batch, answers)).unwrap();
        },
    ];
    for style in styles {
        let limits = Limits { max_message: 100, ..Limits::default() };
        let client = client_config().lane(client_config().lane.limits(limits));
        let setup = Setup::with(ServerConfig::default(), client.clone(), style);
        let mut other = Client::<Bytes>::with_config(&setup._dir.run_dir, client);
        let session = other.connect().unwrap();
        // The answers have two lengths, or one.
        for last in [20, 30] {
            let requests = [vec![1; 30], vec![2; 60], vec![3; last]];
            let replies = in_short(session.call_batch(&requests).unwrap());
            assert_eq!(replies, [Ok(30), Err("114 above 100".to_owned()), Ok(last)]);
        }
    }
}

#[test]
fn a_batch_of_any_size_arrives_whole() {
    let mut setup = Setup::by_item(ServerConfig::default());
    for count in [1, 2, 1000, 9000, 100_000] {
        let requests: Vec<u64> = (0..count).map(|nth| nth % 100).collect();
        let replies = in_short(setup.session().call_batch(&requests).unwrap());
        let wanted: Vec<_> = requests.iter().map(|number| Ok(2 * *number as usize)).collect();
        assert!(replies == wanted, "of {count} items");
    }
}

#[test]
fn batches_and_single_requests_in_flight_together_find_their_own_answers() {
    let mut setup = Setup::by_item(ServerConfig::default());
    let session = setup.session();
    let mut batches = Vec::new();
    let mut singles = Vec::new();
    for round in 0..20 {
        batches.push((session.submit_batch(&[round, round + 1]).unwrap(), round as usize));
        singles.push((session.submit(&(round + 2)).unwrap(), round as usize));
    }
    let forgotten = session.submit_batch(&[1]).unwrap();
    assert!(session.abandon(forgotten));
    while !(batches.is_empty() && singles.is_empty()) {
        session.wait().unwrap();
        while let Some((ticket, answer)) = session.try_reply().unwrap() {
            let at = singles.iter().position(|(sent, _)| *sent == ticket).unwrap();
            assert_eq!(answer.unwrap().len(), 2 * (singles.remove(at).1 + 2));
        }
        while let Some((ticket, replies)) = session.try_batch().unwrap() {
            let at = batches.iter().position(|(sent, _)| *sent == ticket).unwrap();
            let round = batches.remove(at).1;
            assert_eq!(in_short(replies.unwrap()), [Ok(2 * round), Ok(2 * round + 2)]);
        }
    }
    let stats = session.stats();
    assert_eq!((stats.made, stats.answered, stats.failed, stats.in_flight), (41, 40, 1, 0));
}

#[test]
fn a_wait_for_a_batch_leaves_answers_to_single_requests() {
    let mut setup = Setup::by_item(ServerConfig::default());
    let session = setup.session();
    for round in 0..20 {
        let single = session.submit(&(round + 2)).unwrap();
        let batch = session.submit_batch(&[round, round + 1]).unwrap();
        let (ticket, replies) = session.wait_batch(TEST_TIMEOUT).unwrap();
        assert_eq!(ticket, batch);
        let wanted = [2 * round, 2 * round + 2].map(|len| Ok(len as usize));
        assert_eq!(in_short(replies.unwrap()), wanted);
        let (ticket, answer) = session.try_reply().unwrap().unwrap();
        assert_eq!((ticket, answer.unwrap().len() as u64), (single, 2 * round + 4));
    }
    let late = session.wait_batch(Duration::from_millis(5)).map(|_| ());
    assert!(matches!(late, Err(CallError::Deadline { .. })), "{late:?}");
    let stats = session.stats();
    assert_eq!((stats.made, stats.answered, stats.in_flight), (40, 40, 0));
    let mut client = setup.stop_server();
    let gone = client.session().unwrap().wait_batch(TEST_TIMEOUT).map(|_| ());
    assert!(matches!(gone, Err(CallError::Closed { .. })), "{gone:?}");
}

/// Numbers below 1 000, all of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Small(u64);

impl Message for Small {
    const LEN: Option<usize> = Some(8);

    fn encode(&self, into: &mut Vec<u8>) {
        self.0.encode(into);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match u64::decode(bytes)? {
            number @ 0..1000 => Ok(Self(number)),
            _ => Err(Malformed::new(0, bytes.len(), "too large a number")),
        }
    }
}

services! {
    Smaller("smaller"): Small => Small;
}

#[test]
fn values_of_one_length_go_together_and_one_that_is_malformed_fails_alone() {
    let dir = Dir::new();
    let mut builder = Server::builder(&dir.run_dir);
    // More answers than items, and ones that a client takes for malformed.
    builder
        .serve_batches::<Smaller>(|_, batch, answers| {
            let more = batch.iter().copied().chain([Small(7), Small(8)]);
            answers.extend(more.map(|Small(number)| Small(number * 2)));
            assert_eq!(answers.due(), 0);
        })
        .unwrap();
    let _server = builder.start().unwrap();
    let mut client = Client::<Smaller>::with_config(&dir.run_dir, client_config());
    for count in [1, 2, 499, 5000] {
        let mut numbers: Vec<_> = (0..count).map(|at| Small(at % 500)).collect();
        let answers = |client: &mut Client<Smaller>, numbers: &[Small]| -> Vec<Option<u64>> {
            let answers = client.connect().unwrap().call_batch(numbers).unwrap();
            answers.map(|answer| answer.ok().map(|small| small.0)).collect()
        };
        let wanted: Vec<_> = numbers.iter().map(|small| Some(small.0 * 2)).collect();
        assert_eq!(answers(&mut client, &numbers), wanted);
        // A request that the server does not take, and an answer that the client does not.
        numbers.extend([Small(1000), Small(3), Small(900)]);
        let wanted: Vec<_> = wanted.into_iter().chain([None, Some(6), None]).collect();
        assert_eq!(answers(&mut client, &numbers), wanted);
        assert_eq!(appended(client.connect().unwrap(), &numbers), wanted);
        assert_eq!(
            appended(client.connect().unwrap(), &numbers[..count as usize]),
            wanted[..count as usize]
        );
        // All are Ok for the server: the client alone minds the second half.
        let odd = [1, 700, 2, 800].map(Small);
        assert_eq!(appended(client.connect().unwrap(), &odd), [Some(2), None, Some(4), None]);
    }
}

/// The answers to `numbers`, appended at once up to each that failed.
fn appended(session: &mut Session<Smaller>, numbers: &[Small]) -> Vec<Option<u64>> {
    let mut replies = session.call_batch(numbers).unwrap();
    let (mut taken, mut values) = (Vec::new(), vec![Small(0)]);
    loop {
        let ended = replies.append_to(&mut values);
        taken.extend(values.drain(1..).map(|small| Some(small.0)));
        assert_eq!(
            (replies.len(), values.as_slice()),
            (numbers.len() - taken.len() - usize::from(ended.is_err()), &[Small(0)][..])
        );
        match ended {
            Ok(()) => return taken,
            Err(_) => taken.push(None),
        }
    }
}
