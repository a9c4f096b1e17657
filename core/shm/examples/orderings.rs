//! The functions whose orderings matter, over the memory that the transports use. `ci/litmus` compiles them for aarch64 and
//! compares their instructions with those of its litmus tests.

use bellwire_core::broadcast::{Received, Receiver, Transmitter};
use bellwire_core::lane::{Armed, Lanes, Plain, Wake};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{BoardState, BoardWord, Header, Kind};
use bellwire_core::{OwnMemory, PeerFault, PeerMemory, Word};
use bellwire_shm::{OwnEnd, OwnRange, PeerEnd, PeerRange, ReceiveRegion, TransmitRegion};

type Own<'a> = OwnEnd<&'a OwnRange>;
type Peer<'a> = PeerEnd<&'a PeerRange>;
type OwnRing<'a> = TransmitRegion<&'a OwnRange>;
type PeerRing<'a> = ReceiveRegion<&'a PeerRange>;

/// Writes a record and publishes it.
#[inline(never)]
pub fn publish(lanes: &mut Lanes, own: &Own<'_>, peer: &Peer<'_>, header: Header) -> Wake {
    let _ = lanes.push(own, peer, header, &[]);
    lanes.commit(own, peer)
}

/// Asks for a ring and looks again.
///
/// # Errors
/// The peer's words are invalid.
#[inline(never)]
pub fn arm(lanes: &mut Lanes, own: &Own<'_>, peer: &Peer<'_>) -> Result<(Armed, Wake), PeerFault> {
    lanes.arm(own, peer, true)
}

/// Looks for a record and copies its header.
#[inline(never)]
pub fn receive(lanes: &mut Lanes, peer: &Peer<'_>) -> Option<Plain> {
    lanes.peek_plain(peer, Kind::Request)
}

/// Copies a record's payload and returns its space.
#[inline(never)]
pub fn take(lanes: &mut Lanes, own: &Own<'_>, peer: &Peer<'_>, plain: Plain, into: &mut [u8; 8]) {
    lanes.take_plain(own, peer, plain, into);
}

/// Loads the peer's head and then overwrites what it released.
#[inline(never)]
pub fn reuse(own: &Own<'_>, peer: &Peer<'_>, bytes: &[u8; 8]) -> u64 {
    let head = peer.load(Word::Head, Ordering::Acquire);
    own.write(0, bytes);
    head
}

/// Ends a board: the state, then the generation that watchers wait for.
#[inline(never)]
pub fn stop(board: &OwnRange, generation: u64) {
    let state = BoardState::Stopped as u64;
    board.store_u64(BoardWord::State.offset(), state, Ordering::Release);
    board.store_u64(BoardWord::Generation.offset(), generation, Ordering::Release);
}

/// Loads a board's generation and then its state.
#[inline(never)]
pub fn watch(board: &PeerRange) -> (u64, u64) {
    let generation = board.load_u64(BoardWord::Generation.offset(), Ordering::Acquire);
    (generation, board.load_u64(BoardWord::State.offset(), Ordering::Acquire))
}

/// Broadcasts a record.
#[inline(never)]
pub fn broadcast(transmitter: &mut Transmitter, own: &OwnRing<'_>, sequence: u64) -> bool {
    transmitter.send(own, sequence, &[1; 8]).is_ok()
}

/// Copies the next record of a broadcast ring, and looks whether it was overwritten meanwhile.
///
/// # Errors
/// The peer's words are invalid.
#[inline(never)]
pub fn next(
    receiver: &mut Receiver,
    peer: &PeerRing<'_>,
    into: &mut Vec<u8>,
) -> Result<Received, PeerFault> {
    receiver.try_next(peer, into)
}
