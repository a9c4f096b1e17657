use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// How the kernel spells this library's memfds.
const NAME: &str = "/memfd:bellwire-";

/// The shared memory that a process has mapped or open: the size of each memfd in bytes, by its inode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Held(BTreeMap<u64, u64>);

/// Shared memory, each memfd counted once however many processes have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Memory {
    pub(in super::super) memfds: usize,
    pub(in super::super) bytes: u64,
}

impl Held {
    pub(super) fn by_this_process() -> io::Result<Self> {
        let mut held = Self::mapped(&fs::read_to_string("/proc/self/maps")?);
        for entry in fs::read_dir("/proc/self/fd")? {
            let path = entry?.path();
            // The directory's own descriptor is gone by now.
            let Ok(target) = fs::read_link(&path) else { continue };
            if target.to_string_lossy().starts_with(NAME)
                && let Ok(file) = fs::metadata(&path)
            {
                held.note(file.ino(), file.len());
            }
        }
        Ok(held)
    }

    pub(super) fn join(mut self, other: &Self) -> Self {
        other.0.iter().for_each(|(inode, bytes)| self.note(*inode, *bytes));
        self
    }

    pub(super) fn memory(&self) -> Memory {
        Memory { memfds: self.0.len(), bytes: self.0.values().sum() }
    }

    /// From the lines of proc_pid_maps(5): `start-end perms offset dev inode path`.
    fn mapped(maps: &str) -> Self {
        let mut held = Self::default();
        for line in maps.lines().filter(|line| line.contains(NAME)) {
            let mut fields = line.split_ascii_whitespace();
            let range = fields.next().and_then(|range| range.split_once('-'));
            let address = |hex| u64::from_str_radix(hex, 16).unwrap_or(0);
            let size = range.map_or(0, |(start, end)| address(end).saturating_sub(address(start)));
            let inode = fields.nth(3).and_then(|inode| inode.parse().ok());
            if let Some(inode) = inode {
                held.note(inode, size);
            }
        }
        held
    }

    fn note(&mut self, inode: u64, bytes: u64) {
        let known = self.0.entry(inode).or_default();
        *known = bytes.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellwire::Payload;

    const MAPS: &str = "\
7f01a0000000-7f01a0004000 rw-s 00000000 00:01 77  /memfd:bellwire-lane-client-demo-burst-1 (deleted)
7f01a0008000-7f01a0009000 r--s 00000000 00:01 78  /memfd:bellwire-page-server-demo-burst-1 (deleted)
7f01a000a000-7f01a000b000 r--s 00000000 00:01 79  /memfd:another (deleted)
7f01a000c000-7f01a000d000 r-xp 00000000 08:01 80  /usr/lib/libc.so.6
";

    #[test]
    fn a_memfd_counts_once_and_only_those_of_bellwire_do() {
        let one = Held::mapped(MAPS);
        assert_eq!(one.memory(), Memory { memfds: 2, bytes: 0x5000 });
        assert_eq!(one.clone().join(&one).memory(), one.memory());
    }

    #[test]
    fn what_is_open_and_not_mapped_counts_until_it_is_dropped() {
        let before = Held::by_this_process().unwrap().memory();
        let payload = Payload::build_from(0, 1 << 20, |_| {}).unwrap();
        let with = Held::by_this_process().unwrap().memory();
        assert_eq!((with.memfds, with.bytes), (before.memfds + 1, before.bytes + (1 << 20)));
        drop(payload);
        assert_eq!(Held::by_this_process().unwrap().memory(), before);
    }
}
