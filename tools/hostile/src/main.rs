//! Runs hostile clients against a server in a small memory cgroup, and reports how an honest client fares meanwhile.
//!
//! Exit code 0: the server meets every requirement; 1: it violates one; 2: the attacks could not be run.

mod cgroup;
mod process;
mod report;
mod runner;

use std::io;
use std::process::ExitCode;

use bellwire_hostile::attacks::{self, ATTACKS, Attack};
use clap::{Args, Parser};

use crate::report::Format;
use crate::runner::{RunOptions, Runner};

/// Hostile clients against a server in a small memory cgroup, beside an honest client.
#[derive(Debug, Parser)]
enum Cli {
    /// List the attacks.
    List,
    /// Run attacks, one after the other.
    Run(Run),
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
    let run = match Cli::parse() {
        Cli::Run(run) => run,
        Cli::List => {
            for Attack { name, about, .. } in &ATTACKS {
                println!("{name:<20} {about}");
            }
            return ExitCode::SUCCESS;
        }
    };
    match run.execute() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}; this needs root, and permission to create a memory cgroup");
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
    use crate::runner::bytes;

    #[test]
    fn a_size_has_a_unit_or_none() {
        assert_eq!((bytes("64M"), bytes("4096")), (Ok(64 << 20), Ok(4096)));
        assert!(bytes("64G").is_err() && bytes("").is_err() && bytes("99999999999999M").is_err());
    }
}
