//! Prints what a provider knows of each requested key.

use std::time::Duration;

use bellwire::{CallError, Client, Lookup, RunDir, Service, Status};
use bellwire_apps::{App, AppsLookup};
use bellwire_cgroups::{CgroupDetails, CgroupsLookup};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::Get;
use crate::args::Args;
use crate::config;
use crate::exit::{Exit, Failure};
use crate::out::{self, Align, BAD, Cell, Column, FAINT, Format, Table, WARN, span};

/// How many keys are sent in one message.
const TOGETHER: usize = 1000;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// How many answers had each state.
#[derive(Default, Serialize)]
struct Count {
    known: usize,
    retry_later: usize,
    unknown: usize,
    too_large: usize,
}

pub(super) fn apps(run_dir: &RunDir, args: &Get) -> Result<Exit, Failure> {
    let pids = keys(args)?;
    let pid = |key: &String| match key.parse() {
        Ok(pid) => pid,
        Err(_) => Args::refuse(format_args!("{key:?} is not a pid")),
    };
    let pids: Vec<u32> = pids.iter().map(pid).collect();
    let found = ask::<AppsLookup>(run_dir, args, &pids)?;
    let right = |title| Column::new(title, Align::Right);
    let left = |title| Column::new(title, Align::Left);
    let table = Table::new([
        right("PID"),
        left("STATUS"),
        left("NAME").narrowest(8),
        right("PPID"),
        right("UID"),
        right("STARTED"),
        left("RUN BY"),
        left("CGROUP NAME").narrowest(8),
        left("CGROUP").narrowest(16),
    ]);
    let row = |pid: &u32, found: &Lookup<App>| {
        let mut cells = vec![Cell::new(pid.to_string()), status(found)];
        if let Lookup::Known(app) = found {
            cells.extend([
                Cell::new(&app.comm),
                Cell::new(app.ppid.to_string()),
                Cell::new(app.uid.to_string()),
                Cell::new(format!("+{}", span(app.started))),
                Cell::new(app.orchestrator.as_str()),
                Cell::new(&app.cgroup_name),
                Cell::new(&app.cgroup).style(FAINT),
            ]);
        }
        cells
    };
    let object = |pid: &u32, app: Option<&App>| match app {
        None => json!({ "pid": pid }),
        Some(app) => json!({
            "pid": pid,
            "ppid": app.ppid,
            "uid": app.uid,
            "comm": app.comm,
            "started_ns": u64::try_from(app.started.as_nanos()).unwrap_or(u64::MAX),
            "cgroup": app.cgroup,
            "orchestrator": app.orchestrator.as_str(),
            "cgroup_name": app.cgroup_name,
            "pending": app.pending,
            "labels": map(&app.labels),
        }),
    };
    print(args, (AppsLookup::NAME, "apps"), &pids, &found, table, row, object)
}

pub(super) fn cgroups(run_dir: &RunDir, args: &Get) -> Result<Exit, Failure> {
    let paths = keys(args)?;
    let found = ask::<CgroupsLookup>(run_dir, args, &paths)?;
    let left = |title| Column::new(title, Align::Left);
    let table = Table::new([
        left("PATH").narrowest(16),
        left("STATUS"),
        left("NAME").narrowest(8),
        left("RUN BY"),
        Column::new("ID", Align::Right),
        left("LABELS").narrowest(16),
    ]);
    let row = |path: &String, found: &Lookup<CgroupDetails>| {
        let mut cells = vec![Cell::new(path.replace(char::is_control, "\u{fffd}")), status(found)];
        if let Lookup::Known(cgroup) = found {
            let label = |(name, value): &(String, String)| format!("{name}={value}");
            let labels: Vec<_> = cgroup.labels.iter().map(label).collect();
            cells.extend([
                Cell::new(&cgroup.name),
                Cell::new(cgroup.orchestrator.as_str()),
                Cell::new(super::print::inode(cgroup.id, cgroup.options)),
            ]);
            // No trailing column.
            cells.extend((!labels.is_empty()).then(|| Cell::new(labels.join(" ")).style(FAINT)));
        }
        cells
    };
    let object = |path: &String, cgroup: Option<&CgroupDetails>| match cgroup {
        None => json!({ "path": path }),
        Some(cgroup) => json!({
            "path": path,
            "id": cgroup.id,
            "name": cgroup.name,
            "enabled": cgroup.enabled,
            "options": cgroup.options.to_string(),
            "orchestrator": cgroup.orchestrator.as_str(),
            "labels": map(&cgroup.labels),
        }),
    };
    print(args, (CgroupsLookup::NAME, "cgroups"), &paths, &found, table, row, object)
}

fn map(labels: &[(String, String)]) -> Map<String, Value> {
    labels.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect()
}

/// Returns the keys from the command line and from standard input.
fn keys(args: &Get) -> Result<Vec<String>, Failure> {
    if args.watch || args.filter.is_some() || !args.orchestrator.is_empty() {
        Args::refuse("--watch, --filter and --orchestrator are for cgroups only");
    }
    let mut keys = Vec::new();
    for key in &args.keys {
        if key != "-" {
            keys.push(key.clone());
            continue;
        }
        for line in std::io::stdin().lines() {
            let line =
                line.map_err(|error| Failure::of(Exit::Failed, "cannot read stdin", &error))?;
            keys.extend(Some(line.trim().to_owned()).filter(|line| !line.is_empty()));
        }
    }
    Ok(keys)
}

/// Asks for many keys together, in a sensible number of messages.
fn ask<S>(run_dir: &RunDir, args: &Get, keys: &[S::Request]) -> Result<Vec<S::Response>, Failure>
where
    S: Service<Response = Lookup<S::Known>> + Known,
{
    let timeout = args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let config = config::client().timeout(timeout).connect_timeout(timeout);
    let mut client = Client::<S>::with_config(run_dir, config);
    let session = client.connect().map_err(|error| unanswered::<S>(run_dir, error))?;
    let mut found = Vec::with_capacity(keys.len());
    for keys in keys.chunks(TOGETHER.min(session.max_batch())) {
        let answers = session.call_batch(keys);
        for answer in answers.map_err(|error| unanswered::<S>(run_dir, error))? {
            found.push(match answer.map_err(|error| *error) {
                // The question or the answer does not fit into a message.
                Err(
                    CallError::TooLarge { .. } | CallError::Declined { status: Status::TooLarge },
                ) => Lookup::TooLarge,
                answer => answer.map_err(|error| unanswered::<S>(run_dir, error))?,
            });
        }
    }
    Ok(found)
}

fn unanswered<S: Known>(run_dir: &RunDir, error: CallError) -> Failure {
    match error {
        CallError::Absent { service } => {
            let dir = run_dir.path().display();
            Failure::new(Exit::Absent, format!("nobody provides {service} in {dir}")).next(format!(
                "start `bellwire provide {}` with the same --run-dir, or check with `bellwire ls`",
                S::SUBJECT
            ))
        }
        error => error.into(),
    }
}

fn print<K, T>(
    args: &Get,
    (service, name): (&str, &str),
    keys: &[K],
    found: &[Lookup<T>],
    mut table: Table,
    row: impl Fn(&K, &Lookup<T>) -> Vec<Cell>,
    object: impl Fn(&K, Option<&T>) -> Value,
) -> Result<Exit, Failure> {
    let mut count = Count::default();
    for found in found {
        *match found {
            Lookup::Known(_) => &mut count.known,
            Lookup::RetryLater => &mut count.retry_later,
            Lookup::Unknown => &mut count.unknown,
            Lookup::TooLarge => &mut count.too_large,
        } += 1;
    }
    if args.output.format() == Format::Json {
        let items = keys.iter().zip(found).map(|(key, found)| {
            let known = if let Lookup::Known(known) = found { Some(known) } else { None };
            let mut object = object(key, known);
            if let Some(fields) = object.as_object_mut() {
                fields.insert("status".into(), found.as_str().into());
            }
            object
        });
        let items: Vec<Value> = items.collect();
        out::json_line(
            &json!({ "service": service, "total": keys.len(), "count": count, name: items }),
        )?;
    } else {
        keys.iter().zip(found).for_each(|(key, found)| table.row(row(key, found)));
        table.show()?;
    }
    Ok(match count {
        Count { unknown, too_large, .. } if unknown + too_large > 0 => Exit::Unknown,
        Count { retry_later, .. } if retry_later > 0 => Exit::RetryLater,
        _ => Exit::Ok,
    })
}

fn status<T>(found: &Lookup<T>) -> Cell {
    let cell = Cell::new(found.as_str());
    match found {
        Lookup::Known(_) => cell,
        Lookup::RetryLater => cell.style(WARN),
        Lookup::Unknown | Lookup::TooLarge => cell.style(BAD),
    }
}

/// A service whose answers this command can print.
trait Known {
    type Known;
    /// Its name on the command line.
    const SUBJECT: &'static str;
}

impl Known for AppsLookup {
    type Known = App;
    const SUBJECT: &'static str = "apps";
}

impl Known for CgroupsLookup {
    type Known = CgroupDetails;
    const SUBJECT: &'static str = "cgroups-lookup";
}
