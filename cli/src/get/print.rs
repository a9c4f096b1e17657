use std::io::{self, Write};
use std::time::SystemTime;

use bellwire::CurrentSnapshot;
use bellwire::Snapshot as _;
use bellwire_cgroups::{Cgroup, CgroupsSnapshot, Options, View};
use serde::Serialize;
use serde_json::{Map, Value};

use super::selection::Selection;
use crate::out::{self, Align, Cell, Column, FAINT, Format, Table, span};

#[derive(Serialize)]
struct Snapshot<'a> {
    service: &'static str,
    generation: u64,
    scanned_at: String,
    mode: &'static str,
    hierarchies: Value,
    skipped: u32,
    total: usize,
    cgroups: Vec<Row<'a>>,
    /// Since the snapshot that was printed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Value>,
}

#[derive(Serialize)]
struct Row<'a> {
    id: u64,
    name: &'a str,
    name_hash: String,
    path: &'a str,
    orchestrator: &'static str,
    enabled: bool,
    options: Vec<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    labels: Map<String, Value>,
}

/// Prints a whole snapshot.
pub(super) fn snapshot(
    current: CurrentSnapshot<'_, CgroupsSnapshot>,
    selection: &Selection,
    format: Format,
    changes: Option<Value>,
) -> io::Result<()> {
    let view = current.index().view();
    if format == Format::Json {
        return json(current.generation(), view, selection, changes);
    }
    table(view, selection).show()?;
    let shown = selection.of(view).count();
    let _ = writeln!(anstream::stderr(), "{FAINT}{}{FAINT:#}", caption(current, shown));
    Ok(())
}

/// Returns the line below the table.
pub(super) fn caption(current: CurrentSnapshot<'_, CgroupsSnapshot>, shown: usize) -> String {
    let view = current.index().view();
    let age = SystemTime::now().duration_since(view.scanned_at()).unwrap_or_default();
    let all = view.len();
    let of = if shown == all { format!("{all}") } else { format!("{shown} of {all}") };
    let skipped = match view.meta().skipped {
        0 => String::new(),
        skipped => format!(", {skipped} directories could not be read"),
    };
    format!(
        "{of} cgroups ({}), generation {}, scanned {} ago{skipped}",
        view.mode(),
        current.generation(),
        span(age),
    )
}

fn json(
    generation: u64,
    view: View<'_>,
    selection: &Selection,
    changes: Option<Value>,
) -> io::Result<()> {
    out::json_line(&Snapshot {
        service: CgroupsSnapshot::NAME,
        generation,
        scanned_at: humantime::format_rfc3339_nanos(view.scanned_at()).to_string(),
        mode: view.mode().as_str(),
        hierarchies: map(view.hierarchies()).into(),
        skipped: view.meta().skipped,
        total: view.len(),
        cgroups: selection.of(view).map(|cgroup| Row::of(&cgroup)).collect(),
        changes,
    })
}

fn table(view: View<'_>, selection: &Selection) -> Table {
    let left = |title| Column::new(title, Align::Left).narrowest(16);
    Table::of(selection.of(view))
        .column(left("NAME"), |cgroup| cgroup.name)
        .left("RUN BY", |cgroup| cgroup.orchestrator.as_str())
        .left("STATE", state)
        .right("ID", |cgroup| inode(cgroup.id, cgroup.options))
        .column(left("PATH"), |cgroup| Cell::new(cgroup.path).style(FAINT))
        .table()
}

/// Returns whether there is something to collect, and whether a process is in it.
pub(super) fn state(cgroup: &Cgroup<'_>) -> &'static str {
    match (cgroup.enabled, cgroup.options.contains(Options::POPULATED)) {
        (_, true) => "populated",
        (true, false) => "empty",
        (false, false) => "unused",
    }
}

/// Returns the id; `hierarchy:inode` if it is not from the primary hierarchy.
pub(super) fn inode(id: u64, options: Options) -> String {
    if !options.contains(Options::SECONDARY) {
        return id.to_string();
    }
    format!("{}:{}", id >> 56, id & (u64::MAX >> 8))
}

fn map<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    pairs.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

impl<'a> Row<'a> {
    fn of(cgroup: &Cgroup<'a>) -> Self {
        let options = cgroup.options.to_string();
        Self {
            id: cgroup.id,
            name: cgroup.name,
            name_hash: format!("{:#018x}", cgroup.name_hash),
            path: cgroup.path,
            orchestrator: cgroup.orchestrator.as_str(),
            enabled: cgroup.enabled,
            options: options.split(' ').filter(|name| *name != "-").map(str::to_owned).collect(),
            labels: map(cgroup.labels.iter()),
        }
    }
}
