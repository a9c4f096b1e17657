//! One test for each fault that was found in use, or by reading, and that no other test would show again.

use bellwire::{CallError, Client};

use crate::support::services::Echo;
use crate::support::test_server::{TestServer, client_config, reconcile_session};

/// A session's socket is closed by the reaper, a moment after the session: in between it is readable for ever.
#[test]
fn closed_sessions_do_not_keep_the_reactor_awake() {
    const SESSIONS: u64 = 300;
    let fixture = TestServer::open();
    for _ in 0..SESSIONS {
        let mut client = fixture.client::<Echo>();
        client.call(&vec![1]).unwrap();
    }
    let stats = fixture.close();
    assert_eq!(stats.admitted, SESSIONS);
    // A connection, a hello, an attach, a call and a Close record: five, and some for threads that meet.
    assert!(stats.parks < 12 * SESSIONS, "{stats:?}");
}

/// A caller that takes answers between two full lanes sends nothing, so no ring woke a provider that waited for room.
#[test]
fn a_caller_that_only_takes_answers_rings_a_provider_that_waits_for_room() {
    const REQUESTS: u64 = 50_000;
    let fixture = TestServer::open();
    let mut client: Client<Echo> = fixture.client_with(client_config());
    let session = client.session().unwrap();
    let (mut sent, mut answered) = (0, 0);
    while answered < REQUESTS {
        while sent < REQUESTS {
            match session.submit(&vec![7; 100]) {
                Ok(_) => sent += 1,
                Err(CallError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some((_, answer)) = session.try_reply().unwrap() {
            assert_eq!(answer.unwrap(), vec![7; 100]);
            answered += 1;
        }
    }
    reconcile_session(session);
    drop(client);
    assert_eq!(fixture.close().answered, REQUESTS);
}
