//! Reads processes from `/proc`, for `apps-lookup`.
//!
//! The directory of a process is opened once and its files relative to it: they belong to that process, or fail because it is
//! gone, even if its pid was reused.

mod text;

#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;

use crate::App;
use bellwire::Lookup;
use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use bellwire_cgroups::scan::{Identity, labels};
use text::{Stat, Status};

/// `ESRCH`, which the kernel returns for files of a process that is gone. `io::ErrorKind` has no name for it.
const NO_PROCESS: i32 = 3;
/// The first process, which exists as long as its pid namespace.
const FIRST: &str = "1";
/// More bytes than any of the files has.
const MOST: u64 = 64 << 10;

/// The processes of this machine, or of this process's pid namespace.
#[derive(Debug)]
pub struct Processes {
    dir: Dir,
}

/// Why no processes can be read.
#[derive(Debug)]
pub enum ProcError {
    /// The system has no such directory: it is not Linux, or nothing is mounted there.
    Missing,
    /// It cannot be read.
    Unreadable(io::Error),
}

impl Processes {
    /// Where a Linux system shows its processes.
    pub const ROOT: &str = "/proc";

    /// Opens the process directory at `root`.
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        let unread = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ProcError::Missing,
            _ => ProcError::Unreadable(error),
        };
        let dir = Dir::open_ambient_dir(root, ambient_authority()).map_err(unread)?;
        dir.symlink_metadata("self").map_err(unread)?;
        Ok(Self { dir })
    }

    /// Returns whether processes of other users are hidden from this one (`hidepid`, proc(5)).
    pub fn is_hiding(&self) -> bool {
        let first = self.dir.open_dir_nofollow(FIRST);
        first.and_then(|first| first.open("stat")).is_err()
    }

    /// Returns the process with that pid.
    pub fn lookup(&self, pid: u32) -> Lookup<App> {
        match self.read(pid) {
            Ok(Some(app)) => Lookup::Known(app),
            Ok(None) => Lookup::Unknown,
            // A hidden process may exist.
            Err(error) if is_gone(&error) && !self.is_hiding() => Lookup::Unknown,
            Err(_) => Lookup::RetryLater,
        }
    }

    /// Reads a process; returns `None` for the id of a thread that is not a process.
    fn read(&self, pid: u32) -> io::Result<Option<App>> {
        let dir = self.dir.open_dir_nofollow(pid.to_string())?;
        let Status { process, uid } = Status::parse(&contents(&dir, "status")?)?;
        if process != pid {
            return Ok(None);
        }
        let Stat { comm, ppid, started } = Stat::parse(&contents(&dir, "stat")?)?;
        // A kernel without cgroups has no such file.
        let cgroup = match contents(&dir, "cgroup") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => text::cgroup(&read?),
        };
        let Identity { orchestrator, name, .. } = Identity::of(&cgroup);
        let cgroup_name = if cgroup.is_empty() { String::new() } else { name };
        let labels = labels(&cgroup);
        Ok(Some(App {
            ppid,
            uid,
            started,
            comm,
            cgroup,
            orchestrator,
            cgroup_name,
            labels,
            pending: false,
        }))
    }
}

fn contents(dir: &Dir, file: &str) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    dir.open(file)?.take(MOST).read_to_end(&mut contents)?;
    Ok(contents)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_PROCESS)
}
