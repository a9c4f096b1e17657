//! `bellwire doctor`: tries the features that Bellwire requires of this machine.

mod session;

use std::io::Write;
use std::process::Command;

use bellwire::RunDir;
use bellwire_doctor::{self as doctor, Check, Outcome};
use serde::Serialize;

use crate::args::Output;
use crate::exit::{Exit, Failure};
use crate::out::{self, BAD, FAINT, GOOD, TITLE, WARN};
use crate::this_program;

/// Check each feature of this system that Bellwire uses, and the limits that may be too low
///
/// Tries the features, instead of deriving them from a version number. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 if everything required works, otherwise 1. Optional features do not count.

Examples:
  bellwire doctor
  bellwire doctor --json | jq '.probes[] | select(.state != \"ok\")'")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    system: &'a str,
    machine: &'a str,
    probes: Vec<Probe<'a>>,
}

#[derive(Serialize)]
struct Probe<'a> {
    group: &'a str,
    name: &'a str,
    required: bool,
    state: &'a str,
    detail: &'a str,
    advice: Option<&'a str>,
}

pub(crate) fn run(run_dir: &RunDir, args: &Doctor) -> Result<Exit, Failure> {
    let own = this_program()
        .map_err(|error| Failure::of(Exit::Failed, "cannot find this program's file", &error))?;
    let mut checks = doctor::checks(run_dir.path(), Command::new(own).arg("--version"));
    checks.extend(session::checks());
    let broken = checks.iter().filter(|check| check.is_fatal()).count();
    let (system, machine) = (doctor::system(), std::env::consts::ARCH);
    if args.output.is_json() {
        let probes = checks.iter().map(Probe::of).collect();
        out::json_line(&Report { ok: broken == 0, system: &system, machine, probes })?;
    } else {
        print(&checks, broken, &format!("{system}, {machine}"))?;
    }
    Ok(if broken == 0 { Exit::Ok } else { Exit::Failed })
}

fn print(checks: &[Check], broken: usize, system: &str) -> Result<(), Failure> {
    let mut stdout = out::stdout();
    writeln!(stdout, "{system}")?;
    let widest = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for check in checks {
        if check.group != group {
            group = check.group;
            writeln!(stdout, "\n{TITLE}{group}{TITLE:#}")?;
        }
        let style = match check.outcome {
            Outcome::Ok => GOOD,
            Outcome::Missing if check.required => BAD,
            Outcome::Limited | Outcome::Missing => WARN,
        };
        let (name, word, detail) = (check.name, check.outcome.as_str(), &check.detail);
        let spared = check.outcome == Outcome::Missing && !check.required;
        let optional = if spared { format!(" {FAINT}(optional){FAINT:#}") } else { String::new() };
        writeln!(stdout, "  {name:<widest$}  {style}{word:<7}{style:#}  {detail}{optional}")?;
        if let Some(hint) = &check.hint {
            writeln!(stdout, "  {:widest$}  {:7}  {style}→{style:#} {hint}", "", "")?;
        }
    }
    let limited = checks.iter().filter(|check| check.outcome == Outcome::Limited).count();
    let verdict = match broken {
        0 => format!("{GOOD}Bellwire works here.{GOOD:#}"),
        1 => format!("{BAD}Bellwire does not work here: something required is missing.{BAD:#}"),
        _ => format!(
            "{BAD}Bellwire does not work here: {broken} required things are missing.{BAD:#}"
        ),
    };
    let limited =
        if limited > 0 { format!(" {limited} limited, see above.") } else { String::new() };
    writeln!(stdout, "\n{verdict}{limited}")?;
    Ok(stdout.flush()?)
}

impl<'a> Probe<'a> {
    fn of(check: &'a Check) -> Self {
        Self {
            group: check.group,
            name: check.name,
            required: check.required,
            state: check.outcome.as_str(),
            detail: &check.detail,
            advice: check.hint.as_deref(),
        }
    }
}
