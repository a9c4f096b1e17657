//! What both ends count, and that they count the same.

mod incidents;
#[cfg(feature = "log")]
mod log;
mod reconcile;
mod report;

use bellwire::{ServerStats, Service, Session, SessionStats};

use crate::support::guard::until;
use crate::support::test_server::TestServer;

/// Waits until no answer to this session is pending and the client has taken everything; the counters of both then
/// agree to the last request and byte.
#[track_caller]
fn agree<S: Service>(
    fixture: &TestServer,
    session: &mut Session<S>,
) -> (SessionStats, ServerStats) {
    until("both ends are at rest", || {
        // Abandoned answers are taken off the lane all the same.
        assert!(session.try_reply().unwrap().is_none(), "an answer was not taken");
        // A sleeping reactor has published all its counters.
        let (here, there) = (session.stats(), fixture.service::<S>());
        there.accepted == here.made
            && there.in_flight() == 0
            && there.bytes_received == here.requests.bytes
            && there.bytes_sent == here.answers.bytes
    });
    let (here, there) = (session.stats(), fixture.service::<S>());
    assert_eq!(here.made, here.answered + here.refused + here.failed + here.in_flight, "{here:?}");
    assert_eq!(there.accepted, there.answered + there.refused + there.lost, "{there:?}");
    assert_eq!(
        there.answered + there.refused,
        here.answered + here.refused + here.errors + here.dropped + here.in_flight,
        "{here:?} {there:?}"
    );
    assert!(there.errors >= here.errors && there.refused >= here.refused, "{here:?} {there:?}");
    (here, there)
}
