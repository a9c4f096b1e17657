//! The resources of a process: descriptors, shared memory, threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// Counts by kind. Digits in names are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResourceSnapshot {
    /// Open descriptors by kind.
    descriptors: BTreeMap<String, usize>,
    /// Maps of Bellwire's memfds by name.
    maps: BTreeMap<String, usize>,
    /// The size of those maps in bytes.
    mapped: u64,
    /// Threads by name.
    threads: BTreeMap<String, usize>,
}

impl ResourceSnapshot {
    /// Takes the counts of the calling process. Entries that vanish meanwhile are not counted.
    pub(crate) fn take() -> Self {
        let mut resources = Self::default();
        let mut snapshots = BTreeSet::new();
        for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            // A snapshot that was passed has two more descriptors than one that was not: count each memfd once.
            let is_snapshot = target.starts_with("/memfd:bellwire-snapshot");
            let inode = fs::metadata(entry.path()).map_or(0, |file| file.ino());
            if !is_snapshot || snapshots.insert(inode) {
                count(&mut resources.descriptors, &target);
            }
        }
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for line in maps.lines() {
            let Some((place, name)) = line.split_once("/memfd:bellwire-") else { continue };
            count(&mut resources.maps, name);
            resources.mapped += extent(place);
        }
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            if let Ok(name) = fs::read_to_string(entry.path().join("comm")) {
                count(&mut resources.threads, name.trim_end());
            }
        }
        // The reaper's threads start on demand and stay: the second one starts with the first close.
        if matches!(resources.threads.get(REAPER), Some(1 | 2)) {
            resources.threads.remove(REAPER);
        }
        resources
    }

    /// Describes the differences from `base`; empty if there are none.
    pub(crate) fn difference(&self, base: &Self) -> String {
        let mut words = Vec::new();
        for (what, now, then) in [
            ("descriptors", &self.descriptors, &base.descriptors),
            ("maps", &self.maps, &base.maps),
            ("threads", &self.threads, &base.threads),
        ] {
            let names = now.keys().chain(then.keys().filter(|name| !now.contains_key(*name)));
            for name in names {
                let [now, then] = [now, then].map(|of| of.get(name).copied().unwrap_or(0));
                if now != then {
                    words.push(format!("{what} of {name}: {now}, were {then}"));
                }
            }
        }
        if self.mapped != base.mapped {
            words.push(format!("bytes mapped: {}, were {}", self.mapped, base.mapped));
        }
        words.join("; ")
    }
}

const REAPER: &str = "bellwire-reaper";

fn count(into: &mut BTreeMap<String, usize>, name: &str) {
    let name: String = name.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    *into.entry(name).or_default() += 1;
}

/// The bytes between the two addresses at the start of a line of `/proc/PID/maps`.
fn extent(line: &str) -> u64 {
    let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
    let [start, end] = match range {
        Some((start, end)) => [start, end].map(|at| u64::from_str_radix(at, 16).unwrap_or(0)),
        None => [0, 0],
    };
    end.saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{ResourceSnapshot, extent};

    #[test]
    fn one_more_descriptor_is_reported_by_its_kind() {
        let base = ResourceSnapshot::take();
        let held = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let now = ResourceSnapshot::take();
        drop(held);
        let difference = now.difference(&base);
        assert!(difference.contains("Cargo.toml: 1, were 0"), "{difference}");
        assert_eq!(base.difference(&base), "");
    }

    #[test]
    fn the_bytes_of_a_map_are_counted() {
        assert_eq!(extent("7f0000001000-7f0000003000 rw-s 0 00:01 5 "), 0x2000);
    }
}
