//! Services that one end, or both, know only at run time.

use bellwire::{
    CallError, Client, Contract, Dynamic, ErrorKind, HandlerError, Payload, Refreshed, Server,
    Service, SnapshotCache,
};

use crate::support::guard::{TEST_TIMEOUT, scaled, until};
use crate::support::services::Numbers;
use crate::support::test_server::{Dir, TestServer, client_config, provide};

struct Sum;

impl Service for Sum {
    const NAME: &'static str = "sum";
    const VERSION: u32 = 7;
    const SCHEMA: u64 = bellwire::schema("Vec<u8> -> u64");
    type Request = Vec<u8>;
    type Response = u64;
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[test]
fn a_service_known_at_run_time_is_the_one_known_when_compiled() {
    let contract = Contract::new("sum".parse().unwrap()).version(7).schema(Sum::SCHEMA);
    assert_eq!(contract, Contract::of::<Sum>());
    let typed = |dir: &Dir| provide::<Sum>(&dir.run_dir, |_, bytes| Ok(sum(&bytes))).into_inner();
    let dynamic = |dir: &Dir| {
        let mut builder = Server::builder(&dir.run_dir);
        let answer = |bytes: Payload| sum(&bytes).to_le_bytes();
        let handler =
            move |_: &_, bytes| Ok(Payload::build(8, |into| into.copy_from_slice(&answer(bytes)))?);
        builder.serve_dynamic(contract, handler).unwrap();
        builder.start().unwrap()
    };
    let bytes = |dir: &Dir| {
        let mut builder = Server::builder(&dir.run_dir);
        let handler = |_: &_, bytes: &[u8], into: &mut Vec<u8>| {
            into.extend_from_slice(&sum(bytes).to_le_bytes());
            Ok(())
        };
        builder.serve_bytes(contract, handler).unwrap();
        builder.start().unwrap()
    };
    let start: [&dyn Fn(&Dir) -> Server; 3] = [&typed, &dynamic, &bytes];
    for start in start {
        let dir = Dir::new();
        let server = start(&dir);
        for len in [0, 1, 100, 100_000, 1 << 20] {
            let bytes = vec![3; len];
            let mut client = Client::<Sum>::with_config(&dir.run_dir, client_config());
            assert_eq!(client.call(&bytes).unwrap(), sum(&bytes));
            let mut client =
                Client::<Dynamic>::with_contract(&dir.run_dir, contract, client_config());
            let session = client.connect().unwrap();
            assert_eq!(session.raw().call(&bytes).unwrap(), sum(&bytes).to_le_bytes());
            let mut client = Client::<Sum>::with_config(&dir.run_dir, client_config());
            let batch = client.connect().unwrap().call_batch([&bytes, &vec![1]]).unwrap();
            let sums: Vec<_> = batch.map(Result::unwrap).collect();
            assert_eq!(sums, [sum(&bytes), 1]);
        }
        let other = contract.version(8);
        let mut client = Client::<Dynamic>::with_contract(&dir.run_dir, other, client_config());
        assert_eq!(client.connect().unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(client.service().as_str(), "sum");
        let other = Contract::new("some".parse().unwrap());
        let mut client = Client::<Dynamic>::with_contract(&dir.run_dir, other, client_config());
        let error = client.connect().unwrap_err();
        assert!(matches!(error, CallError::Absent { service } if service.as_str() == "some"));
        drop(server);
    }
}

#[test]
fn bytes_of_any_length_are_handled_and_lent_in_place() {
    let contract = Contract::new("back".parse().unwrap());
    let dir = Dir::new();
    let mut builder = Server::builder(&dir.run_dir);
    let handler = |_: &_, bytes: &[u8], into: &mut Vec<u8>| {
        into.extend(bytes.iter().rev());
        match bytes.first() {
            Some(0) => Err(HandlerError::new("it begins with 0")),
            Some(1) => panic!("it begins with 1"),
            _ => Ok(()),
        }
    };
    builder.serve_bytes(contract, handler).unwrap();
    let server = builder.start().unwrap();
    let mut client = Client::<Dynamic>::with_contract(&dir.run_dir, contract, client_config());
    let session = client.connect().unwrap();
    let guard = scaled(TEST_TIMEOUT);
    for len in [0_u32, 1, 5000, 3 << 20, 40 << 20, 7] {
        let bytes: Vec<u8> = (0..len).map(|at| at as u8 | 2).collect();
        let back: Vec<u8> = bytes.iter().rev().copied().collect();
        let ticket = session.raw().submit(&bytes).unwrap();
        let failed = [[0; 9], [1; 9]].map(|bytes| session.raw().submit(&bytes).unwrap());
        let (answered, answer) = session.raw().wait_reply(guard).unwrap();
        assert_eq!((answered, answer.unwrap() == back), (ticket, true), "{len}");
        let (answered, answer) = session.raw().wait_reply(guard).unwrap();
        assert_eq!(answered, failed[0]);
        assert!(answer.unwrap_err().to_string().contains("it begins with 0"));
        let (answered, answer) = session.raw().wait_reply(guard).unwrap();
        assert_eq!((answered, answer.is_err()), (failed[1], true));
        assert!(session.raw().try_reply().unwrap().is_none());
    }
    let stats = session.stats();
    assert_eq!((stats.made, stats.answered, stats.in_flight), (18, 6, 0));
    drop(server);
}

#[test]
fn bytes_of_an_attached_answer_are_lent_whole() {
    let contract = Contract::new("attached".parse().unwrap());
    let dir = Dir::new();
    let mut builder = Server::builder(&dir.run_dir);
    let handler = |_: &_, bytes: Payload| {
        Ok(Payload::build_from(0, bytes.len(), |into| into.copy_from_slice(&bytes))?)
    };
    builder.serve_dynamic(contract, handler).unwrap();
    let server = builder.start().unwrap();
    let mut client = Client::<Dynamic>::with_contract(&dir.run_dir, contract, client_config());
    let session = client.connect().unwrap();
    // The second is shorter than what is left of the first.
    for len in [100_000, 7] {
        let bytes = vec![3; len];
        assert_eq!(session.raw().call(&bytes).unwrap(), bytes);
        session.raw().submit(&bytes).unwrap();
        assert_eq!(session.raw().wait_reply(TEST_TIMEOUT).unwrap().1.unwrap(), bytes);
    }
    drop(server);
}

#[test]
fn snapshots_known_at_run_time() {
    let fixture = TestServer::open();
    let contract = Contract::new(<Numbers as bellwire::Snapshot>::NAME.parse().unwrap());
    let mut cache =
        SnapshotCache::<Dynamic>::with_contract(fixture.run_dir(), contract, client_config());
    let bytes = crate::support::services::numbers(1, 100);
    fixture.numbers.publish(&bytes).unwrap();
    until("it is read", || cache.refresh().unwrap() == Refreshed::Changed);
    assert_eq!(cache.current().unwrap().bytes(), bytes);
    drop(cache);

    let dir = Dir::new();
    let mut builder = Server::builder(&dir.run_dir);
    let publisher = builder.publish_dynamic(contract).unwrap();
    let _server = builder.start().unwrap();
    publisher.publish(&bytes).unwrap();
    let mut cache = SnapshotCache::<Numbers>::with_config(&dir.run_dir, client_config());
    until("it is read", || cache.refresh().unwrap() == Refreshed::Changed);
    assert_eq!(cache.current().unwrap().bytes(), bytes);
}

#[test]
#[should_panic(expected = "asks any server for its counters")]
fn the_version_of_counters_is_no_service() {
    let _ = Contract::new("sum".parse().unwrap()).version(u32::MAX);
}
