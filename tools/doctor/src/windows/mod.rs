//! Tries each feature that the Windows transport uses, and looks for limits that are too low.
//!
//! It tries features instead of guessing from a version number, and changes nothing.

mod doorbells;
mod limits;
mod memory;
mod peers;
mod run_dir;
mod shared;
mod system;

use std::path::Path;
use std::process::Command;

use crate::check::Check;

pub use shared::shared_memory;
pub use system::{account, group_named, system, user_named};

/// Returns all checks, in reading order. `child` is a program that exits immediately by itself; it shows how the end of a
/// process is reported.
pub fn checks(run_dir: &Path, child: &mut Command) -> Vec<Check> {
    [
        memory::checks(),
        doorbells::checks(),
        peers::checks(child),
        limits::checks(),
        run_dir::checks(run_dir),
    ]
    .concat()
}
