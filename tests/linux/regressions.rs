//! Faults that were found in use, and that no other test would show again: those that take a descriptor to show.

use crate::support::guard::until;
use crate::support::rogue::Rogue;
use crate::support::test_server::TestServer;

/// A client that closes its socket without a Close record is gone, though its process lives: the socket stays
/// readable for ever, and the reactor polled it for ever.
#[test]
fn a_client_that_hangs_up_without_a_close_is_let_go() {
    let fixture = TestServer::open();
    let rogues: Vec<_> = (0..3).map(|_| Rogue::connect(fixture.run_dir(), "echo").open()).collect();
    until("all are seated", || fixture.stats().sessions == 3);
    drop(rogues);
    until("all seats are free", || fixture.stats().sessions == 0);
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.poisoned), (3, 0));
}
