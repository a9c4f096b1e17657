//! Cgroups by their paths, for `cgroups-lookup`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{CgroupDetails, CgroupEntry, MAX_PATH, check_name};
use bellwire::Lookup;
use cap_fs_ext::MetadataExt;

use super::hierarchy::{self, Hierarchy};
use super::labels::labels;
use super::{Limits, ScanError, Scanner};

/// The minimum time between walks of the hierarchies that are caused by an unknown cgroup.
const EAGER: Duration = Duration::from_millis(100);

/// The cgroups of this machine, by path.
///
/// All details of a cgroup come from one walk, which is not older than `max_age`; each look-up checks that the cgroup still
/// exists.
#[derive(Debug)]
pub struct Directory {
    known: Mutex<Known>,
    max_age: Duration,
}

#[derive(Debug)]
struct Known {
    scanner: Scanner,
    by_path: HashMap<String, CgroupEntry>,
    walked: Instant,
}

/// The result of a check of a path in the hierarchies.
enum Seen {
    /// The known cgroup.
    Same,
    /// A cgroup that is not known yet.
    Other,
    Nothing,
    Unreadable,
}

impl Directory {
    /// Opens the hierarchies at or below a root. Look-ups walk them again if the last walk is older than `max_age`.
    ///
    /// # Errors
    /// [`ScanError`].
    pub fn open(root: &Path, limits: Limits, max_age: Duration) -> Result<Self, ScanError> {
        let scanner = Scanner::new(root).with_limits(limits);
        let mut known = Known { scanner, by_path: HashMap::new(), walked: Instant::now() };
        known.walk()?;
        Ok(Self { known: Mutex::new(known), max_age })
    }

    /// Returns how many cgroups are known.
    pub fn known(&self) -> usize {
        self.lock().by_path.len()
    }

    /// Passes what is known of each path to `visit`, in order, until it breaks. Opens the hierarchies once and, if the last
    /// walk is older than `max_age`, walks them first.
    pub fn lookup(
        &self,
        paths: &[String],
        mut visit: impl FnMut(Lookup<CgroupDetails>) -> ControlFlow<()>,
    ) {
        let mut known = self.lock();
        if known.walked.elapsed() >= self.max_age {
            // On failure the known cgroups stay known while they exist.
            let _ = known.walk();
        }
        let hierarchies = known.hierarchies();
        for path in paths {
            if visit(known.lookup(path, &hierarchies)).is_break() {
                return;
            }
        }
    }

    /// No code that holds this lock can panic halfway through a change.
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn walk(&mut self) -> Result<(), ScanError> {
        self.walked = Instant::now();
        let entries = self.scanner.scan()?.entries.into_iter();
        self.by_path = entries.map(|entry| (entry.path.clone(), entry)).collect();
        Ok(())
    }

    fn hierarchies(&self) -> Option<Vec<Hierarchy>> {
        hierarchy::find(self.scanner.root(), self.scanner.primary()).ok().map(|(_, found)| found)
    }

    fn lookup(
        &mut self,
        path: &str,
        hierarchies: &Option<Vec<Hierarchy>>,
    ) -> Lookup<CgroupDetails> {
        if path.len() > MAX_PATH {
            return Lookup::TooLarge;
        }
        if !is_path(path) {
            return Lookup::Unknown;
        }
        let Some(hierarchies) = hierarchies else { return Lookup::RetryLater };
        let mut seen = self.see(path, hierarchies);
        if matches!(seen, Seen::Other) && self.walked.elapsed() >= EAGER && self.walk().is_ok() {
            seen = self.see(path, hierarchies);
        }
        match (seen, self.by_path.get(path)) {
            (Seen::Same, Some(entry)) => Lookup::Known(details(entry)),
            (Seen::Nothing, _) => Lookup::Unknown,
            _ => Lookup::RetryLater,
        }
    }

    fn see(&self, path: &str, hierarchies: &[Hierarchy]) -> Seen {
        let known = self.by_path.get(path).map(|entry| entry.id);
        let mut is_unreadable = false;
        for (rank, hierarchy) in (0_u64..).zip(hierarchies) {
            match inode(hierarchy, path) {
                Ok(inode) if known == Some(rank << 56 | inode) => return Seen::Same,
                // The first hierarchy that has it determines its identity.
                Ok(_) => return Seen::Other,
                Err(error) => is_unreadable |= error.kind() == std::io::ErrorKind::PermissionDenied,
            }
        }
        if is_unreadable { Seen::Unreadable } else { Seen::Nothing }
    }
}

fn inode(hierarchy: &Hierarchy, path: &str) -> std::io::Result<u64> {
    match path.strip_prefix('/').filter(|inside| !inside.is_empty()) {
        None => Ok(hierarchy.inode),
        Some(inside) => {
            let stat = hierarchy.dir.symlink_metadata(inside)?;
            if stat.is_dir() { Ok(stat.ino()) } else { Err(std::io::ErrorKind::NotFound.into()) }
        }
    }
}

/// Returns whether a cgroup can have this path.
fn is_path(path: &str) -> bool {
    let Some(inside) = path.strip_prefix('/') else { return false };
    let is_name = |name: &str| check_name(name).is_ok() && !matches!(name, "" | "." | "..");
    inside.is_empty() || inside.split('/').all(is_name)
}

fn details(entry: &CgroupEntry) -> CgroupDetails {
    CgroupDetails {
        id: entry.id,
        name: entry.name.clone(),
        options: entry.options,
        enabled: entry.enabled,
        orchestrator: entry.orchestrator,
        labels: labels(&entry.path).into_iter().chain(entry.labels.iter().cloned()).collect(),
    }
}
