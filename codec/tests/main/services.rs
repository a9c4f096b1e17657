//! Messages by derive through real sessions: single, in batches, and between ends that differ.

use bellwire::{CallError, Client, ErrorKind, RunDir, Server};
use bellwire_codec::Message;

use crate::fixed::{Counters, Disk, State, counters, disk};

#[derive(bellwire::Service)]
#[service(name = "counters", request = Counters, response = Counters, idempotent)]
struct Batched;

#[derive(bellwire::Service)]
#[service(name = "disk", request = u32, response = Disk)]
struct Single;

#[test]
fn structs_go_alone_and_in_batches_and_a_malformed_item_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    builder
        .serve_batches::<Batched>(|_, requests, answers| {
            answers.extend(
                requests
                    .iter()
                    .map(|request| Counters { load: request.load * 2.0, ..request.clone() }),
            );
        })
        .unwrap();
    builder.serve::<Single>(|_, reads| Ok(Disk { reads: reads.into(), ..disk() })).unwrap();
    let server = builder.start().unwrap();
    let many: Vec<Counters> =
        (0..1_000).map(|load| Counters { load: load as f32, ..counters() }).collect();
    let mut client = Client::<Batched>::new(&run_dir);
    let session = client.connect().unwrap();
    let mut answers = Vec::new();
    session.call_batch(&many).unwrap().append_to(&mut answers).unwrap();
    let expected = many.iter().map(|one| Counters { load: one.load * 2.0, ..one.clone() });
    assert!(answers.into_iter().eq(expected));
    let mut wrong = Vec::new();
    counters().encode(&mut wrong);
    wrong[2] = 99;
    let error = session.raw().call(&wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("VERSION"), "{error}");
    let answer = Client::<Single>::new(&run_dir).call(&9).unwrap();
    assert_eq!(answer, Disk { reads: 9, ..disk() });
    assert_eq!(counters().state, State::NotReady);
    drop(client);
    server.stop();
}

#[test]
fn types_that_differ_under_one_version_open_no_session() {
    #[derive(bellwire::Service)]
    #[service(name = "same", request = u64, response = u64)]
    struct Number;
    #[derive(bellwire::Service)]
    #[service(name = "same", request = [u8; 8], response = u64)]
    struct Array;

    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    builder.serve::<Number>(|_, number| Ok(number)).unwrap();
    let server = builder.start().unwrap();
    let error = Client::<Array>::new(&run_dir).call(&[0; 8]).unwrap_err();
    assert!(matches!(error, CallError::Refused { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert_eq!(Client::<Number>::new(&run_dir).call(&3).unwrap(), 3);
    server.stop();
}
