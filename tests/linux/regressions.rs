//! Faults that were found in use, and that no other test would show again: those that take a descriptor to show.

use crate::support::guard::until;
use crate::support::house::House;
use crate::support::rogue::Rogue;

/// A client that closes its socket without a Close record is gone, though its process lives: the socket stays
/// readable for ever, and the reactor polled it for ever.
#[test]
fn a_client_that_hangs_up_without_a_close_is_let_go() {
    let house = House::open();
    let rogues: Vec<_> = (0..3).map(|_| Rogue::connect(house.run_dir(), "echo").open()).collect();
    until("all are seated", || house.stats().sessions == 3);
    drop(rogues);
    until("all seats are free", || house.stats().sessions == 0);
    let stats = house.close();
    assert_eq!((stats.admitted, stats.poisoned), (3, 0));
}
