use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit status for "cannot run here", as in the tests of automake and bcc.
const SKIPPED: u8 = 77;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel refused an operation.
    #[error("cannot {what}: {source}; `bellwire-trace doctor` says what is missing")]
    Kernel { what: &'static str, source: libbpf_rs::Error },
    /// No process, or none of the requested ones, uses the library.
    #[error(
        "no process{} can be traced: none has the probes of Bellwire, or /proc does not show it",
        .pid.map_or_else(String::new, |pid| format!(" {pid}"))
    )]
    NoTarget { pid: Option<u32> },
    /// Checks of `doctor` failed, as its report shows.
    #[error("tracing is not possible here: {failed} of the checks above failed")]
    ChecksFailed { failed: usize },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
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
            Self::Kernel { source, .. } if is_refusal(source) => ExitCode::from(SKIPPED),
            Self::ChecksFailed { .. } => ExitCode::from(SKIPPED),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Returns whether the kernel lacks something or does not permit it.
fn is_refusal(error: &libbpf_rs::Error) -> bool {
    use libbpf_rs::ErrorKind::{NotFound, PermissionDenied, Unsupported};
    matches!(error.kind(), NotFound | PermissionDenied | Unsupported)
}
