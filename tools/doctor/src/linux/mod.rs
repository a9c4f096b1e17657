//! Tries each kernel feature that the Linux transport uses, and looks for limits that are too low.
//!
//! It tries features instead of guessing from a version number, and changes nothing.

mod doorbells;
mod limits;
mod memory;
mod optional;
mod peers;
mod run_dir;
mod shared;

use std::path::Path;
use std::process::Command;

use crate::check::Check;

pub use shared::shared_memory;

use bellwire_memfd::peer::{self, User};

/// Returns all checks, in reading order. `child` is a program that exits immediately by itself; it shows how the end of a
/// process is reported.
pub fn checks(run_dir: &Path, child: &mut Command) -> Vec<Check> {
    [
        memory::checks(),
        doorbells::checks(),
        peers::checks(child),
        limits::checks(),
        run_dir::checks(run_dir),
        optional::checks(),
    ]
    .concat()
}

/// Returns the running system and its release, such as `Linux 6.18.0`.
pub fn system() -> String {
    let system = rustix::system::uname();
    format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy())
}

/// Returns the user of this name.
pub fn user_named(name: &str) -> Option<User> {
    uzers::get_user_by_name(name).map(|user| user.uid().into())
}

/// Returns the group of this name.
pub fn group_named(name: &str) -> Option<peer::Group> {
    uzers::get_group_by_name(name).map(|group| group.gid().into())
}

/// Returns a user's name, if it has one here.
pub fn account(user: User) -> Option<String> {
    uzers::get_user_by_uid(user.uid()).map(|user| user.name().to_string_lossy().into_owned())
}
