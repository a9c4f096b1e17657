//! Wakes clients that wait for a board to change.

use bellwire_shm::platform;

use crate::Linux;
use crate::link::Link;
use crate::region::OwnRegion;

/// The sessions whose clients may wait for a board. The kernel keeps the list: they sleep on the board's own word.
#[derive(Debug, Default)]
pub struct Watchers(());

impl platform::Watchers<Linux> for Watchers {
    fn join(&self, _: &Link) {}

    fn wake(&self, board: &OwnRegion, offset: usize) {
        board.wake_all(offset);
    }
}
