//! The handshake, without I/O: HELLO, WELCOME or REFUSE, JOIN, READY.
//!
//! ```text
//! client                                server
//!   HELLO  (0 descriptors)  ───────────▶  admit or refuse
//!          ◀─────────── WELCOME (page, lane, board, [eventfd])   or   REFUSE (reason)
//!   JOIN (page, lane, [eventfd]) ───────▶  verify, map
//!          ◀─────────────────────── READY
//! ```
//! All steps share one deadline. The caller verifies and maps the memory between the steps; the state machines decide
//! which messages are allowed, with how many descriptors, and when.

mod client;
mod server;

pub use client::{ClientHandshake, ClientStep};
pub use server::{Admission, Rejection, ServerHandshake, ServerStep, SessionTerms};

use crate::wire::{ControlError, ControlKind, Refuse, Versions};

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer's message cannot be parsed.
    #[error("the peer sent an invalid handshake message: {0}")]
    Control(#[from] ControlError),
    /// A message of a kind that is not allowed at this step.
    #[error("the peer sent an unexpected {kind:?}")]
    Unexpected {
        /// Its kind.
        kind: ControlKind,
    },
    /// A message with too few or too many descriptors.
    #[error("the peer sent {found} descriptors with {kind:?}, expected {expected}")]
    Descriptors {
        /// The message's kind.
        kind: ControlKind,
        /// The number received.
        found: usize,
        /// The number expected.
        expected: usize,
    },
    /// The server refused, with a reason.
    #[error("the server refused ({:?}): {}", .0.code, .0.reason())]
    Refused(Refuse),
    /// The two ends have no protocol version in common.
    #[error("this end speaks protocol versions {}-{}, the peer {}-{}", ours.min, ours.max, theirs.min, theirs.max)]
    Incompatible {
        /// The versions that this end speaks.
        ours: Versions,
        /// The versions that the peer speaks.
        theirs: Versions,
    },
    /// The two ends know the service's types differently.
    #[error(
        "the service's types differ: their fingerprint is {ours:016x} here and {theirs:016x} at the peer: build both from one version of the service"
    )]
    Schema {
        /// The fingerprint of this end.
        ours: u64,
        /// That of the peer.
        theirs: u64,
    },
    /// The peer accepted something that was not offered, or named another session.
    #[error("the peer's {kind:?} does not fit what was agreed: {field}")]
    Terms {
        /// The message's kind.
        kind: ControlKind,
        /// The inconsistent field.
        field: &'static str,
    },
    /// The peer did not answer in time.
    #[error("the peer did not finish the handshake in time")]
    Deadline,
}

fn descriptors(kind: ControlKind, found: usize, expected: usize) -> Result<(), HandshakeError> {
    if found == expected {
        Ok(())
    } else {
        Err(HandshakeError::Descriptors { kind, found, expected })
    }
}

/// Returns an error if both ends have a fingerprint of the service's types and they differ.
fn differs(ours: u64, theirs: u64) -> Option<HandshakeError> {
    let are_known = ours != 0 && theirs != 0;
    (are_known && ours != theirs).then_some(HandshakeError::Schema { ours, theirs })
}
