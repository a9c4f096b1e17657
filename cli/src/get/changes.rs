//! What differs between two snapshots, cgroup by cgroup.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bellwire_cgroups::{Cgroup, CgroupEntry};
use serde_json::{Map, Value, json};

use super::print;
use crate::out::{BAD, FAINT, GOOD, WARN};

/// The cgroups that were printed, by path.
pub(super) type Printed = BTreeMap<String, CgroupEntry>;

/// The difference between two sets of cgroups.
pub(super) struct Changes<'a> {
    appeared: Vec<Cgroup<'a>>,
    gone: Vec<Cgroup<'a>>,
    changed: Vec<(Cgroup<'a>, Vec<Change>)>,
}

/// One property of a cgroup that changed.
struct Change {
    what: &'static str,
    from: String,
    to: String,
}

impl<'a> Changes<'a> {
    pub(super) fn between(before: &'a Printed, now: &'a Printed) -> Self {
        let lacks = |other: &Printed, entry: &&CgroupEntry| !other.contains_key(&entry.path);
        let both = now.values().filter_map(|new| Some((before.get(&new.path)?, new)));
        let changed = both.filter(|(old, new)| old != new);
        Self {
            appeared: now.values().filter(|new| lacks(before, new)).map(entry).collect(),
            gone: before.values().filter(|old| lacks(now, old)).map(entry).collect(),
            changed: changed.map(|(old, new)| (entry(new), of(&entry(old), &entry(new)))).collect(),
        }
    }

    /// Prints a line for each cgroup.
    pub(super) fn print(&self, to: &mut impl Write) -> io::Result<()> {
        for Cgroup { name, path, .. } in &self.appeared {
            writeln!(to, "{GOOD}+{GOOD:#} {name}  {FAINT}{path}{FAINT:#}")?;
        }
        for (Cgroup { name, path, .. }, changes) in &self.changed {
            write!(to, "{WARN}~{WARN:#} {name}  {FAINT}{path}{FAINT:#}")?;
            for Change { what, from, to: now } in changes {
                write!(to, "  {what}: {from} -> {now}")?;
            }
            writeln!(to)?;
        }
        for Cgroup { name, path, .. } in &self.gone {
            writeln!(to, "{BAD}-{BAD:#} {name}  {FAINT}{path}{FAINT:#}")?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let paths = |cgroups: &[Cgroup<'_>]| -> Vec<Value> {
            cgroups.iter().map(|cgroup| cgroup.path.into()).collect()
        };
        let changed = self.changed.iter().map(|(cgroup, changes)| {
            let mut object = Map::new();
            object.insert("path".into(), cgroup.path.into());
            for Change { what, from, to } in changes {
                object.insert((*what).into(), json!({ "from": from, "to": to }));
            }
            object
        });
        json!({
            "appeared": paths(&self.appeared),
            "gone": paths(&self.gone),
            "changed": changed.collect::<Vec<Map<_, _>>>(),
        })
    }
}

fn entry(entry: &CgroupEntry) -> Cgroup<'_> {
    entry.as_cgroup()
}

/// Returns what differs between two states of one cgroup.
fn of(old: &Cgroup<'_>, new: &Cgroup<'_>) -> Vec<Change> {
    let labels = |cgroup: &Cgroup<'_>| {
        let labels = cgroup.labels.iter().map(|(name, value)| format!("{name}={value}"));
        Some(labels.collect::<Vec<_>>().join(" "))
            .filter(|all| !all.is_empty())
            .unwrap_or("-".into())
    };
    let all = |cgroup: &Cgroup<'_>| {
        [
            ("name", cgroup.name.to_owned()),
            ("id", print::inode(cgroup.id, cgroup.options)),
            ("state", print::state(cgroup).to_owned()),
            ("options", cgroup.options.to_string()),
            ("enabled", if cgroup.enabled { "yes" } else { "no" }.to_owned()),
            ("run_by", cgroup.orchestrator.to_string()),
            ("labels", labels(cgroup)),
        ]
    };
    let both = all(old).into_iter().zip(all(new));
    let differ = both.filter(|((_, from), (_, to))| from != to);
    differ.map(|((what, from), (_, to))| Change { what, from, to }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire_cgroups::{Options, synthetic};

    #[test]
    fn each_changed_property_is_listed() {
        let printed = |entries: &[CgroupEntry]| -> Printed {
            entries.iter().map(|entry| (entry.path.clone(), entry.clone())).collect()
        };
        let mut entries = synthetic::entries(3, 1);
        let before = printed(&entries);
        entries[0].name = "web".into();
        entries[0].labels.push(("image".into(), "w:1".into()));
        entries[0].options |= Options::PENDING;
        let gone = std::mem::replace(&mut entries[1].path, "/new".into());
        let now = printed(&entries);
        let changes = Changes::between(&before, &now);
        let json = changes.json();
        assert_eq!((&json["appeared"][0], &json["gone"][0]), (&"/new".into(), &gone.into()));
        let changed = &json["changed"][0];
        assert_eq!(json["changed"].as_array().unwrap().len(), 1);
        assert_eq!(changed["name"]["to"], "web");
        assert_eq!(changed["labels"]["to"], "image=w:1");
        assert!(
            changed["options"]["to"].as_str().unwrap().ends_with("pending")
                && changed["id"].is_null()
        );
        let mut text = Vec::new();
        changes.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("labels: - -> image=w:1"), "{text}");
    }
}
