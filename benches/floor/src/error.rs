//! What can go wrong around a floor. The causes are outside this code, so each message says what to do.

use std::io;

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a floor could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {doing}: {source}; look at ulimit -n, free memory and the sandbox")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Two spinning processes would take turns by time slice.
    #[error(
        "this process may run on one CPU only and two that spin need two: allow it two (taskset -c 0,1)"
    )]
    OneCpu,
    /// The other process ended in the middle.
    #[error(
        "the peer `{role}` ended before its answer: see its own message above, or whether it was killed"
    )]
    PeerGone {
        /// What it had been started for.
        role: &'static str,
    },
    /// The other process received an unknown order.
    #[error(
        "a peer was started with {what}: start it through floor::process::spawn of the same build"
    )]
    Arguments {
        /// What was wrong.
        what: String,
    },
    /// No answer in time.
    #[error("the peer did not say that it is ready within {seconds} s: see its own message above")]
    NotReady {
        /// How long it was given.
        seconds: i64,
    },
    /// Bytes arrived that were not sent: the floor is wrong, and so is its number.
    #[error(
        "the `{role}` floor delivered other bytes than were sent: do not use its numbers, fix it"
    )]
    Corrupt {
        /// Which floor.
        role: &'static str,
    },
    /// A size that the floor cannot have.
    #[error("a floor of {size} bytes is not possible: choose 1 to {limit}")]
    Size {
        /// What was asked for.
        size: usize,
        /// The most.
        limit: usize,
    },
}

impl Error {
    /// The arguments of a role, or of something here, were wrong.
    pub fn arguments(what: impl Into<String>) -> Error {
        Error::Arguments { what: what.into() }
    }

    /// For `map_err`: the system refused `doing`.
    pub fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { doing, source: source.into() }
    }
}
