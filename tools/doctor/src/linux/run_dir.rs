use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::check::{Check, CheckResult, Finding, Group};
use bellwire_core::ServiceName;
use bellwire_memfd::endpoint::MAX_PATH;
use bellwire_memfd::peer::own_uid;

/// Checks the directory in which providers and clients meet.
pub(super) fn checks(run_dir: &Path) -> Vec<Check> {
    let mut group = Group::new("run dir");
    let advice = "name a directory of your own with --run-dir DIR or BELLWIRE_RUN_DIR";
    group.optional("directory", advice, directory(run_dir));
    group.optional("length of its path", "", Ok(length(run_dir)));
    group.into_checks()
}

fn directory(path: &Path) -> CheckResult {
    let shown = path.display();
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(absent(path)),
        Err(error) => return Err(format!("{shown}: {error}").into()),
    };
    if !metadata.is_dir() {
        return Err(format!("{shown} is not a directory").into());
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let owner = metadata.uid();
    let detail = format!("{shown}, owner {}, mode {mode:04o}", name(owner));
    if owner != own_uid() && owner != 0 {
        return Ok(Finding::limited(
            format!("{detail}: belongs to another user, who could replace what is in it"),
            format!("chown it to {} or root, or name another with --run-dir", name(own_uid())),
        ));
    }
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        return Ok(Finding::limited(
            format!("{detail}: other users may replace what is in it, so nothing is served there"),
            format!("chmod go-w {shown}"),
        ));
    }
    Ok(Finding::ok(detail))
}

fn absent(path: &Path) -> Finding {
    let shown = path.display();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let writable = rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).is_ok();
    if writable {
        return Finding::ok(format!("{shown} is not there yet; the first provider makes it"));
    }
    Finding::limited(
        format!("{shown} is not there, and this user cannot make it"),
        "name a directory of your own with --run-dir DIR or BELLWIRE_RUN_DIR, or make it as root",
    )
}

/// Checks the length: a socket's path holds the run dir and up to `/cgroups-snapshot.sock` and the like.
fn length(path: &Path) -> Finding {
    let room = MAX_PATH.saturating_sub(path.as_os_str().len() + "/.sock".len());
    if room >= "cgroups-snapshot".len() {
        let room = room.min(ServiceName::MAX);
        return Finding::ok(format!("leaves service names {room} bytes"));
    }
    Finding::limited(
        format!("leaves service names {room} bytes of a socket's {MAX_PATH}"),
        "use a shorter run dir",
    )
}

fn name(uid: u32) -> String {
    super::account(uid.into()).unwrap_or(uid.to_string())
}
