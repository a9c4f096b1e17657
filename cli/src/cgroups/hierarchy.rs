use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use bellwire::cgroups::Mode;
use rustix::fs::{AtFlags, CWD, FileType, Mode as FileMode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::scan::ScanError;
use super::walk::Listing;

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

/// What a hierarchy is for. The order is that of preference for a cgroup's identity.
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
    pub(super) dir: OwnedFd,
    pub(super) inode: u64,
    pub(super) device: u64,
    name: Vec<u8>,
    has_children: bool,
}

/// The hierarchies below a root, the primary one first: the one that was `primary` before, as long as it is
/// there, or else the first that is in use.
pub(super) fn find(
    root: &Path,
    listing: &mut Listing,
    primary: Option<&[u8]>,
) -> Result<(Mode, Vec<Hierarchy>), ScanError> {
    let unreadable =
        |errno: Errno| ScanError::Root { root: root.to_owned(), source: io::Error::from(errno) };
    // The root is the operator's choice, and may be a link; nothing below it may.
    let flags = FLAGS.difference(OFlags::NOFOLLOW);
    let dir = openat(CWD, root, flags, FileMode::empty()).map_err(unreadable)?;
    if holds(&dir, "cgroup.controllers") {
        let stat = fstat(&dir).map_err(unreadable)?;
        let only = Hierarchy {
            kind: Kind::Unified,
            dir,
            inode: stat.st_ino,
            device: stat.st_dev,
            name: Vec::new(),
            has_children: true,
        };
        return Ok((Mode::V2, vec![only]));
    }

    let mut found: Vec<Hierarchy> = Vec::new();
    for name in listing.directories(&dir).map_err(unreadable)? {
        // A directory that cannot be opened is not one that can be walked; others may be.
        let Some(hierarchy) = open(&dir, name.to_bytes(), listing) else { continue };
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
    let before = found.iter().position(|hierarchy| Some(hierarchy.name.as_slice()) == primary);
    let in_use = || found.iter().position(|hierarchy| hierarchy.has_children);
    if let Some(primary) = before.or_else(in_use) {
        let primary = found.remove(primary);
        found.insert(0, primary);
    }
    Ok((mode, found))
}

impl Hierarchy {
    /// Its directory's name, if it has a cgroup besides its root.
    pub(super) fn name_in_use(&self) -> Option<&[u8]> {
        self.has_children.then_some(&self.name)
    }
}

/// How directories are opened: never through a symbolic link.
pub(super) const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(parent: &OwnedFd, name: &[u8], listing: &mut Listing) -> Option<Hierarchy> {
    let dir = openat(parent, name, FLAGS, FileMode::empty()).ok()?;
    let kind = if holds(&dir, "cgroup.controllers") {
        Kind::Unified
    } else if holds(&dir, "cgroup.procs") {
        kind_of(name)
    } else {
        return None;
    };
    let stat = fstat(&dir).ok()?;
    let has_children = !listing.directories(&dir).ok()?.is_empty();
    let name = name.to_vec();
    Some(Hierarchy { kind, dir, inode: stat.st_ino, device: stat.st_dev, name, has_children })
}

/// A v1 hierarchy is mounted at its controllers' names, joined by commas.
fn kind_of(name: &[u8]) -> Kind {
    let rank =
        |controller: &[u8]| CONTROLLERS.iter().position(|known| known.as_bytes() == controller);
    let ranks: Option<Vec<usize>> = name.split(|byte| *byte == b',').map(rank).collect();
    ranks.and_then(|ranks| ranks.into_iter().min()).map_or(Kind::Named, Kind::Controllers)
}

fn holds(dir: &OwnedFd, file: &str) -> bool {
    statat(dir, file, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
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
