//! What the command and the harnesses share: exit codes and failures, output for people and programs, how a long command
//! is ended, and the messages and checks of the demo and the soak.
#![forbid(unsafe_code)]

pub mod check;
pub mod exit;
pub mod message;
pub mod out;
pub mod stop;

use std::path::Path;

use exit::{Exit, Failure};

/// Creates a run dir for one command alone, mode 0700, whose name begins with `prefix`.
///
/// # Errors
/// [`Failure`]: the directory for temporary files cannot be written.
pub fn private_run_dir(prefix: &str) -> Result<tempfile::TempDir, Failure> {
    let temp = std::env::temp_dir();
    // The path of a socket has at most 107 bytes.
    let short = Path::new("/tmp");
    let parent = if temp.as_os_str().len() > 60 && short.is_dir() { short } else { &temp };
    tempfile::Builder::new().prefix(prefix).tempdir_in(parent).map_err(|error| {
        Failure::of(Exit::Failed, "cannot create a private run dir", &error)
            .next("name a writable directory in TMPDIR")
    })
}
