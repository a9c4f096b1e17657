//! Reads the machine's cgroup hierarchy into the items of a `cgroups-snapshot`.
//!
//! | mounted below the root | mode | walked |
//! | --- | --- | --- |
//! | `cgroup.controllers` | v2 | the root |
//! | only `unified` | v2 | `unified` |
//! | controller directories | v1 | every hierarchy |
//! | controller directories and `unified` | hybrid | every hierarchy |
//!
//! A cgroup that exists in several hierarchies is one item, by its path. Its id is the inode of its directory in the primary
//! hierarchy, which is the first, in the order of `hierarchy.rs`, that has a cgroup besides its root: `unified` wherever it is
//! in use. A scanner keeps its choice, so that ids do not change when a cgroup appears in a hierarchy that had none. Inodes
//! of two hierarchies can be equal, so an item that is missing in the primary one carries
//! [`Options::SECONDARY`](crate::Options::SECONDARY).

mod hierarchy;
mod identity;
mod labels;
mod lookup;
mod orchestrator;
mod population;
mod scanner;
mod skipped;
mod walk;

#[cfg(test)]
mod tests;

pub use hierarchy::v1_rank;
pub use identity::{Identity, shortened};
pub use labels::{Labels, labels};
pub use lookup::Directory;
pub use orchestrator::owner_of;
pub use scanner::{Limits, Scan, ScanError, Scanner};
pub use skipped::Skipped;
