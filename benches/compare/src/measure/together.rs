//! One operation, begun by all clients at the same word.
//!
//! Clients share a processor: the work of one before and after its operation would count as time of the others. So
//! each prepares, waits for the start word, and does not report its operation until all have ended theirs.

use bellwire_floor::process::Peer;

use super::Operations;
use crate::Outcome;
use crate::clock::{self, Usage};
use crate::order::{Done, WORD};

pub(super) fn one(peer: &Peer, operations: &mut impl Operations) -> Outcome<Done> {
    operations.prepare()?;
    wait_for_word(peer)?;
    let done = timed(operations);
    wait_for_word(peer)?;
    let done = done?;
    operations.finish()?;
    Ok(done)
}

#[inline]
fn timed(operations: &mut impl Operations) -> Outcome<Done> {
    let before = Usage::of_this_process()?;
    let began = clock::now();
    let count = operations.steps(1)?;
    let ended = clock::now();
    let usage = Usage::of_this_process()?.since(before);
    let ns = ended - began;
    let took = vec![(ns, 1)];
    Ok(Done { operations: count, ns, span: (began, ended), took, usage, ..Done::default() })
}

/// Reports that this client has reached this point, and waits for all others.
fn wait_for_word(peer: &Peer) -> Outcome<()> {
    peer.send(WORD)?;
    peer.receive()?.ok_or("told to end in the middle of an operation")?;
    Ok(())
}
