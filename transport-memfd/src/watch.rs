//! Wakes clients that wait for a board to change.

use crate::link::Link;
use crate::region::OwnRegion;

/// The sessions whose clients may wait for a board. The kernel keeps the list: they sleep on the board's own word.
#[derive(Debug, Default)]
pub struct Watchers(());

impl Watchers {
    /// Registers a session's client.
    pub fn join(&self, _: &Link) {}

    /// Wakes all clients when the word at `offset` of `board` has changed: one system call, however many there are.
    pub fn wake(&self, board: &OwnRegion, offset: usize) {
        board.wake_all(offset);
    }
}
