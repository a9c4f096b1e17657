use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{CgroupEntry, MAX_ITEMS, MAX_LABELS, Meta, Mode, Options};

use super::hierarchy::{self, Hierarchy, Kind};
use super::identity::Identity;
use super::population::{self, Population};
use super::skipped::Skipped;
use super::walk::{Sink, Step, Walk};

/// What the kernel calls the pid namespace of the first process, in every boot.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Reads a cgroup hierarchy, as often as asked.
#[derive(Debug)]
pub struct Scanner {
    root: PathBuf,
    /// The same without links, for readers.
    mounted: PathBuf,
    limits: Limits,
    /// The name of the hierarchy whose inodes are the ids, once chosen.
    primary: Option<OsString>,
    /// Whether this process can name every other one: it is in the first pid namespace.
    names_all: bool,
}

/// The maximum size of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Cgroups, including the root.
    pub items: usize,
    /// Levels below the root. Each one holds a descriptor open during the walk.
    pub depth: usize,
}

/// The result of a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The cgroups, in ascending order of their paths. Ids and paths are unique.
    pub entries: Vec<CgroupEntry>,
    /// The machine's cgroup mode.
    pub mode: Mode,
    /// The mounted hierarchies, the primary one first.
    pub hierarchies: Vec<crate::Hierarchy>,
    /// Directories that were met but not read.
    pub skipped: Skipped,
    /// When the scan started.
    pub started: SystemTime,
}

/// Why there is no scan. The fault is the system's, or in the configured root.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The root cannot be read.
    #[error("cannot read the cgroup root {}", root.display())]
    Root {
        /// The root.
        root: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// No cgroup hierarchy is mounted at the root or in a directory of it.
    #[error("no cgroup hierarchy is mounted at or below {}", root.display())]
    NoHierarchy {
        /// The root.
        root: PathBuf,
    },
}

impl Default for Limits {
    fn default() -> Self {
        Self { items: MAX_ITEMS, depth: 128 }
    }
}

impl Scan {
    /// Returns the snapshot's description of this scan.
    pub fn meta(&self) -> Meta {
        Meta { scanned_at: self.started, mode: self.mode, skipped: self.skipped.left_out() }
    }
}

impl Scanner {
    /// Where a Linux system mounts its cgroups.
    pub const ROOT: &str = "/sys/fs/cgroup";

    /// Returns whether this system supports cgroups at all, mounted or not.
    pub fn has_cgroups() -> bool {
        [Self::ROOT, "/proc/self/cgroup"].iter().any(|path| Path::new(path).exists())
    }

    /// Creates a scanner of the hierarchies at or below a root.
    pub fn new(root: &Path) -> Self {
        let names_all = Path::new("/proc/self/ns/pid")
            .read_link()
            .map_or(true, |namespace| namespace == Path::new(FIRST_NAMESPACE));
        let mounted = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        Self { root: root.to_owned(), mounted, limits: Limits::default(), primary: None, names_all }
    }

    /// Returns the same scanner as in a pid namespace that does, or does not, see all processes.
    #[cfg(test)]
    pub(super) fn in_namespace_that_names_all(self, names_all: bool) -> Self {
        Self { names_all, ..self }
    }

    /// Returns the same scanner with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Returns where its hierarchies are mounted.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the hierarchy whose inodes are the ids, once chosen.
    pub(super) fn primary(&self) -> Option<&OsStr> {
        self.primary.as_deref()
    }

    /// Reads every cgroup. The scan may or may not contain cgroups that appear or vanish while it runs.
    ///
    /// # Errors
    /// [`ScanError`], if there is no hierarchy to read. Unreadable directories below one are counted in [`Scan::skipped`].
    pub fn scan(&mut self) -> Result<Scan, ScanError> {
        let started = SystemTime::now();
        let primary = self.primary.as_deref();
        let (mode, hierarchies) = hierarchy::find(&self.root, primary)?;
        if let (None, Some(first)) = (primary, hierarchies.first()) {
            self.primary = first.name_in_use().map(OsStr::to_owned);
        }
        let mut skipped = Skipped::default();
        let mut found = Found { limit: self.limits.items, ..Found::default() };
        for (rank, hierarchy) in (0..=u8::MAX).zip(&hierarchies) {
            let walk = Walk { hierarchy, limits: self.limits, skipped: &mut skipped };
            walk.run(&mut Pass { rank, hierarchy, found: &mut found });
        }
        if !self.names_all {
            found.assume_populated();
        }
        found.mark_populated_ancestors();
        let entries = found.into_entries(&mut skipped);
        let numbered = hierarchies.iter().take(MAX_LABELS);
        let hierarchies = numbered.map(|hierarchy| hierarchy.mounted(&self.mounted)).collect();
        Ok(Scan { entries, mode, hierarchies, skipped, started })
    }
}

/// The cgroups found so far, over all hierarchies.
#[derive(Debug, Default)]
struct Found {
    by_path: HashMap<Box<str>, Seen>,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    id: u64,
    options: Options,
    population: Population,
    has_children: bool,
}

/// Adds one hierarchy's walk to the cgroups found. The rank is 0 for the primary hierarchy.
struct Pass<'a> {
    rank: u8,
    hierarchy: &'a Hierarchy,
    found: &'a mut Found,
}

impl Sink for Pass<'_> {
    fn take(&mut self, step: &Step<'_>, skipped: &mut Skipped) -> bool {
        let full = self.found.by_path.len() >= self.found.limit;
        let identity = self.identity(step.inode);
        let seen = match self.found.by_path.entry(step.path.into()) {
            Entry::Occupied(seen) => seen.into_mut(),
            Entry::Vacant(_) if full => return false,
            Entry::Vacant(place) => {
                let Some((id, options)) = identity else {
                    skipped.failed = skipped.failed.saturating_add(1);
                    return true;
                };
                let population = Population::default();
                place.insert(Seen { id, options, population, has_children: false })
            }
        };
        seen.has_children |= step.has_children;
        seen.options |= match self.hierarchy.kind {
            Kind::Unified => Options::UNIFIED,
            Kind::Controllers(_) | Kind::Named => Options::LEGACY,
        };
        let kind = self.hierarchy.kind;
        seen.population.accounted |= matches!(kind, Kind::Controllers(_));
        if !seen.population.populated {
            let population = match step.place {
                None => Ok(population::ROOT),
                Some((parent, name)) => population::of_child(kind, parent, name),
            };
            match population {
                Ok(population) => {
                    seen.population.populated |= population.populated;
                    seen.population.accounted |= population.accounted;
                    seen.population.counted |= population.counted;
                }
                Err(_) => skipped.unread = skipped.unread.saturating_add(1),
            }
        }
        true
    }
}

impl Pass<'_> {
    /// Returns the id and its options. The top 8 bits of an id distinguish hierarchies, since each numbers its inodes from 1.
    /// They are 0 in the primary one, whose ids are the kernel's; kernfs would need centuries to reach them.
    fn identity(&self, inode: u64) -> Option<(u64, Options)> {
        if inode == 0 || inode >> 56 != 0 {
            return None;
        }
        let secondary = self.rank != 0;
        let id = u64::from(self.rank) << 56 | inode;
        Some((id, Options::NONE.with(Options::SECONDARY, secondary)))
    }
}

impl Found {
    /// Marks v1 cgroups as populated whose processes are counted nowhere, in a pid namespace whose processes see no others: a
    /// workload that nobody collects is worse than an empty cgroup that somebody does.
    fn assume_populated(&mut self) {
        for seen in self.by_path.values_mut() {
            seen.population.populated |= !seen.population.counted;
        }
    }

    /// Marks the ancestors of populated cgroups as populated: a v1 cgroup's files only show its own processes.
    fn mark_populated_ancestors(&mut self) {
        let legacy =
            |seen: &Seen| seen.population.populated && seen.options.contains(Options::LEGACY);
        let populated: Vec<Box<str>> = self
            .by_path
            .iter()
            .filter(|(_, seen)| legacy(seen))
            .map(|(path, _)| path.clone())
            .collect();
        for path in populated {
            let mut path = &*path;
            while let Some((parent, _)) = path.rsplit_once('/') {
                let Some(above) = self.by_path.get_mut(parent) else { break };
                if above.population.populated {
                    break;
                }
                above.population.populated = true;
                path = parent;
            }
        }
    }

    fn into_entries(self, skipped: &mut Skipped) -> Vec<CgroupEntry> {
        let mut entries: Vec<_> =
            self.by_path.into_iter().map(|(path, seen)| entry(path.into(), seen)).collect();
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        // A cgroup was renamed, or an inode was reused, during the scan.
        let mut ids = HashSet::with_capacity(entries.len());
        entries.retain(|entry| {
            let new = ids.insert(entry.id);
            skipped.vanished = skipped.vanished.saturating_add(u32::from(!new));
            new
        });
        entries
    }
}

fn entry(path: String, seen: Seen) -> CgroupEntry {
    let identity = Identity::of(&path);
    let populated = seen.population.populated;
    CgroupEntry {
        id: seen.id,
        name: identity.name,
        options: seen
            .options
            .with(Options::ROOT, path == "/")
            .with(Options::POPULATED, populated)
            .with(Options::LEAF, !seen.has_children)
            .with(Options::SYSTEM_SERVICE, identity.system_service)
            .with(Options::NESTED, identity.nested),
        path,
        enabled: populated || seen.population.accounted,
        orchestrator: identity.orchestrator,
        labels: Vec::new(),
    }
}
