//! How the program ends.

use std::io::Write;
use std::process::ExitCode;

/// What a script learns from the exit status. `--help` lists these. 2 is clap's, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Ok = 0,
    /// Something failed, or an answer was wrong.
    Failed = 1,
    /// A wrong command line.
    Usage = 2,
    /// Measured, but a row is not stable.
    Unstable = 11,
    /// A comparison found something slower.
    Slower = 12,
}

/// Why the program ends without having done its job.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    what: String,
    next: Option<String>,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, what: what.into(), next: None }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(what) }
    }

    /// With what to do about it.
    #[must_use]
    pub(crate) fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// Tells it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "error: {}", self.what);
        if let Some(next) = &self.next {
            let _ = writeln!(stderr, " next: {next}");
        }
        self.exit.into()
    }
}
