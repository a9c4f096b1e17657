//! Handlers that panic.

use bellwire::{CallError, Client, Executed, ServerConfig};

use crate::support::services::{AsRequested, Echo};
use crate::support::test_server::TestServer;

/// More panics than there are workers: each of them lives on.
#[test]
fn a_handler_that_panics_fails_its_call_and_its_worker_and_its_session_live() {
    for workers in [0, 1, 2] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers));
        let mut good: Client<Echo> = fixture.client();
        let mut as_requested: Client<AsRequested> = fixture.client();
        for _ in 0..5 {
            let error = as_requested.call(&AsRequested::PANIC).unwrap_err();
            assert!(matches!(error, CallError::Declined { .. }), "{error}");
            assert_eq!(error.executed(), Executed::Maybe);
            assert_eq!(
                as_requested.session().unwrap().call(&AsRequested::ANSWER).unwrap(),
                b"fine"
            );
            assert_eq!(good.call(&vec![1]).unwrap(), [1]);
        }
        drop((good, as_requested));
        let stats = fixture.close();
        assert_eq!(
            (stats.admitted, stats.answered, stats.lost),
            (2, 15, 0),
            "{workers}: {stats:?}"
        );
    }
}
