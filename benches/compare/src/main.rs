//! `bellwire-bench`: Bellwire beside the floor of the machine and beside the alternatives, in one run.

mod args;
mod burst;
mod clock;
mod compare;
mod contender;
mod floors;
mod handler;
mod hist;
mod load;
mod measure;
mod order;
mod progress;
mod report;
mod roles;
mod run;
mod scenario;
mod serve;
mod sink;
mod stream;
mod system;
mod testbed;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use bellwire_cli::exit::{Exit, Failure};
use bellwire_floor::{Cpus, Prober, cpus};
use clap::Parser;

use args::{Args, Command, Run};
use compare::Verdict;
use contender::Entry;
use order::Schedule;
use progress::Progress;
use report::model::{Report, SCHEMA};
use run::{Instruments, Plan};
use scenario::{Scenario, Wants};
use stream::Stream;
use system::{System, Watch};

/// The result of everything on the way of a measurement: its errors are for people.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    if let Some(code) = bellwire_floor::peer_main(roles::ROLES) {
        return code;
    }
    let args = Args::parse();
    let ended = match args.command {
        Some(Command::List { json }) => list(json),
        Some(Command::Compare { old, new }) => compare_files(&old, &new),
        None => measure(&args.run),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}

fn list(json: bool) -> Result<Exit, Failure> {
    let scenarios = scenario::all(None);
    let mut text = String::new();
    if json {
        let scenarios: Vec<_> = scenarios.iter().map(|scenario| &scenario.name).collect();
        let contenders: Vec<_> = contender::ALL.iter().map(|entry| entry.name).collect();
        let list = serde_json::json!({ "scenarios": scenarios, "contenders": contenders });
        text = format!("{list}\n");
    } else {
        for scenario in &scenarios {
            text += &format!("{:<28} {}\n", scenario.name, scenario.about());
        }
        text.push('\n');
        for entry in contender::ALL {
            let about = (entry.about)();
            text += &format!("{:<28} {}; {}\n", entry.name, about.version, about.settings);
        }
    }
    say(&text)?;
    Ok(Exit::Ok)
}

fn compare_files(old: &Path, new: &Path) -> Result<Exit, Failure> {
    let (changes, alone) = compare::compare(&read(old)?, &read(new)?);
    let mut text = String::new();
    for line in changes.iter().map(ToString::to_string).chain(alone) {
        text += &(line + "\n");
    }
    let count = |verdict| changes.iter().filter(|change| change.verdict == verdict).count();
    let [faster, slower, alike, unstable] =
        [Verdict::Faster, Verdict::Slower, Verdict::Alike, Verdict::Unstable].map(count);
    text +=
        &format!("summary: {faster} faster, {slower} slower, {alike} alike, {unstable} unstable\n");
    say(&text)?;
    Ok(if slower > 0 { Exit::Slower } else { Exit::Ok })
}

fn read(path: &Path) -> Result<Report, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| failed(format!("cannot read {shown}: {error}")))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| {
        failed(format!("{shown} is no report: {error}"))
            .next("name a file that --json or --report has written")
    })?;
    if report.schema != SCHEMA {
        let what = format!("{shown} has layout {}, this program reads {SCHEMA}", report.schema);
        return Err(failed(what).next("measure again, or use the program that wrote it"));
    }
    Ok(report)
}

fn measure(args: &Run) -> Result<Exit, Failure> {
    let scenarios = chosen_scenarios(args)?;
    let plan = Plan {
        contenders: chosen_contenders(args)?,
        rounds: if args.quick { 1 } else { usize::try_from(args.rounds).unwrap_or(usize::MAX) },
        millis: args.duration.map_or_else(
            || args.quick.then_some(2),
            |span| Some(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        ),
        quick: args.quick,
        cpus: chosen_cpus(args)?,
        falsify: args.falsify.clone(),
    };
    if cfg!(debug_assertions) && !args.quick {
        let what = "this is a debug build: its figures would say nothing";
        return Err(failed(what)
            .next("build it by: cargo build --release -p bellwire-bench; or say --quick"));
    }
    let stream = args.stream.as_deref().map(Stream::create).transpose();
    let report = run_all(&plan, &scenarios, stream.map_err(failed)?).map_err(failed)?;
    print(args, &report)?;
    let unstable = report.unstable();
    if unstable.is_empty() || args.quick {
        return Ok(Exit::Ok);
    }
    for line in &unstable {
        let _ = writeln!(std::io::stderr(), "unstable: {line}");
    }
    Ok(Exit::Unstable)
}

fn run_all(plan: &Plan, scenarios: &[Scenario], stream: Option<Stream>) -> Outcome<Report> {
    let (began, mut watch) = (SystemTime::now(), Watch::start());
    // Before anything runs here, for the load that was there before.
    let system = System::snapshot((plan.cpus.client, plan.cpus.peer));
    let mut states = vec![watch.snapshot("before")];
    plan.cpus.pin_client()?;
    let mut prober = None;
    if !plan.quick && scenarios.iter().any(|scenario| scenario.wants() != Wants::Nothing) {
        prober = Some(Prober::start(plan.cpus)?);
    }
    let mut with = Instruments { prober, progress: Progress::new(), stream };
    let mut measured = Vec::new();
    for scenario in scenarios {
        measured.push(run::measure(plan, scenario, &mut with)?);
        states.push(watch.snapshot(&scenario.name));
    }
    let abouts = plan.contenders.iter().map(|entry| (entry.name.to_owned(), (entry.about)()));
    Ok(Report {
        schema: SCHEMA,
        command: command_line(),
        began: humantime::format_rfc3339_seconds(began).to_string(),
        took_s: states.last().map_or(0.0, |state| state.at_s),
        system,
        states,
        rounds: u32::try_from(plan.rounds).unwrap_or(u32::MAX),
        quick: plan.quick,
        contenders: abouts.collect(),
        scenarios: measured,
    })
}

/// Without the path of this program, which is of one machine.
fn command_line() -> String {
    let words = std::env::args().skip(1);
    std::iter::once("bellwire bench".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn print(args: &Run, report: &Report) -> Result<(), Failure> {
    let to_stdout =
        [&args.json, &args.csv].iter().any(|path| path.as_deref() == Some(Path::new("-")));
    if !to_stdout {
        say(&report::table::text(report))?;
    }
    if let Some(path) = &args.json {
        write(path, &report::json(report).map_err(failed)?)?;
    }
    if let Some(path) = &args.csv {
        write(path, &report::csv::text(report).map_err(failed)?)?;
    }
    if let Some(dir) = &args.report {
        let cannot = |error| format!("cannot write the report into {}: {error}", dir.display());
        report::write(report, dir).map_err(|error| failed(cannot(error)))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") {
        return say(text);
    }
    let cannot = |error| failed(format!("cannot write {}: {error}", path.display()));
    fs::write(path, text).map_err(cannot)
}

fn failed(what: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    Failure::new(Exit::Failed, what.into().to_string())
}

/// The reader of our output may stop reading: that is no failure.
fn say(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(failed(format!("cannot write the output: {error}")))
        }
        _ => Ok(()),
    }
}

fn chosen_scenarios(args: &Run) -> Result<Vec<Scenario>, Failure> {
    let mut all = scenario::all(args.size);
    for word in &args.scenarios {
        if !all.iter().any(|scenario| scenario.is_meant_by(word)) {
            let mut groups: Vec<_> = all.iter().map(|scenario| scenario.group).collect();
            groups.dedup();
            let what = format!("no scenario is called {word}; there are {}", groups.join(", "));
            return Err(Failure::new(Exit::Usage, what).next("list them by: bellwire bench list"));
        }
    }
    if !args.scenarios.is_empty() {
        all.retain(|scenario| args.scenarios.iter().any(|word| scenario.is_meant_by(word)));
    }
    if let Some(schedule) = args.rate {
        let least = if schedule == Schedule::Max { 0 } else { 60 };
        for scenario in all.iter_mut().filter(|scenario| scenario.is_of_single_calls()) {
            *scenario = scenario.clone().scheduled(schedule);
            scenario.millis = scenario.millis.max(least);
        }
    }
    Ok(all)
}

fn chosen_contenders(args: &Run) -> Result<Vec<&'static Entry>, Failure> {
    for name in &args.against {
        if Entry::named(name).is_none() {
            let names: Vec<_> = contender::ALL.iter().map(|entry| entry.name).collect();
            let what = format!("no contender is called {name}; there are {}", names.join(", "));
            return Err(Failure::new(Exit::Usage, what));
        }
    }
    let is_chosen = |(at, entry): &(usize, &Entry)| {
        *at == 0 || args.against.is_empty() || args.against.iter().any(|name| name == entry.name)
    };
    Ok(contender::ALL.iter().enumerate().filter(is_chosen).map(|(_, entry)| entry).collect())
}

fn chosen_cpus(args: &Run) -> Result<Cpus, Failure> {
    let Some((client, peer)) = args.pin else {
        return Cpus::pick().and_then(Cpus::two).map_err(failed);
    };
    let allowed = cpus::allowed().map_err(failed)?;
    for cpu in [client, peer] {
        if !allowed.contains(&cpu) {
            let what = format!("processor {cpu} is not one that this process may use: {allowed:?}");
            return Err(
                Failure::new(Exit::Usage, what).next("look at: taskset --cpu-list --pid $$")
            );
        }
    }
    Ok(Cpus { client, peer })
}
