use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, OpenOptions};

use super::hierarchy::Kind;
use super::skipped::is_gone;

/// A cgroup's use according to its own files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Population {
    /// A process is in it; with v2, in it or below it.
    pub(super) populated: bool,
    /// A resource controller accounts for it.
    pub(super) accounted: bool,
    /// A file counts processes of every pid namespace. `cgroup.procs` of v1 leaves out those that the reader cannot name.
    pub(super) counted: bool,
}

/// Reads the files of the cgroup `name` in `parent`.
pub(super) fn of_child(kind: Kind, parent: &Dir, name: &OsStr) -> io::Result<Population> {
    let mut path = PathBuf::from(name);
    path.push("file");
    let mut first_bytes = |file: &str, buffer: &mut [u8]| {
        path.set_file_name(file);
        read_start(parent, &path, buffer)
    };
    let mut buffer = [0; 256];
    match kind {
        Kind::Unified => {
            let len = first_bytes("cgroup.events", &mut buffer)?;
            let populated = is_populated(buffer.get(..len).unwrap_or(&[]));
            let accounted =
                populated || is_not_blank(first_bytes("cgroup.controllers", &mut buffer)?, &buffer);
            Ok(Population { populated, accounted, counted: true })
        }
        Kind::Controllers(_) | Kind::Named => {
            let count = first_bytes("pids.current", &mut buffer)?;
            let counted = count > 0;
            let mut populated = counted && buffer.get(..count) != Some(b"0\n");
            if !counted {
                populated = first_bytes("cgroup.procs", &mut buffer)? > 0;
            }
            Ok(Population { populated, accounted: populated || kind != Kind::Named, counted })
        }
    }
}

/// The root of a hierarchy has no `cgroup.events`, and always has processes.
pub(super) const ROOT: Population = Population { populated: true, accounted: true, counted: true };

fn is_populated(events: &[u8]) -> bool {
    events.split(|byte| *byte == b'\n').any(|line| line == b"populated 1")
}

fn is_not_blank(len: usize, buffer: &[u8]) -> bool {
    buffer.iter().take(len).any(|byte| !byte.is_ascii_whitespace())
}

/// Reads the start of a file. A missing file, of a kernel without it or of a removed cgroup, counts as empty.
fn read_start(parent: &Dir, path: &Path, buffer: &mut [u8]) -> io::Result<usize> {
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No).nonblock(true);
    let mut file = match parent.open_with(path, &options) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::Unsupported => {
                return Ok(0);
            }
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_events_is_read_by_line() {
        assert!(is_populated(b"populated 1\nfrozen 0\n"));
        assert!(is_populated(b"frozen 0\npopulated 1\n"));
        assert!(!is_populated(b"populated 0\nfrozen 1\n"));
        assert!(!is_populated(b""));
    }
}
