//! Runs hostile clients against a server in a small memory cgroup, and says what becomes of an honest one.
//!
//! Exit code 0: everything holds; 1: something does not; 2: it could not be run.

mod cgroup;
mod process;
mod report;
mod testbed;

use std::io;
use std::process::ExitCode;

use bellwire_hostile::attacks::{self, ATTACKS, Attack};
use clap::{Args, Parser, Subcommand};

use crate::report::Form;
use crate::testbed::{Course, Testbed};

/// Hostile clients against a server in a small memory cgroup, beside an honest client.
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lists the attacks.
    List,
    /// Runs attacks, one after the other.
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// How long each attack lasts; each window beside one a third of it, and each without a sixth.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// This attack alone; may be given again.
    #[arg(long, value_name = "NAME", value_parser = named)]
    attack: Vec<&'static Attack>,
    /// The limit of the server's memory cgroup, as 64M.
    #[arg(long, default_value = "64M", value_parser = bytes)]
    limit: u64,
    /// The attackers have the server's user.
    #[arg(long)]
    same_user: bool,
    /// How many times the p99 of an idle server beside the attacked one the p99 under attack may be.
    #[arg(long, default_value_t = 3.0)]
    factor: f64,
    /// The windows without an attack, of each kind.
    #[arg(long, default_value_t = 3)]
    windows: usize,
    /// Prints a table for a document.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Prints one JSON object a line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let run = match Command::parse().what {
        What::Run(run) => run,
        What::List => {
            for Attack { name, about, .. } in &ATTACKS {
                println!("{name:<20} {about}");
            }
            return ExitCode::SUCCESS;
        }
    };
    match run.all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}; this takes root, and a memory cgroup that can be made");
            ExitCode::from(2)
        }
    }
}

impl Run {
    /// False when something does not hold.
    fn all(&self) -> io::Result<bool> {
        let all: Vec<&'static Attack> = ATTACKS.iter().collect();
        let attacks = if self.attack.is_empty() { &all } else { &self.attack };
        let course = Course {
            seconds: self.seconds,
            limit: self.limit,
            same_user: self.same_user,
            factor: self.factor,
            windows: self.windows,
        };
        let form = match (self.markdown, self.json) {
            (true, _) => Form::Markdown,
            (_, true) => Form::Json,
            _ => Form::Text,
        };
        let testbed = Testbed::build()?;
        report::head(form, &course);
        let mut held = 0;
        for (at, attack) in attacks.iter().enumerate() {
            let say = |what: &str| {
                report::progress(&format!(
                    "[{}/{}] {}: {what}",
                    at + 1,
                    attacks.len(),
                    attack.name
                ));
            };
            let outcome = testbed.run(attack, &course, say)?;
            report::progress("");
            report::row(&outcome, form);
            if let Some(first) = outcome.honest.first.as_ref().filter(|_| form == Form::Text) {
                println!("  {first}");
            }
            held += usize::from(outcome.faults.is_empty());
        }
        if form == Form::Text {
            println!("summary: {} attacks, {held} held", attacks.len());
        }
        Ok(held == attacks.len())
    }
}

fn named(name: &str) -> Result<&'static Attack, String> {
    attacks::named(name).ok_or_else(|| "no attack has such a name: see `list`".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['M', 'm']) {
        Some(digits) => (digits, 1 << 20),
        None => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no size such as 64M"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is too large"))
}

#[cfg(test)]
mod tests {
    use bellwire_hostile::attacks::{ATTACKS, named};

    use super::bytes;

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
