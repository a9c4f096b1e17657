//! Where a process runs: its cgroup, and the pod and systemd unit that the cgroup's name says.

use std::collections::HashMap;
use std::fs;

/// The most processes that are remembered.
const MAX_KNOWN: usize = 4096;

/// Where processes run, by process. A process that has exited keeps its place.
#[derive(Debug, Default)]
pub struct Places {
    known: HashMap<u32, Place>,
}

/// Where a process runs; a part that is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    cgroup: String,
    pod: String,
    unit: String,
}

impl Places {
    /// Returns the place of a process.
    pub fn of(&mut self, pid: u32) -> Place {
        if let Some(known) = self.known.get(&pid) {
            return known.clone();
        }
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let place = Place::of(&text);
        if self.known.len() == MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(pid, place.clone());
        place
    }
}

impl Place {
    /// Parses `/proc/PID/cgroup`.
    fn of(text: &str) -> Self {
        // Of the unified hierarchy, or the one that systemd keeps beside those of version 1.
        let path = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
        let systemd =
            || text.lines().find_map(|line| line.split_once(":name=systemd:")).map(|at| at.1);
        let cgroup =
            path("0::").filter(|path| *path != "/").or_else(systemd).or_else(|| path("0::"));
        let cgroup = cgroup.unwrap_or_default().to_owned();
        let mut parts = cgroup.rsplit('/');
        let unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
        let unit = parts.clone().find(unit).unwrap_or_default().to_owned();
        let pod = parts.find_map(pod).unwrap_or_default();
        Self { cgroup, pod, unit }
    }

    /// Returns the names and values of what is known.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("cgroup", &self.cgroup), ("pod", &self.pod), ("unit", &self.unit)];
        all.into_iter()
            .map(|(name, value)| (name, value.as_str()))
            .filter(|(_, value)| !value.is_empty())
    }
}

/// Returns the id of a pod from the name of its cgroup: `podUID`, or `kubepods-burstable-podUID.slice` with `_` for `-`.
fn pod(part: &str) -> Option<String> {
    /// The length of an id with its four dashes.
    const ID: usize = 36;
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let id = part.rsplit_once("pod")?.1;
    (id.len() == ID).then(|| id.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> [String; 3] {
        let Place { cgroup, pod, unit } = Place::of(text);
        [cgroup, pod, unit]
    }

    #[test]
    fn a_cgroup_names_a_unit_or_a_pod() {
        let service = "/system.slice/netdata.service";
        assert_eq!(place(&format!("0::{service}\n")), [service, "", "netdata.service"]);
        let old = format!("12:pids:/x\n1:name=systemd:{service}\n0::/\n");
        assert_eq!(place(&old), [service, "", "netdata.service"]);
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        let slice = id.replace('-', "_");
        let pod = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-7f.scope"
        );
        assert_eq!(place(&format!("0::{pod}")), [&pod, id, "cri-containerd-7f.scope"]);
        let pod = format!("/kubepods/besteffort/pod{id}/7f");
        assert_eq!(place(&format!("0::{pod}")), [&pod, id, ""]);
        assert_eq!(place(""), ["", "", ""]);
    }
}
