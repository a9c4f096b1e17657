use std::fs;
use std::io;
use std::path::Path;

use crate::check::{Check, CheckResult, Finding, Group};

/// Checks the directory in which providers and clients meet.
pub(super) fn checks(run_dir: &Path) -> Vec<Check> {
    let mut group = Group::new("run dir");
    let advice = "name a directory of your own with --run-dir DIR or BELLWIRE_RUN_DIR";
    group.optional("directory", advice, directory(run_dir));
    group.into_checks()
}

/// Checks the directory. It only holds lock files; the pipe controls who may connect.
fn directory(path: &Path) -> CheckResult {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(Finding::ok(shown.to_string())),
        Ok(_) => Err(format!("{shown} is not a directory").into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(absent(path)),
        Err(error) => Err(format!("{shown}: {error}").into()),
    }
}

fn absent(path: &Path) -> Finding {
    let shown = path.display();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if parent.unwrap_or(Path::new(".")).is_dir() {
        return Finding::ok(format!("{shown} is not there yet; the first provider makes it"));
    }
    Finding::limited(
        format!("{shown} is not there, nor the directory that it would be in"),
        "make that, or name another with --run-dir DIR or BELLWIRE_RUN_DIR",
    )
}
