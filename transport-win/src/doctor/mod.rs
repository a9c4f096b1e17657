//! Tries each part of Windows that this transport uses, and looks for limits that bite.
//!
//! What is there is tried, not guessed from a version number. Nothing is changed.

mod doorbells;
mod limits;
mod memory;
mod peers;
mod run_dir;
mod shared;
mod system;

use std::path::Path;
use std::process::Command;

use bellwire_core::doctor::Check;

pub use shared::shared_memory;
pub use system::{account, group_named, system, user_named};

/// All checks, in the order in which they are best read. `child` is a program that ends at once by itself: how the end
/// of a process shows is tried with it.
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
