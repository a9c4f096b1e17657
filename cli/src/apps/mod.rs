//! Reads who a process is from `/proc`, for `apps-lookup`.
//!
//! The directory of a process is opened once, and its files are opened below it: they are that process's, or they say
//! that it is gone, though its number may be in use again.

mod text;

#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;

use bellwire::Lookup;
use bellwire::apps::App;
use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::cgroups::orchestrator_of;
use text::{Stat, Status};

/// `ESRCH`, which the kernel answers for files of a process that is gone. `io::ErrorKind` has no name for it.
const NO_PROCESS: i32 = 3;
/// The first process, which is there as long as its pid namespace.
const FIRST: &str = "1";
/// More than any of the files has.
const MOST: u64 = 64 << 10;

/// The processes of this machine, or of this process's pid namespace.
#[derive(Debug)]
pub(crate) struct Processes {
    dir: Dir,
}

/// Why there are no processes to be read.
#[derive(Debug)]
pub(crate) enum ProcError {
    /// The system has none of it: no Linux, or nothing is mounted there.
    Missing,
    /// It cannot be read.
    Unreadable(io::Error),
}

impl Processes {
    /// Where a Linux system shows its processes.
    pub(crate) const ROOT: &str = "/proc";

    /// The processes that are shown at `root`.
    pub(crate) fn open(root: &Path) -> Result<Self, ProcError> {
        let unread = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ProcError::Missing,
            _ => ProcError::Unreadable(error),
        };
        let dir = Dir::open_ambient_dir(root, ambient_authority()).map_err(unread)?;
        dir.symlink_metadata("self").map_err(unread)?;
        Ok(Self { dir })
    }

    /// Whether processes of other users are hidden from this one (`hidepid`, proc(5)).
    pub(crate) fn is_hiding(&self) -> bool {
        let first = self.dir.open_dir_nofollow(FIRST);
        first.and_then(|first| first.open("stat")).is_err()
    }

    /// Who that process is.
    pub(crate) fn look(&self, pid: u32) -> Lookup<App> {
        match self.read(pid) {
            Ok(Some(app)) => Lookup::Known(app),
            Ok(None) => Lookup::Unknown,
            // What is hidden may be there.
            Err(error) if is_gone(&error) && !self.is_hiding() => Lookup::Unknown,
            Err(_) => Lookup::RetryLater,
        }
    }

    /// `None` for the number of a thread that is no process.
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
        let orchestrator = orchestrator_of(&cgroup);
        Ok(Some(App { ppid, uid, started, comm, cgroup, orchestrator }))
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
