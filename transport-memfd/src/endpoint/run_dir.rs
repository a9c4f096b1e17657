//! The run directory: where it is, who may change what is in it, and who may pass through it.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::RunDirError;
use super::no_follow;
use crate::admission::{self, Admission};
use crate::peer::{self, User, own_uid};

/// Returns the default run directory: `bellwire` below `XDG_RUNTIME_DIR`, or `/run/bellwire` without that.
pub fn default_run_dir() -> PathBuf {
    run_dir_below(std::env::var_os("XDG_RUNTIME_DIR"))
}

fn run_dir_below(runtime: Option<OsString>) -> PathBuf {
    match runtime.filter(|runtime| !runtime.is_empty()) {
        Some(runtime) => Path::new(&runtime).join("bellwire"),
        None => "/run/bellwire".into(),
    }
}

/// Creates the run directory (mode 0700) if it is missing, and refuses one in which other users could replace what this
/// process puts there.
///
/// # Errors
/// [`RunDirError`] says what is wrong and how to fix it.
pub fn prepare_run_dir(path: &Path) -> Result<(), RunDirError> {
    prepare_for(path, &Admission::SameUser, false)
}

/// Prepares the run directory for these users. A new directory is opened to them; an existing one is unchanged, and refused
/// if they cannot pass through it.
pub(super) fn prepare_for(
    path: &Path,
    admission: &Admission,
    group_may_write: bool,
) -> Result<(), RunDirError> {
    let system = |source| RunDirError::System { path: path.to_owned(), source };
    let is_made = match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(source) => return Err(system(source)),
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(|source| match source {
        Errno::NOTDIR | Errno::LOOP => RunDirError::NotADirectory { path: path.to_owned() },
        source => system(source),
    })?;
    let stat = rustix::fs::fstat(&dir).map_err(system)?;
    if !is_trusted(stat.st_uid) {
        return Err(RunDirError::ForeignOwner { path: path.to_owned(), owner: stat.st_uid });
    }
    let mode = stat.st_mode & 0o7777;
    let others = if group_may_write { 0o002 } else { 0o022 };
    if mode & others != 0 && mode & 0o1000 == 0 {
        return Err(RunDirError::WritableByOthers { path: path.to_owned(), mode });
    }
    if is_made && *admission != Admission::SameUser {
        // Set the group before the mode, so that no other group can ever pass.
        if let Some(group) = admission::group(admission) {
            let given = rustix::fs::fchown(&dir, None, Some(group));
            given.map_err(|source| {
                // The next attempt shall find the same state as this one.
                let _ = rustix::fs::rmdir(path);
                not_given(path, admission, source)
            })?;
        }
        let [_, mode] = admission::modes(admission);
        return rustix::fs::fchmod(&dir, mode).map_err(system);
    }
    let is_open = match admission {
        Admission::SameUser => true,
        Admission::Group(group) if group.gid() == stat.st_gid && mode & 0o010 != 0 => true,
        // An access control list is left to its author to get right.
        _ => mode & 0o001 != 0 || has_acl(&dir),
    };
    if is_open {
        return Ok(());
    }
    let (path, admitted) = (path.to_owned(), admission.to_string());
    Err(RunDirError::Closed { path, mode, group: stat.st_gid, admitted })
}

/// Returns whether a directory has an access control list ([`acl(5)`](https://man7.org/linux/man-pages/man5/acl.5.html)).
fn has_acl(dir: &OwnedFd) -> bool {
    let mut nothing = [0_u8; 0];
    rustix::fs::fgetxattr(dir, "system.posix_acl_access", &mut nothing).is_ok_and(|len| len > 0)
}

pub(super) fn not_given(path: &Path, admission: &Admission, source: Errno) -> RunDirError {
    match (admission, source) {
        (Admission::Group(group), Errno::PERM) => {
            RunDirError::NotInGroup { path: path.to_owned(), group: *group }
        }
        (_, source) => RunDirError::System { path: path.to_owned(), source },
    }
}

/// In a user namespace that does not map them, all other users look like this one.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == 0 || (uid == own_uid() && !peer::is_overflow(uid))
}

/// Returns the owner of the run directory if this process is root's and nobody else can replace its contents: each directory
/// from the root of the file system on belongs to root or to that owner, only its owner may write to it, and none is a
/// symbolic link.
///
/// Root gave such a directory to its owner, who could stop or replace each service in it; refusing the owner to clients of
/// root would keep nobody out. Returns `None` for other users' processes, and for a program that got its rights from its file, as
/// a setuid one does: whoever starts it names the run directory.
pub fn owner_trusted_by_root(run_dir: &Path) -> Option<User> {
    if own_uid() != 0 || peer::is_privileged_by_its_file() {
        return None;
    }
    let owner = no_follow(run_dir).ok()?.st_uid;
    if owner == 0 || peer::is_overflow(owner) {
        return None;
    }
    // The path as written: whoever can replace a link on the way could lead root elsewhere, so links are not safe.
    let path = std::path::absolute(run_dir).ok()?;
    let is_safe = |dir: &Path| {
        no_follow(dir).is_ok_and(|stat| {
            [0, owner].contains(&stat.st_uid)
                && stat.st_mode & 0o022 == 0
                && FileType::from_raw_mode(stat.st_mode).is_dir()
        })
    };
    path.ancestors().all(is_safe).then_some(User::from(owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_runtime_dir_takes_precedence_over_the_machines() {
        assert_eq!(run_dir_below(Some("/b".into())), Path::new("/b/bellwire"));
        assert_eq!(run_dir_below(Some(OsString::new())), Path::new("/run/bellwire"));
        assert_eq!(run_dir_below(None), Path::new("/run/bellwire"));
    }
}
