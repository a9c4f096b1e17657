//! Exit codes, and failures with advice.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use bellwire::{CallError, ConnectError, ErrorKind};
pub use bellwire_doctor::chain;

/// The exit status, by which a script learns the result. `--help` lists those of `bellwire`, and that of
/// `bellwire bench` two more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Something failed, or a check did not hold.
    Failed = 1,
    /// The command line is wrong; clap's, too.
    Usage = 2,
    /// No process provides the service.
    Absent = 3,
    /// The provider refused, or is incompatible.
    Refused = 4,
    /// The time limit was reached.
    Deadline = 5,
    /// The provider went away or violated the protocol.
    Provider = 6,
    /// Another process provides the service already.
    Taken = 7,
    /// Something that was asked for is not known, and another try will not help.
    Unknown = 8,
    /// Something that was asked for is not known yet; everything else is known.
    RetryLater = 9,
    /// This system lacks what the service reports on.
    Unavailable = 10,
    /// `bellwire bench`: measured, but a row is not stable.
    Unstable = 11,
    /// `bellwire bench compare`: something is slower.
    Slower = 12,
    /// SIGINT ended it before it was done.
    Interrupted = 130,
    /// SIGTERM ended it before it was done.
    Terminated = 143,
}

/// Why a command ends without having done its job.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    /// Empty if there is nobody to report to.
    what: String,
    next: Option<String>,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Absent => Self::Absent,
            ErrorKind::Refused | ErrorKind::Incompatible => Self::Refused,
            ErrorKind::Deadline => Self::Deadline,
            ErrorKind::PeerGone
            | ErrorKind::ProtocolViolation
            | ErrorKind::Handler
            | ErrorKind::Malformed
            | ErrorKind::Stopping => Self::Provider,
            ErrorKind::TooLarge
            | ErrorKind::WouldBlock
            | ErrorKind::Cancelled
            | ErrorKind::System
            | ErrorKind::Stalled
            | ErrorKind::Forked => Self::Failed,
            // The enumeration may grow: name new kinds above.
            _ => Self::Failed,
        }
    }
}

/// Returns advice for a failed session or call; `None` if the error contains it.
pub const fn hint(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Deadline => Some(
            "see with `bellwire ls` which process it is, and with `bellwire top` whether it is stopped or busy; or wait \
             longer with --timeout 10s",
        ),
        ErrorKind::Refused => {
            Some("name its user with --trust USER if you trust it; `bellwire ls` shows who that is")
        }
        ErrorKind::Incompatible => Some("upgrade the older of the two"),
        ErrorKind::PeerGone => Some("try again: `bellwire ls` shows whether another one runs"),
        ErrorKind::ProtocolViolation | ErrorKind::Malformed => {
            Some("the provider and this command differ: upgrade the older of the two")
        }
        ErrorKind::System => Some("`bellwire doctor` shows what this machine lacks"),
        _ => None,
    }
}

impl Failure {
    /// Creates the failure of a session or a call, with advice.
    pub fn of_kind(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { next: hint(kind).map(str::to_owned), ..Self::new(kind.into(), what) }
    }

    /// Creates a failure without advice.
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), next: None }
    }

    /// Adds advice.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// Creates a failure from an error, with all of its causes.
    pub fn of(exit: Exit, doing: &str, error: &dyn Error) -> Self {
        Self::new(exit, format!("{doing}: {}", chain(error)))
    }

    /// Reports the failure on stderr.
    pub fn report(&self) -> ExitCode {
        if !self.what.is_empty() {
            let (red, cyan) = (AnsiColor::Red.on_default().bold(), AnsiColor::Cyan.on_default());
            let mut stderr = anstream::stderr().lock();
            let _ = labelled(&mut stderr, red, "error", &self.what);
            if let Some(next) = &self.next {
                let _ = labelled(&mut stderr, cyan, " next", next);
            }
        }
        self.exit.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

fn labelled(to: &mut impl Write, style: Style, label: &str, text: &str) -> io::Result<()> {
    writeln!(to, "{style}{label}{style:#}: {text}")
}

impl From<io::Error> for Failure {
    /// A reader of our output may stop reading: that is not a failure, and there is nobody to report to.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Ok, "");
        }
        Self::of(Exit::Failed, "cannot write the output", &error)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            // The provider's own message explains it.
            CallError::Refused { .. } => Self::new(error.kind().into(), chain(&error)),
            error => Self::of_kind(error.kind(), chain(&error)),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::from(&error)
    }
}

impl From<&ConnectError> for Failure {
    fn from(error: &ConnectError) -> Self {
        match error {
            // The provider's own message explains it.
            ConnectError::Refused { .. } => Self::new(error.kind().into(), chain(error)),
            error => Self::of_kind(error.kind(), chain(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Ok, ""));
        assert_eq!(Failure::from(io::Error::other("disk full")).exit, Exit::Failed);
    }

    #[test]
    fn the_advice_fits_the_failure() {
        let next = |error: CallError| Failure::from(error).next.unwrap_or_default();
        let executed = bellwire::Executed::No;
        let late = next(CallError::Deadline { executed });
        assert!(late.contains("stopped or busy") && !late.contains("--trust"), "{late}");
        let system = ConnectError::System { doing: "connect", source: io::Error::other("full") };
        assert!(Failure::from(&system).next.unwrap_or_default().contains("bellwire doctor"));
        let impostor = ConnectError::Impostor { source: "it is nobody's".into() };
        assert!(Failure::from(&impostor).next.unwrap_or_default().contains("--trust"));
    }

    #[test]
    fn each_kind_of_failure_has_its_exit_status() {
        let exits = [
            (ErrorKind::Absent, Exit::Absent),
            (ErrorKind::Refused, Exit::Refused),
            (ErrorKind::Incompatible, Exit::Refused),
            (ErrorKind::TooLarge, Exit::Failed),
            (ErrorKind::WouldBlock, Exit::Failed),
            (ErrorKind::Deadline, Exit::Deadline),
            (ErrorKind::Cancelled, Exit::Failed),
            (ErrorKind::PeerGone, Exit::Provider),
            (ErrorKind::ProtocolViolation, Exit::Provider),
            (ErrorKind::Handler, Exit::Provider),
            (ErrorKind::Malformed, Exit::Provider),
            (ErrorKind::System, Exit::Failed),
            (ErrorKind::Stopping, Exit::Provider),
            (ErrorKind::Stalled, Exit::Failed),
            (ErrorKind::Forked, Exit::Failed),
        ];
        for (code, (kind, exit)) in (1..).zip(exits) {
            assert_eq!((kind.code(), Exit::from(kind)), (code, exit), "{kind:?}");
        }
    }
}
