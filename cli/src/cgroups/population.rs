use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, read, retry_on_intr};

use super::hierarchy::Kind;

/// What a cgroup's own files say of its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Population {
    /// There is a process in it; with v2, in it or below it.
    pub(super) populated: bool,
    /// A resource controller accounts it.
    pub(super) accounted: bool,
}

/// Reads the files of the cgroup `name` in `parent`.
pub(super) fn of_child(kind: Kind, parent: &OwnedFd, name: &[u8]) -> Result<Population, Errno> {
    let mut path = [name, b"/"].concat();
    let stem = path.len();
    let mut first_bytes = |file: &[u8], buffer: &mut [u8]| {
        path.truncate(stem);
        path.extend_from_slice(file);
        read_start(parent, &path, buffer)
    };
    let mut buffer = [0; 256];
    match kind {
        Kind::Unified => {
            let len = first_bytes(b"cgroup.events", &mut buffer)?;
            let populated = says_populated(buffer.get(..len).unwrap_or(&[]));
            let accounted = populated
                || is_not_blank(first_bytes(b"cgroup.controllers", &mut buffer)?, &buffer);
            Ok(Population { populated, accounted })
        }
        Kind::Controllers(_) | Kind::Named => {
            let populated = first_bytes(b"cgroup.procs", &mut buffer)? > 0;
            Ok(Population { populated, accounted: populated || kind != Kind::Named })
        }
    }
}

/// The root of a hierarchy has no `cgroup.events`, and always has processes.
pub(super) const ROOT: Population = Population { populated: true, accounted: true };

fn says_populated(events: &[u8]) -> bool {
    events.split(|byte| *byte == b'\n').any(|line| line == b"populated 1")
}

fn is_not_blank(len: usize, buffer: &[u8]) -> bool {
    buffer.iter().take(len).any(|byte| !byte.is_ascii_whitespace())
}

/// Files that a kernel does not have are empty; a cgroup that is gone answers `ENODEV`.
fn read_start(parent: &OwnedFd, path: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(parent, path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(0),
        Err(errno) => return Err(errno),
    };
    match retry_on_intr(|| read(&file, &mut *buffer)) {
        Ok(len) => Ok(len),
        Err(Errno::NODEV | Errno::OPNOTSUPP) => Ok(0),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_events_is_read_by_line() {
        assert!(says_populated(b"populated 1\nfrozen 0\n"));
        assert!(says_populated(b"frozen 0\npopulated 1\n"));
        assert!(!says_populated(b"populated 0\nfrozen 1\n"));
        assert!(!says_populated(b""));
    }
}
