//! The `bellwire` command: run, watch and check Bellwire services.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod call;
mod config;
mod demo;
mod doctor;
mod export;
mod get;
mod latency;
mod ls;
mod openmetrics;
mod ping;
mod program;
mod provide;
mod stat;
mod top;
mod trace;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwire_cli::{check, exit, message, out, stop};
use clap::{CommandFactory, Parser};

use crate::args::{Args, Command};
use crate::exit::{Exit, Failure};

fn main() -> ExitCode {
    let args = Args::parse();
    args.color.apply();
    match run(args) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}

fn run(args: Args) -> Result<Exit, Failure> {
    let (run_dir, named) = (args.run_dir(), args.named_run_dir());
    if args.command.uses_run_dir() {
        config::check(&run_dir)?;
    }
    config::set(args.token_file.as_deref(), args.trust.clone())?;
    match args.command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Provide(provide) => provide::run(&run_dir, &provide),
        Command::Get(get) => get::run(&run_dir, &get),
        Command::Call(call) => call::run(&run_dir, &call),
        Command::Watch(watch) => watch::run(&run_dir, &watch),
        Command::Ping(ping) => ping::run(&run_dir, &ping),
        Command::Ls(ls) => ls::run(&run_dir, &ls),
        Command::Stat(stat) => stat::run(&run_dir, &stat),
        Command::Top(top) => top::run(named.as_ref(), &top),
        Command::Export(export) => export::run(&run_dir, &export),
        Command::Doctor(doctor) => doctor::run(&run_dir, &doctor),
        Command::Trace { args } => trace::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "bellwire", &mut script);
            out::write_all(&script)?;
            Ok(Exit::Ok)
        }
        Command::Manual { dir } => {
            clap_mangen::generate_to(Args::command(), &dir).map_err(|error| {
                Failure::of(Exit::Failed, "cannot write the manual pages", &error)
                    .next("name a directory that exists and can be written")
            })?;
            Ok(Exit::Ok)
        }
        Command::Bench { args } => bench::run(&args),
        Command::DemoProvider(provider) => demo::provider::run(&run_dir, &provider),
    }
}

/// Returns the file of this program.
fn this_program() -> io::Result<PathBuf> {
    let file = std::env::current_exe()?;
    // If the file was replaced meanwhile, it still has this name.
    Ok(if file.exists() { file } else { Path::new("/proc/self/exe").to_owned() })
}
