//! The handshake, without I/O: HELLO, WELCOME or REFUSE, ATTACH, READY.
//!
//! ```text
//! client                                server
//!   HELLO  (0 descriptors)  ───────────▶  admit or refuse
//!          ◀─────────── WELCOME (page, lane, board, [eventfd])   or   REFUSE (reason)
//!   ATTACH (page, lane, [eventfd]) ─────▶  verify, map
//!          ◀─────────────────────── READY
//! ```
//! All steps share one deadline. The caller verifies and maps the memory between the steps; the state machines decide
//! which messages are allowed, with how many descriptors, and when.

mod client;
mod server;

pub use client::{ClientHandshake, ClientStep};
pub use server::{Admission, Rejection, ServerHandshake, ServerStep, Terms};

use crate::wire::{ControlError, ControlKind, Refuse, Versions};

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer's message cannot be parsed.
    #[error("the peer sent what is no handshake message: {0}")]
    Control(#[from] ControlError),
    /// A message of a kind that is not allowed at this step.
    #[error("the peer sent {kind:?} where it has no place")]
    Unexpected {
        /// Its kind.
        kind: ControlKind,
    },
    /// A message with too few or too many descriptors.
    #[error("the peer sent {found} descriptors with {kind:?} where {expected} belong")]
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
