use std::io;

use nix::errno::Errno;

/// Why the harness could not do its work. [`Error::Survivor`] alone is different: it is a finding.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {doing}: {source}")]
    System { doing: &'static str, source: Errno },
    #[error("cannot {doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
    #[error("the channel to {peer} carries invalid JSON: {source}")]
    Channel { peer: &'static str, source: serde_json::Error },
    /// What the harness looks for: the survivor misbehaves towards a victim, or towards the next one.
    #[error("{0}")]
    Survivor(String),
    #[error("{0}")]
    Usage(String),
    #[error("phase {phase} was not found in its trace: {why}")]
    NoPhase { phase: &'static str, why: String },
    #[error("a worker exited early ({0}); its message is above")]
    Worker(String),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// For `map_err` on a system call.
pub(crate) fn system(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |source| Error::System { doing, source }
}

/// For `map_err` on a file or a socket.
pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { doing, source }
}
