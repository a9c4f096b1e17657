//! `bellwire doctor`: tries what Bellwire needs of this machine.

mod doorbells;
mod limits;
mod memory;
mod optional;
mod peers;
mod probe;
mod run_dir;
mod session;

use std::io::Write;

use bellwire::RunDir;
use serde_json::json;

use crate::args::Doctor;
use crate::exit::{Exit, Failure};
use crate::out::{self, BAD, FAINT, GOOD, TITLE, WARN};
use probe::{Probe, State};

pub(crate) fn run(run_dir: &RunDir, args: &Doctor) -> Result<Exit, Failure> {
    let probes: Vec<Probe> = [
        memory::probes(),
        doorbells::probes(),
        peers::probes(),
        session::probes(),
        limits::probes(),
        run_dir::probes(run_dir),
        optional::probes(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let broken = probes.iter().filter(|probe| probe.required && probe.state == State::Missing);
    let broken = broken.count();
    let system = rustix::system::uname();
    let kernel = system.release().to_string_lossy();
    let machine = system.machine().to_string_lossy();
    if args.json {
        let ok = broken == 0;
        out::json_line(
            &json!({ "ok": ok, "kernel": kernel, "machine": machine, "probes": probes }),
        )?;
    } else {
        print(&probes, broken, &format!("Linux {kernel}, {machine}"))?;
    }
    Ok(if broken == 0 { Exit::Ok } else { Exit::Failed })
}

fn print(probes: &[Probe], broken: usize, system: &str) -> Result<(), Failure> {
    let mut stdout = out::stdout();
    writeln!(stdout, "{system}")?;
    let widest = probes.iter().map(|probe| probe.name.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for probe in probes {
        if probe.group != group {
            group = probe.group;
            writeln!(stdout, "\n{TITLE}{group}{TITLE:#}")?;
        }
        let (style, word) = match (probe.state, probe.required) {
            (State::Ok, _) => (GOOD, "ok"),
            (State::Limited, _) => (WARN, "limited"),
            (State::Missing, true) => (BAD, "missing"),
            (State::Missing, false) => (WARN, "missing"),
        };
        let (name, detail) = (probe.name, &probe.detail);
        let spared = probe.state == State::Missing && !probe.required;
        let optional = if spared { format!(" {FAINT}(optional){FAINT:#}") } else { String::new() };
        writeln!(stdout, "  {name:<widest$}  {style}{word:<7}{style:#}  {detail}{optional}")?;
        if let Some(advice) = &probe.advice {
            writeln!(stdout, "  {:widest$}  {:7}  {style}→{style:#} {advice}", "", "")?;
        }
    }
    let limited = probes.iter().filter(|probe| probe.state == State::Limited).count();
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
