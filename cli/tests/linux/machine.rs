//! Cgroups and processes of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::support::spawn;

/// A cgroup, with its parents; removed at the end.
pub(crate) struct RealCgroup {
    /// Those that were made, the outermost first.
    pub(crate) dirs: Vec<PathBuf>,
    pub(crate) path: String,
}

impl RealCgroup {
    /// Makes a path of components, below the unified hierarchy or that of memory.
    pub(crate) fn new(components: &[&str]) -> Option<Self> {
        let roots = ["unified", "", "memory"].map(|name| Path::new("/sys/fs/cgroup").join(name));
        let mut roots = roots.into_iter().filter(|root| root.join("cgroup.procs").exists());
        let made = roots.find_map(|root| Self::below(&root, components));
        if made.is_none() {
            eprintln!("skipped: this user may not make a cgroup");
        }
        made
    }

    /// Makes it below the root of a hierarchy.
    pub(crate) fn below(root: &Path, components: &[&str]) -> Option<Self> {
        let mut made = Self { dirs: Vec::new(), path: String::new() };
        let mut dir = root.to_owned();
        for component in components {
            dir.push(component);
            made.path += &format!("/{component}");
            if fs::create_dir(&dir).is_ok() {
                made.dirs.push(dir.clone());
            } else if !dir.is_dir() {
                return None;
            }
        }
        Some(made)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dirs.last().unwrap()
    }
}

impl Drop for RealCgroup {
    fn drop(&mut self) {
        for dir in self.dirs.iter().rev() {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Removes a cgroup as soon as the kernel has let its last process go.
pub(crate) fn remove(dir: &Path) {
    while fs::remove_dir(dir).is_err() {
        thread::yield_now();
    }
}

/// A process that does nothing, until it is dropped.
pub(crate) struct Idle(pub(crate) Child);

impl Idle {
    pub(crate) fn new() -> Self {
        Self(spawn(Command::new("sleep").arg("1000").stdin(Stdio::null())))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Moves it into a cgroup, if this user may.
    pub(crate) fn moves_to(&self, dir: &Path) -> bool {
        let moves = fs::write(dir.join("cgroup.procs"), self.pid().to_string()).is_ok();
        if !moves {
            eprintln!("skipped: this user may not move a process there");
        }
        moves
    }

    pub(crate) fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
