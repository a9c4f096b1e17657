//! Programs of other packages, which have more build requirements than this command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use bellwire_process as process;

use crate::exit::{Exit, Failure};

/// Such a program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// What it does, on Linux only.
    pub(crate) does: &'static str,
    /// How to build it.
    pub(crate) build: &'static str,
}

impl Program {
    /// Replaces this process by the program; returns only on failure, with the reason.
    pub(crate) fn exec_program(&self, args: &[OsString]) -> Failure {
        let Self { name, does, build } = *self;
        let beside = self.beside_this_program().filter(|path| path.is_file());
        let error = process::exec(Command::new(beside.unwrap_or_else(|| name.into())).args(args));
        match error.kind() {
            ErrorKind::Unsupported => Failure::new(Exit::Failed, format!("{does} on Linux only")),
            ErrorKind::NotFound => Failure::new(Exit::Failed, format!("{name} is not installed"))
                .next(format!("build it by: {build}")),
            _ => Failure::of(Exit::Failed, &format!("cannot run {name}"), &error),
        }
    }

    /// Returns what the program says of its version; `None` if it is not installed.
    pub(crate) fn version(&self) -> Option<String> {
        let beside = self.beside_this_program().filter(|path| path.is_file());
        let output = Command::new(beside.unwrap_or_else(|| self.name.into()))
            .arg("--version")
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn beside_this_program(&self) -> Option<PathBuf> {
        Some(std::env::current_exe().ok()?.parent()?.join(self.name))
    }
}
