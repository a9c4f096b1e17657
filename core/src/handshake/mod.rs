//! The handshake, without I/O: HELLO, WELCOME or REFUSE, ATTACH, READY.
//!
//! ```text
//! client                                server
//!   HELLO  (0 descriptors)  ───────────▶  admit or refuse
//!          ◀─────────── WELCOME (page, lane, board, [eventfd])   or   REFUSE (reason)
//!   ATTACH (page, lane, [eventfd]) ─────▶  verify, map
//!          ◀─────────────────────── READY
//! ```
//! Every step has the one deadline of the whole handshake. Whoever drives a machine verifies and maps the
//! memory between the steps; the machines decide what may come, with how many descriptors, and when.

mod client;
mod server;

pub use client::{ClientHandshake, ClientStep};
pub use server::{Admission, Rejection, ServerHandshake, ServerStep, Terms};

use crate::wire::{ControlError, ControlKind, Refuse, SAMPLES, Versions};

/// The features that this end knows: what HELLO offers, and what of an offer WELCOME accepts.
pub const FEATURES: u64 = if crate::probes::AVAILABLE { SAMPLES } else { 0 };

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer's message cannot be parsed.
    #[error("the peer sent what is no handshake message: {0}")]
    Control(#[from] ControlError),
    /// A message of a kind that has no place at this step.
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
        /// How many came.
        found: usize,
        /// How many belong to it.
        expected: usize,
    },
    /// The server refused, and says why.
    #[error("the server refused ({:?}): {}", .0.code, .0.reason())]
    Refused(Refuse),
    /// The two ends have no protocol version in common.
    #[error("this end speaks protocol versions {}-{}, the peer {}-{}", ours.min, ours.max, theirs.min, theirs.max)]
    Incompatible {
        /// What this end speaks.
        ours: Versions,
        /// What the peer speaks.
        theirs: Versions,
    },
    /// The peer agreed to what was not offered, or named another session.
    #[error("the peer's {kind:?} does not fit what was agreed: {field}")]
    Terms {
        /// The message's kind.
        kind: ControlKind,
        /// The field that does not fit.
        field: &'static str,
    },
    /// The peer was silent for too long.
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
