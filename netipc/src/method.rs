//! How a service's snapshots and calls are translated. A service names its translation once; the server applies it.

use bellwire_core::wire::Status as Outcome;

use crate::{Malformed, Status};

/// The method of `cgroups-snapshot`.
pub const CGROUPS_SNAPSHOT: u16 = 2;
/// The method of `cgroups-lookup`.
pub const CGROUPS_LOOKUP: u16 = 4;
/// The method of `apps-lookup`.
pub const APPS_LOOKUP: u16 = 5;

/// How clients of netipc are served by one service.
#[derive(Clone, Copy, Debug)]
pub enum Method {
    /// With its newest snapshot.
    Snapshot(SnapshotMethod),
    /// By its handler.
    Calls(CallMethod),
}

impl Method {
    /// Returns its code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Snapshot(method) => method.code,
            Self::Calls(method) => method.code,
        }
    }
}

/// How clients of netipc ask for a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotMethod {
    /// The code of the method.
    pub code: u16,
    /// Checks the payload of a request.
    pub check: fn(&[u8]) -> Result<(), Malformed>,
    /// Translates a published snapshot of this generation; `None` if its bytes are not valid.
    pub translate: fn(&[u8], u64) -> Option<Vec<u8>>,
}

/// How clients of netipc call a service.
#[derive(Clone, Copy, Debug)]
pub struct CallMethod {
    /// The code of the method.
    pub code: u16,
    /// Whether a message may be a batch: then each of its items is exactly one request of the service.
    pub takes_batches: bool,
    /// Passes the service's requests that a payload stands for to the function, encoded.
    pub requests: fn(&[u8], &mut Each<'_>) -> Result<(), Malformed>,
    /// Appends the payload of the answer to an empty buffer.
    pub respond: fn(&Exchange<'_>, &mut Vec<u8>) -> Result<(), Status>,
}

/// What takes the service's requests, one after the other, encoded.
pub type Each<'a> = dyn FnMut(&[u8]) + 'a;

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The payload of the request.
    pub request: &'a [u8],
    /// The service's answers, in the order of the requests in it.
    pub answers: &'a [Answer<'a>],
    /// The most bytes of the payload of the answer.
    pub room: usize,
    /// What tells one run of the provider from the next: it grows.
    pub generation: u64,
}

/// What a service answered to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The bytes of the answer.
    Ok(&'a [u8]),
    /// The request was malformed.
    Malformed,
    /// The answer was too large.
    TooLarge,
    /// There is none.
    Failed,
}

impl<'a> Answer<'a> {
    /// Returns the answer that an item of a batch holds.
    pub fn of(status: Outcome, bytes: &'a [u8]) -> Self {
        match status {
            Outcome::Ok => Self::Ok(bytes),
            Outcome::Malformed => Self::Malformed,
            Outcome::TooLarge => Self::TooLarge,
            _ => Self::Failed,
        }
    }
}

/// The method of a service that adds one to a number: a request and an answer of 8 bytes, in batches, too.
pub const INCREMENT: CallMethod = CallMethod {
    code: 1,
    takes_batches: true,
    requests: |payload, each| {
        let malformed = Malformed { at: 0, len: payload.len(), why: "not a number of 8 bytes" };
        let number = u64::from_ne_bytes(payload.try_into().map_err(|_| malformed)?);
        each(&number.to_le_bytes());
        Ok(())
    },
    respond: |exchange, into| {
        let [Answer::Ok(bytes)] = exchange.answers else { return Err(Status::Internal) };
        let number = <[u8; 8]>::try_from(*bytes).map_err(|_| Status::Internal)?;
        into.extend_from_slice(&u64::from_le_bytes(number).to_ne_bytes());
        Ok(())
    },
};
