use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a check could not be made. A check that found a fault is not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("no Bellwire checkout at or above {}: run this inside one", from.display())]
    NoRoot { from: PathBuf },
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot run {program}: {source}; is it installed, executable, and on PATH?")]
    Spawn { program: String, source: io::Error },
    #[error("cannot wait for {program}: {source}")]
    Wait { program: String, source: io::Error },
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
    #[error(
        "no ordering and no fence in {}: the scanner looks in the wrong place, or has a fault",
        dir.display()
    )]
    NothingToWeaken { dir: PathBuf },
    #[error("{} is not Rust: {what}", path.display())]
    NotRust { path: PathBuf, what: String },
    #[error("no mutant matches {filters:?}: see `cargo xtask mutants --list`")]
    NoMatch { filters: Vec<String> },
    #[error(
        "{package} has no tests, so nothing can notice a mutant: write them, then run this again"
    )]
    NoTests { package: String },
    #[error(
        "the code does not build with its mutants; where `ci/loom` passes, a mutation is at fault:\n{log}"
    )]
    Baseline { log: String },
    #[error(
        "{test} fails before anything is weakened: a mutant would prove nothing; see `ci/loom`\n{log}"
    )]
    BaselineTest { test: String, log: String },
    #[error(
        "the harness that kills does not build; `cargo build -p bellwire-kill` shows it too:\n{log}"
    )]
    Harness { log: String },
    #[error("no fuzz target is called {name:?}: there are {known}")]
    NoTarget { name: String, known: String },
    #[error("the fuzz targets do not build: the reason is above; libFuzzer needs g++")]
    Targets,
    #[error("cannot inject {fault:?}: {file} changed; say where it goes now in tools/xtask/src")]
    Fault { fault: &'static str, file: &'static str },
    #[error("there are no results in {}: run `cargo xtask test test loom` first", dir.display())]
    NothingRan { dir: PathBuf },
    #[error("{}: {what}", path.display())]
    Budget { path: PathBuf, what: String },
    #[error("{package} does not build; the reason is above")]
    BudgetBuild { package: &'static str },
    #[error("callgrind ended with {status}; it said:\n{log}")]
    Counts { status: ExitStatus, log: String },
    #[error("`cargo run -p bellwire-ratios gate` ended with {status}; the reason is above")]
    BudgetBench { status: ExitStatus },
    #[error("herd7 does not understand this test:\n{text}\nit said:\n{log}")]
    Herd { text: String, log: String },
    #[error("{}: {what}", path.display())]
    Figures { path: PathBuf, what: String },
    #[error("a worker ended early; the message above says why")]
    Worker,
}

impl Error {
    /// For `map_err` on a file operation.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    /// For `map_err` on the start of a program.
    pub(crate) fn spawn(program: impl AsRef<OsStr>) -> impl FnOnce(io::Error) -> Self {
        let program = program.as_ref().to_string_lossy().into_owned();
        move |source| Self::Spawn { program, source }
    }

    /// For `map_err` on waiting for one.
    pub(crate) fn wait(program: impl AsRef<OsStr>) -> impl FnOnce(io::Error) -> Self {
        let program = program.as_ref().to_string_lossy().into_owned();
        move |source| Self::Wait { program, source }
    }
}
