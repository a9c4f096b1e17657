use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bellwire::{RunDir, User};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::call::args::Call;
use crate::demo::args::{Demo, DemoProvider};
use crate::doctor::Doctor;
use crate::export::Export;
use crate::get::args::Get;
use crate::ls::Ls;
use crate::out::{Color, Format};
use crate::ping::args::Ping;
use crate::provide::args::Provide;
use crate::stat::args::Stat;
use crate::top::args::Top;
use crate::watch::Watch;

/// Run, watch and check Bellwire services on this machine.
///
/// Bellwire is shared-memory IPC between the processes of one machine. Clients find providers in a run dir.
#[derive(Debug, Parser)]
#[command(name = "bellwire", version, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
#[command(propagate_version = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The directory in which providers listen and clients look for them [env: BELLWIRE_RUN_DIR] [default: bellwire in
    /// XDG_RUNTIME_DIR, or /run/bellwire if that is not set; on Windows in LOCALAPPDATA]
    #[arg(long, global = true, value_name = "DIR")]
    run_dir: Option<PathBuf>,

    /// A file with the token of the providers, 32 hexadecimal digits; overrides BELLWIRE_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A user, by name or number, whose providers are trusted in addition to this user's and root's; can be repeated
    #[arg(long, global = true, value_name = "USER", value_parser = user)]
    pub(crate) trust: Vec<User>,

    /// When to use colors; NO_COLOR is respected
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    #[arg(hide_possible_values = true, help = "When to use colors: auto, always or never")]
    pub(crate) color: Color,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    success; also if the reader of the output closed the pipe
  1    something failed, or a check failed
  2    the command line is wrong
  3    no process provides the service, or there is no run dir
  4    the provider refused the session, or supports no common protocol version
  5    timeout
  6    the provider exited or violated the protocol
  7    another process provides the service already
  8    get: a requested item is not known, or is too large for a message
  9    get: a requested item is not known yet; try again later
  10   provide: this system does not have what the service reports
  130  SIGINT (Ctrl-C) ended the command early; 143: SIGTERM did

Examples:
  bellwire demo                       run a demo between two processes
  bellwire doctor                     check whether Bellwire works on this machine
  bellwire provide cgroups            serve this machine's cgroups...
  bellwire get cgroups                ...and print them in another process
  bellwire ls                         list the services and their providers
  bellwire stat                       print the counters of each provider
  bellwire top                        show all sessions of this machine, live";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Provide(Provide),
    Get(Get),
    Watch(Watch),
    Call(Call),
    Ping(Ping),
    Ls(Ls),
    Stat(Stat),
    Top(Top),
    Export(Export),
    Doctor(Doctor),
    /// Run benchmarks between real processes; needs bellwire-bench to be installed
    #[command(disable_help_flag = true)]
    Bench {
        /// The benchmark and its options; see `bellwire bench --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Show where the time of messages goes in running processes; needs bellwire-trace to be installed
    #[command(disable_help_flag = true)]
    Trace {
        /// The command of bellwire-trace and its options; see `bellwire trace help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  bellwire completions bash > /etc/bash_completion.d/bellwire
  bellwire completions zsh > ~/.zfunc/_bellwire")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command into a directory
    #[command(hide = true)]
    Manual {
        /// The directory, which exists
        dir: PathBuf,
    },
    /// The provider process of the demo
    #[command(hide = true)]
    DemoProvider(DemoProvider),
}

/// What can be provided and printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// This machine's cgroups: the service cgroups-snapshot
    Cgroups,
    /// Information about a cgroup by its path: the service cgroups-lookup
    CgroupsLookup,
    /// Information about a process by its pid: the service apps-lookup
    Apps,
}

/// In which form a command prints.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output<F: ValueEnum + Default + Send + Sync + 'static = Format> {
    /// The output format; JSON is one object per line
    #[arg(
        long,
        short,
        visible_alias = "format",
        short_alias = 'f',
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    output: F,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl<F: ValueEnum + Default + Send + Sync + From<Format>> Output<F> {
    /// Returns the format.
    pub(crate) fn format(self) -> F {
        if self.json { Format::Json.into() } else { self.output }
    }
}

impl Output {
    /// Returns whether a program reads it.
    pub(crate) fn is_json(self) -> bool {
        self.format() == Format::Json
    }
}

impl Command {
    /// Returns whether it looks for providers in the run dir, or provides there.
    pub(crate) fn uses_run_dir(&self) -> bool {
        use Command as C;
        match self {
            C::Provide(_)
            | C::Get(_)
            | C::Watch(_)
            | C::Call(_)
            | C::Ping(_)
            | C::Ls(_)
            | C::Stat(_)
            | C::Export(_) => true,
            C::Demo(_)
            | C::Top(_)
            | C::Doctor(_)
            | C::Bench { .. }
            | C::Trace { .. }
            | C::Completions { .. }
            | C::Manual { .. }
            | C::DemoProvider(_) => false,
        }
    }
}

impl Args {
    /// Exits the program as for a wrong command line.
    pub(crate) fn refuse(why: impl std::fmt::Display) -> ! {
        Self::command().error(clap::error::ErrorKind::ValueValidation, why).exit()
    }

    /// Returns the run dir, if the command line names one.
    pub(crate) fn named_run_dir(&self) -> Option<RunDir> {
        self.run_dir.as_ref().map(RunDir::new)
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        let is_named = std::env::var_os(RunDir::VARIABLE).is_some_and(|path| !path.is_empty());
        match &self.run_dir {
            Some(path) => RunDir::new(path),
            None if self.command.speaks_netipc() && !is_named => RunDir::of_netdata(),
            None => RunDir::from_environment(),
        }
    }
}

impl Command {
    fn speaks_netipc(&self) -> bool {
        matches!(self, Self::Provide(Provide { netipc: true, .. }))
    }
}

/// Parses `250ms`, `2s` or `1m 30s`; a number without a unit is in seconds, as in ping(8).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 250ms, 2s or 1m"))
}

/// Parses a user, by its number or its name.
pub(crate) fn user(text: &str) -> Result<User, String> {
    let number = text.parse().ok();
    number
        .or_else(|| bellwire_doctor::user_named(text))
        .ok_or_else(|| format!("there is no user {text}"))
}

pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than 0".into()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert!(duration("-1").is_err());
        assert!(duration("soon").unwrap_err().contains("250ms"));
        assert!(positive_duration("0s").is_err());
    }
}
