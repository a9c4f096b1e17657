use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::{Mode, check_label};
use cap_fs_ext::{DirExt, MetadataExt};
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::scanner::ScanError;
use super::walk::directories;

/// The v1 controllers, in the order in which their hierarchies are preferred for a cgroup's identity:
/// first those that collectors read.
const CONTROLLERS: [&str; 16] = [
    "cpuacct",
    "cpu",
    "memory",
    "blkio",
    "pids",
    "devices",
    "freezer",
    "cpuset",
    "net_cls",
    "net_prio",
    "perf_event",
    "hugetlb",
    "rdma",
    "misc",
    "dmem",
    "debug",
];

/// The kind of a hierarchy, in order of preference for a cgroup's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The v2 hierarchy.
    Unified,
    /// A v1 hierarchy with controllers, by its place in [`CONTROLLERS`].
    Controllers(usize),
    /// A v1 hierarchy that only groups processes, such as systemd's.
    Named,
}

/// One mounted hierarchy.
#[derive(Debug)]
pub(super) struct Hierarchy {
    pub(super) kind: Kind,
    pub(super) dir: Dir,
    pub(super) inode: u64,
    pub(super) device: u64,
    pub(super) name: OsString,
    has_children: bool,
}

/// Returns the hierarchies below a root, the primary one first: the previous `primary` while it exists, otherwise the first
/// that is in use.
pub(super) fn find(
    root: &Path,
    primary: Option<&OsStr>,
) -> Result<(Mode, Vec<Hierarchy>), ScanError> {
    let unreadable = |source: io::Error| ScanError::Root { root: root.to_owned(), source };
    // The operator chooses the root, which may be a link; nothing below it may be one.
    let dir = Dir::open_ambient_dir(root, ambient_authority()).map_err(unreadable)?;
    if holds(&dir, "cgroup.controllers") {
        let stat = dir.dir_metadata().map_err(unreadable)?;
        let only = Hierarchy {
            kind: Kind::Unified,
            dir,
            inode: stat.ino(),
            device: stat.dev(),
            name: OsString::new(),
            has_children: true,
        };
        return Ok((Mode::V2, vec![only]));
    }

    let mut found: Vec<Hierarchy> = Vec::new();
    for name in directories(&dir).map_err(unreadable)? {
        // A directory that cannot be opened cannot be walked; others may be.
        let Some(hierarchy) = open(&dir, name) else { continue };
        let same = |other: &Hierarchy| {
            (other.device, other.inode) == (hierarchy.device, hierarchy.inode)
                && other.kind == hierarchy.kind
        };
        if !found.iter().any(same) {
            found.push(hierarchy);
        }
    }
    found.sort_by(|a, b| a.kind.cmp(&b.kind).then_with(|| a.name.cmp(&b.name)));

    let unified = found.iter().any(|hierarchy| hierarchy.kind == Kind::Unified);
    let legacy = found.iter().any(|hierarchy| hierarchy.kind != Kind::Unified);
    let mode = match (unified, legacy) {
        (true, true) => Mode::Hybrid,
        (true, false) => Mode::V2,
        (false, true) => Mode::V1,
        (false, false) => return Err(ScanError::NoHierarchy { root: root.to_owned() }),
    };
    let before = found.iter().position(|hierarchy| Some(hierarchy.name.as_os_str()) == primary);
    let in_use = || found.iter().position(|hierarchy| hierarchy.has_children);
    if let Some(primary) = before.or_else(in_use) {
        let primary = found.remove(primary);
        found.insert(0, primary);
    }
    Ok((mode, found))
}

impl Hierarchy {
    /// Returns its name and where it is, for snapshots. `below` is the root of all hierarchies.
    pub(super) fn mounted(&self, below: &Path) -> crate::Hierarchy {
        let name = match self.kind {
            Kind::Unified => "unified",
            Kind::Controllers(_) | Kind::Named => self.name.to_str().unwrap_or_default(),
        };
        // Without a final slash for the root itself.
        let root = if self.name.is_empty() { below.to_owned() } else { below.join(&self.name) };
        let root = root.to_str().filter(|root| check_label("root", root).is_ok());
        crate::Hierarchy { name: name.into(), root: root.unwrap_or_default().into() }
    }

    /// Returns its directory's name, if it has a cgroup besides its root.
    pub(super) fn name_in_use(&self) -> Option<&OsStr> {
        self.has_children.then_some(&self.name)
    }
}

fn open(parent: &Dir, name: OsString) -> Option<Hierarchy> {
    let dir = parent.open_dir_nofollow(&name).ok()?;
    let kind = if holds(&dir, "cgroup.controllers") {
        Kind::Unified
    } else if holds(&dir, "cgroup.procs") {
        kind_of(name.as_encoded_bytes())
    } else {
        return None;
    };
    let stat = dir.dir_metadata().ok()?;
    let has_children = !directories(&dir).ok()?.is_empty();
    Some(Hierarchy { kind, dir, inode: stat.ino(), device: stat.dev(), name, has_children })
}

/// Returns the kind of a hierarchy. A v1 hierarchy is mounted at its controllers' names, joined by commas.
fn kind_of(name: &[u8]) -> Kind {
    let rank =
        |controller: &[u8]| CONTROLLERS.iter().position(|known| known.as_bytes() == controller);
    let ranks: Option<Vec<usize>> = name.split(|byte| *byte == b',').map(rank).collect();
    ranks.and_then(|ranks| ranks.into_iter().min()).map_or(Kind::Named, Kind::Controllers)
}

/// Returns the rank of a v1 hierarchy by its controllers, joined by commas: lower ranks are preferred.
pub fn v1_rank(controllers: &[u8]) -> usize {
    match kind_of(controllers) {
        Kind::Controllers(rank) => rank,
        Kind::Unified | Kind::Named => CONTROLLERS.len(),
    }
}

fn holds(dir: &Dir, file: &str) -> bool {
    dir.symlink_metadata(file).is_ok_and(|stat| stat.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_v1_hierarchy_is_known_by_its_mount_points_name() {
        assert_eq!(kind_of(b"cpu,cpuacct"), Kind::Controllers(0));
        assert_eq!(kind_of(b"memory"), Kind::Controllers(2));
        assert_eq!(kind_of(b"systemd"), Kind::Named);
        assert!(Kind::Unified < Kind::Controllers(0) && Kind::Controllers(9) < Kind::Named);
    }
}
