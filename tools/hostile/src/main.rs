//! Runs hostile clients against a server in a small memory cgroup, and reports how an honest client fares meanwhile.
//!
//! Exit code 0: the server meets every requirement; 1: it violates one; 2: the attacks could not be run.

mod attacks;
mod cgroup;
mod honest;
#[path = "../../../tests/support/netipc_wire.rs"]
mod netipc_wire;
mod process;
mod report;
mod runner;
mod services;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use bellwire::RunDir;
use bellwire_hostile::wire::Target;
use clap::{Args, Parser};

use crate::attacks::{ATTACKS, Attack};
use crate::report::Format;
use crate::runner::{RunOptions, Runner};

/// Hostile clients against a server in a small memory cgroup, beside an honest client.
#[derive(Debug, Parser)]
enum Cli {
    /// List the attacks.
    List,
    /// Run attacks, one after the other.
    Run(Run),
    /// The server under attack. The runner moves this process to its cgroup, then sends a line.
    #[command(hide = true)]
    Server { run_dir: PathBuf, workers: usize, attacker_uid: u32 },
    /// The honest client.
    #[command(hide = true)]
    Honest { run_dir: PathBuf },
    /// One attack until the runner closes the standard input.
    #[command(hide = true)]
    Attack {
        run_dir: PathBuf,
        #[arg(value_parser = named)]
        attack: &'static Attack,
    },
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    options: RunOptions,
    /// Run this attack only; can be repeated.
    #[arg(long, value_name = "NAME", value_parser = named)]
    attack: Vec<&'static Attack>,
    /// Print a Markdown table.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli::Run(run) => run.execute().map_err(|error| {
            format!("{error}; this needs root, and permission to create a memory cgroup").into()
        }),
        Cli::List => {
            for Attack { name, about, .. } in &ATTACKS {
                println!("{name:<20} {about}");
            }
            Ok(true)
        }
        Cli::Server { run_dir, workers, attacker_uid } => {
            services::serve(&RunDir::new(run_dir), workers, attacker_uid).map(|()| true)
        }
        Cli::Honest { run_dir } => honest::run(&RunDir::new(run_dir)).map(|()| true),
        Cli::Attack { run_dir, attack } => {
            bellwire_process::at_end_of_input(|| std::process::exit(0));
            (attack.run)(&Target::new(run_dir));
            Ok(true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let error: Box<dyn Error> = error;
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

impl Run {
    /// Runs the attacks; false if the server violated a requirement in one of them.
    fn execute(&self) -> io::Result<bool> {
        let all: Vec<&'static Attack> = ATTACKS.iter().collect();
        let attacks = if self.attack.is_empty() { &all } else { &self.attack };
        let format = match (self.markdown, self.json) {
            (true, _) => Format::Markdown,
            (_, true) => Format::Json,
            _ => Format::Text,
        };
        let runner = Runner::new()?;
        report::header(format, &self.options);
        let mut passed = 0;
        for (at, attack) in attacks.iter().enumerate() {
            let say = |what: &str| {
                report::progress(&format!(
                    "[{}/{}] {}: {what}",
                    at + 1,
                    attacks.len(),
                    attack.name
                ));
            };
            let outcome = runner.run(attack, &self.options, say)?;
            report::progress("");
            report::row(&outcome, format);
            if let Some(first) = outcome.honest.first.as_ref().filter(|_| format == Format::Text) {
                println!("  {first}");
            }
            passed += usize::from(outcome.faults.is_empty());
        }
        if format == Format::Text {
            println!("summary: {} attacks, {passed} held", attacks.len());
        }
        Ok(passed == attacks.len())
    }
}

fn named(name: &str) -> Result<&'static Attack, String> {
    attacks::named(name).ok_or_else(|| "there is no attack of that name: see `list`".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::attacks::{ATTACKS, named};
    use crate::runner::bytes;

    #[test]
    fn a_size_has_a_unit_or_none() {
        assert_eq!((bytes("64M"), bytes("4096")), (Ok(64 << 20), Ok(4096)));
        assert!(bytes("64G").is_err() && bytes("").is_err() && bytes("99999999999999M").is_err());
    }

    #[test]
    fn each_attack_is_found_by_its_name() {
        for attack in &ATTACKS {
            assert!(named(attack.name).is_some_and(|found| std::ptr::eq(found, attack)));
        }
    }
}
