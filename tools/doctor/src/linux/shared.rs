use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The prefix of this library's memfds as the kernel shows it.
const NAME: &str = "/memfd:bellwire-";

/// Returns the shared memory of this library that this process has mapped or open: the size of each memfd in bytes, by its
/// inode, which is the same in all processes.
///
/// # Errors
/// When `/proc/self` cannot be read ([`proc(5)`](https://man7.org/linux/man-pages/man5/proc.5.html)).
pub fn shared_memory() -> io::Result<BTreeMap<u64, u64>> {
    // A peer chose the names of the memory that it shares: any bytes.
    let mut held = mapped(&String::from_utf8_lossy(&fs::read("/proc/self/maps")?));
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        // The directory's own descriptor is closed by now.
        let Ok(target) = fs::read_link(&path) else { continue };
        if target.to_string_lossy().starts_with(NAME)
            && let Ok(file) = fs::metadata(&path)
        {
            note(&mut held, file.ino(), file.len());
        }
    }
    Ok(held)
}

/// Parses lines of proc_pid_maps(5): `start-end perms offset dev inode path`.
fn mapped(maps: &str) -> BTreeMap<u64, u64> {
    let mut held = BTreeMap::new();
    for line in maps.lines().filter(|line| line.contains(NAME)) {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let address = |hex| u64::from_str_radix(hex, 16).unwrap_or(0);
        let size = range.map_or(0, |(start, end)| address(end).saturating_sub(address(start)));
        let inode = fields.nth(3).and_then(|inode| inode.parse().ok());
        if let Some(inode) = inode {
            note(&mut held, inode, size);
        }
    }
    held
}

fn note(held: &mut BTreeMap<u64, u64>, inode: u64, bytes: u64) {
    let known = held.entry(inode).or_default();
    *known = bytes.max(*known);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f01a0000000-7f01a0004000 rw-s 00000000 00:01 77  /memfd:bellwire-lane-client-demo-burst-1 (deleted)
7f01a0008000-7f01a0009000 r--s 00000000 00:01 78  /memfd:bellwire-page-server-demo-burst-1 (deleted)
7f01a000a000-7f01a000b000 r--s 00000000 00:01 79  /memfd:another (deleted)
7f01a000c000-7f01a000d000 r-xp 00000000 08:01 80  /usr/lib/libc.so.6
";

    #[test]
    fn only_memfds_of_bellwire_count() {
        assert_eq!(mapped(MAPS), BTreeMap::from([(77, 0x4000), (78, 0x1000)]));
    }
}
