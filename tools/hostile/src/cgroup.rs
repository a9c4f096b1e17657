use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "bellwire-hostile-";

/// A memory cgroup, version 1 or 2; dropping it removes the cgroup.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    files: Files,
}

/// The file names of this cgroup version.
#[derive(Clone, Copy, Debug)]
struct Files {
    limit: &'static str,
    peak: &'static str,
    kills: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    kills: "memory.oom_control",
};
const V2: Files = Files { limit: "memory.max", peak: "memory.peak", kills: "memory.events" };

impl Cgroup {
    pub(crate) fn with_limit(name: &str, bytes: u64) -> io::Result<Self> {
        let name = format!("{PREFIX}{}-{name}", std::process::id());
        let v1 = Path::new(ROOT).join("memory");
        let (path, files) = if v1.join(V1.limit).exists() {
            (v1.join(name), V1)
        } else {
            // Usually the controller is enabled already.
            let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+memory");
            (Path::new(ROOT).join(name), V2)
        };
        if let Some(parent) = path.parent() {
            remove_stale_cgroups(parent);
        }
        fs::create_dir(&path).map_err(with_path(&path))?;
        let cgroup = Self { path, files };
        let limit = cgroup.path.join(files.limit);
        fs::write(&limit, bytes.to_string()).map_err(with_path(&limit))?;
        // A kernel without swap has no such file.
        let _ = fs::write(cgroup.path.join("memory.swap.max"), "0");
        Ok(cgroup)
    }

    /// Moves a process into the cgroup.
    pub(crate) fn add_process(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).map_err(with_path(&self.path))
    }

    /// The peak of the charged memory in bytes; 0 if the kernel does not report it.
    pub(crate) fn peak(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.files.peak)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// The number of processes that the OOM killer has killed.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.files.kills)).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes have been reaped, but the kernel may uncharge their memory a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("warning: {} could not be removed", self.path.display());
    }
}

/// Removes the cgroups of runners that were killed.
fn remove_stale_cgroups(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = rest.and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // This fails for a cgroup that still has processes.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn with_path(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
