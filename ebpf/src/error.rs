use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit status for "cannot run here", as in the tests of automake and bcc.
const SKIPPED: u8 = 77;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing can be traced, or nothing was seen.
    #[error(transparent)]
    Trace(#[from] bellwire_trace_core::Error),
    /// Checks of `doctor` failed, as its report shows.
    #[error("tracing is not possible here: {failed} of the checks above failed")]
    ChecksFailed { failed: usize },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// The address cannot be listened on.
    #[error("cannot listen at {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// An error of output or signals.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// JSON that cannot be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// Returns the exit status.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Trace(error) if error.is_unsupported() => ExitCode::from(SKIPPED),
            Self::ChecksFailed { .. } => ExitCode::from(SKIPPED),
            _ => ExitCode::FAILURE,
        }
    }
}
