//! `bellwire-trace`: where the time of a Bellwire message goes.
//!
//! The commands; `bellwire-trace-core` attaches and counts. `docs/tracing.md` explains the stages.

mod args;
mod breakdown;
mod doctor;
mod error;
mod export;
mod flame;
mod hist;
mod list;
mod out;
mod record;
mod signal;
mod slow;
mod snoop;
mod symbols;
mod top;
mod tracer;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use error::Error;
use out::errln;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Command::Doctor(args) => doctor::run(args),
        Command::List(args) => list::run(args),
        Command::Hist(args) => hist::run(args),
        Command::Breakdown(args) => breakdown::run(args),
        Command::Top(args) => top::run(args),
        Command::Snoop(args) => snoop::run(args),
        Command::Record(args) => record::run(args),
        Command::Export(args) => export::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe: it has read enough.
        Err(Error::Io(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            errln!("bellwire-trace: {error}");
            error.exit_code()
        }
    }
}
