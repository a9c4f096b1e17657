//! How much memory this process may have, and how much of it is left.
//!
//! The kernel kills a process that exceeds the limit of its memory cgroup, without an error that it could handle
//! ([`cgroups(7)`](https://man7.org/linux/man-pages/man7/cgroups.7.html)), so code that allocates for others checks first.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

pub use bellwire_shm::{
    Charge, Gauge, LoanAccount, MemoryPool, OverQuota, OverQuotaReason, Pressure, Quota,
};

/// Where the cgroups of one version are, and the file names of its memory controller.
struct Version {
    root: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The prefix of file page counters in `memory.stat`.
    cached: &'static str,
}

const V1: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: "total_",
};
const V2: Version =
    Version { root: "/sys/fs/cgroup", limit: "memory.max", usage: "memory.current", cached: "" };

/// Returns the memory that this process may have in bytes (the machine's, or less where a memory cgroup or a resource limit
/// says so), and a gauge of how much is left.
pub fn limit() -> (u64, Box<dyn Gauge>) {
    let system = rustix::system::sysinfo();
    let machine = (system.totalram as u64).saturating_mul(system.mem_unit.into());
    let most = addresses_left().map_or(machine, |left| left.min(machine));
    match Cgroup::of_this_process() {
        Some(cgroup) if cgroup.limit < machine => (cgroup.limit.min(most), Box::new(cgroup)),
        _ => (most, Box::new(())),
    }
}

/// Returns the bytes that this process can map besides what it has mapped, where a resource limit says so
/// ([`getrlimit(2)`](https://man7.org/linux/man-pages/man2/getrlimit.2.html)): beyond it the allocator ends the process. There is
/// no gauge for it, since an allocator reserves more than it uses.
fn addresses_left() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let used = |column| pages.split(' ').nth(column)?.trim().parse::<u64>().ok();
    let left = |(resource, column)| {
        let used = used(column).unwrap_or(0).saturating_mul(rustix::param::page_size() as u64);
        Some(getrlimit(resource).current?.saturating_sub(used))
    };
    [(Resource::As, 0), (Resource::Data, 5)].into_iter().filter_map(left).min()
}

/// Returns the lowest limit in bytes of the memory cgroups that contain this process. Version 1 reports no limit as a number
/// near 2^63.
pub fn cgroup_limit() -> Option<u64> {
    Cgroup::of_this_process().map(|cgroup| cgroup.limit)
}

/// The memory cgroup with the lowest limit that contains this process.
#[derive(Debug)]
struct Cgroup {
    limit: u64,
    usage: File,
    stat: PathBuf,
    cached: &'static str,
}

impl Cgroup {
    fn of_this_process() -> Option<Self> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (version, path) = parse(&cgroups)?;
        let root = Path::new(version.root);
        let own = root.join(path.trim_start_matches('/'));
        // In a container the path may be one of the host's: then the root is the container's own cgroup.
        let own = if own.join(version.limit).exists() { own.as_path() } else { root };
        let groups = own.ancestors().take_while(|group| group.starts_with(root));
        groups.filter_map(|group| Self::read(group, &version)).min_by_key(|group| group.limit)
    }

    fn read(group: &Path, version: &Version) -> Option<Self> {
        let limit = fs::read_to_string(group.join(version.limit)).ok()?.trim().parse().ok()?;
        let usage = File::open(group.join(version.usage)).ok()?;
        Some(Self { limit, usage, stat: group.join("memory.stat"), cached: version.cached })
    }

    fn used(&self) -> Option<u64> {
        let mut text = [0; 32];
        let len = self.usage.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..len)?).ok()?.trim().parse().ok()
    }

    /// Returns the bytes of file pages, which the kernel reclaims before it kills a process.
    fn cached(&self) -> u64 {
        let stat = fs::read_to_string(&self.stat).unwrap_or_default();
        let cached = |line: &str| {
            let (name, bytes) = line.strip_prefix(self.cached)?.split_once(' ')?;
            let is_cached = ["inactive_file", "active_file"].contains(&name);
            if is_cached { bytes.parse::<u64>().ok() } else { None }
        };
        stat.lines().filter_map(cached).sum()
    }
}

impl Gauge for Cgroup {
    fn pressure(&self, bytes: u64) -> Pressure {
        let Some(used) = self.used().map(|used| used.saturating_add(bytes)) else {
            return Pressure::Low;
        };
        let (scarce, critical) = (self.limit / 4 * 3, self.limit / 8 * 7);
        if used <= scarce {
            return Pressure::Low;
        }
        match used.saturating_sub(self.cached()) {
            used if used <= scarce => Pressure::Low,
            used if used <= critical => Pressure::Scarce,
            _ => Pressure::Critical,
        }
    }
}

/// Returns the memory cgroup that `/proc/PID/cgroup` names
/// ([`cgroups(7)`](https://man7.org/linux/man-pages/man7/cgroups.7.html)).
fn parse(cgroups: &str) -> Option<(Version, &str)> {
    let lines = || cgroups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let v2 = || lines().find(|(controllers, _)| controllers.is_empty());
    v1.map(|(_, path)| (V1, path)).or_else(|| v2().map(|(_, path)| (V2, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_is_found_in_either_version() {
        let found = |text| parse(text).map(|(version, path)| (version.limit, path));
        let v1 = "4:pids:/a\n3:cpu,memory:/b/c\n0::/d\n";
        assert_eq!(found(v1), Some(("memory.limit_in_bytes", "/b/c")));
        assert_eq!(found("0::/d.scope\n"), Some(("memory.max", "/d.scope")));
        assert_eq!(found("4:pids:/a\n"), None);
    }
}
