use bellwire::{
    CallError, Client, ErrorKind, Executed, Fault, Geometry, ProviderState, ServeError, Server,
    Status,
};

use crate::support::child::Process;
use crate::support::roles::parse_stats;
use crate::support::services::{AsRequested, AsRequestedBytes, AsRequestedNumber, Echo, echo};
use crate::support::test_server::{Dir, client_config, reconcile, reconcile_session};

#[test]
fn calls_cross_between_processes_and_both_ends_count_them() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    client.connect().unwrap();
    let max = Geometry::DEFAULT.max_payload();
    for len in (0..=max).step_by(509).chain([max]) {
        let request: Vec<u8> = (0..len).map(|at| (at * 31 + len) as u8).collect();
        assert!(client.call(&request).unwrap() == request, "{len} bytes");
    }
    let session = client.session().unwrap();
    assert_eq!(session.provider_pid(), Some(server.pid()));
    reconcile_session(session);
    let made = session.stats().made;
    assert_eq!(session.stats().answered, made);
    let stats = parse_stats(&server.ask("stop"));
    reconcile(&stats);
    assert_eq!((stats.admitted, stats.accepted, stats.answered), (1, made, made));
}

#[test]
fn a_handlers_error_is_its_callers_to_read_and_the_server_lives() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::<AsRequested>::with_config(&dir.run_dir, client_config());
    let error = client.call(&AsRequested::FAIL).unwrap_err();
    match &error {
        // No control characters of another process on a terminal.
        CallError::Handler { code, reason } => {
            assert_eq!((*code, &**reason), (Some(404), "out of [31m paper"));
        }
        error => panic!("{error}"),
    }
    assert_eq!(
        (error.kind(), error.fault(), error.executed()),
        (ErrorKind::Handler, Fault::Peer, Executed::Maybe)
    );
    assert_eq!(client.call(&AsRequested::ANSWER).unwrap(), b"fine");
    assert_eq!(parse_stats(&server.ask("stop")).answered, 2);
}

#[test]
fn a_malformed_request_runs_no_handler_and_a_malformed_answer_has_its_position() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::<AsRequestedBytes>::with_config(&dir.run_dir, client_config());
    let error = client.call(&b"five!".to_vec()).unwrap_err();
    assert!(matches!(error, CallError::Declined { status: Status::Malformed }), "{error}");
    assert_eq!((error.kind(), error.executed()), (ErrorKind::Malformed, Executed::No));
    let mut client = Client::<AsRequestedNumber>::with_config(&dir.run_dir, client_config());
    let error = client.call(&AsRequested::ANSWER).unwrap_err();
    let CallError::Malformed(malformed) = &error else { panic!("{error}") };
    assert_eq!((malformed.at, malformed.len), (4, 4));
    assert_eq!(error.executed(), Executed::Maybe);
    let stats = parse_stats(&server.ask("stop"));
    assert_eq!((stats.answered, stats.refused, stats.poisoned), (1, 1, 0));
}

#[test]
fn an_absent_provider_is_a_state_and_the_error_of_a_call() {
    let dir = Dir::new();
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(client.refresh(), ProviderState::Absent);
    let error = client.call(&vec![1]).unwrap_err();
    assert!(
        matches!(error, CallError::Absent { service } if service.as_str() == "echo"),
        "{error}"
    );
    assert_eq!((error.fault(), error.executed()), (Fault::Nobody, Executed::No));
}

#[test]
fn a_second_provider_of_a_name_is_refused_as_taken() {
    let dir = Dir::new();
    let mut first = Process::start("server", &dir.run_dir);
    let mut builder = Server::builder(&dir.run_dir);
    let taken = builder.serve::<Echo>(echo).unwrap_err();
    assert!(
        matches!(taken, ServeError::Taken { service } if service.as_str() == "echo"),
        "{taken}"
    );
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(client.call(&vec![1]).unwrap(), [1], "the first is not disturbed");
    first.ask("stop");
    first.kill();
    builder.serve::<Echo>(echo).unwrap();
}
