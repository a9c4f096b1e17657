//! Reads the machine's cgroup hierarchy into the items of a `cgroups-snapshot`.
//!
//! | mounted below the root | mode | walked |
//! | --- | --- | --- |
//! | `cgroup.controllers` | v2 | the root |
//! | only `unified` | v2 | `unified` |
//! | controller directories | v1 | every hierarchy |
//! | controller directories and `unified` | hybrid | every hierarchy |
//!
//! A cgroup that several hierarchies hold is one item, by its path. Its id is the inode of its directory
//! in the primary hierarchy, which is the first, in the order of [`hierarchy`], that has a cgroup besides
//! its root: `unified` wherever it is in use. A scanner that has chosen one keeps it, so that ids do not
//! change when a cgroup appears in a hierarchy that had none. Inodes of two hierarchies can be the same number, so an
//! item that the primary one lacks carries [`Options::SECONDARY`](bellwire::cgroups::Options::SECONDARY).

mod hierarchy;
mod identity;
mod labels;
mod lookup;
mod orchestrator;
mod population;
mod scan;
mod skipped;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use hierarchy::v1_rank;
pub(crate) use lookup::Directory;
pub(crate) use orchestrator::orchestrator_of;
pub(crate) use scan::{Limits, Scan, ScanError, Scanner};
pub(crate) use skipped::Skipped;
