//! What processes have mapped, as `/proc` shows it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::notes;

/// The library's provider of probes.
pub(crate) const PROVIDER: &str = "bellwire";

/// What stands behind the name of a file that has none any more.
const DELETED: &str = " (deleted)";

/// One line of `/proc/PID/maps` that has a name.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) is_writable: bool,
    pub(crate) is_executable: bool,
    /// Device and inode.
    pub(crate) file: (String, u64),
    /// The first field: what `/proc/PID/map_files` calls it.
    pub(crate) range: String,
    pub(crate) name: String,
}

/// A program or shared library with probes, and who has it mapped.
#[derive(Debug)]
pub(crate) struct Traceable {
    /// As the process sees it.
    pub(crate) name: PathBuf,
    /// Open, also where the process has a root or mounts of its own.
    pub(crate) file: File,
    pub(crate) probes: Vec<String>,
    pub(crate) pids: Vec<u32>,
}

/// The processes that this one can see, in order.
pub(crate) fn pids() -> Result<Vec<u32>, Error> {
    let path = PathBuf::from("/proc");
    let entries = fs::read_dir(&path).map_err(|source| Error::Read { path, source })?;
    let mut pids: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The inode of this process's namespace of process ids; 0 where /proc does not tell.
pub(crate) fn pid_namespace() -> u32 {
    let inode = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    u32::try_from(inode).unwrap_or(0)
}

/// What this process has mapped; nothing when it is gone, or another user's.
pub(crate) fn maps(pid: u32) -> Vec<Map> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// `00400000-00452000 r-xp 00000000 08:02 173521  /usr/bin/name with blanks`
fn parse(line: &str) -> Option<Map> {
    let mut fields = line.splitn(6, ' ');
    let range = fields.next()?.to_owned();
    let flags = fields.next()?;
    let device = fields.nth(1)?.to_owned();
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next()?.trim_start().to_owned();
    let is = |at: usize, flag: u8| flags.as_bytes().get(at) == Some(&flag);
    let (is_writable, is_executable) = (is(1, b'w'), is(2, b'x'));
    Some(Map { is_writable, is_executable, file: (device, inode), range, name })
}

/// The name of a process.
pub(crate) fn command(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// The programs and libraries with probes that these processes have mapped.
pub(crate) fn traceable(pids: &[u32]) -> Vec<Traceable> {
    let mut files: BTreeMap<(String, u64), Option<Traceable>> = BTreeMap::new();
    for &pid in pids {
        for map in maps(pid) {
            if !map.is_executable || !map.name.starts_with('/') {
                continue;
            }
            let found = files.entry(map.file.clone()).or_insert_with(|| look(pid, &map));
            if let Some(found) = found
                && found.pids.last() != Some(&pid)
            {
                found.pids.push(pid);
            }
        }
    }
    files.into_values().flatten().collect()
}

fn look(pid: u32, map: &Map) -> Option<Traceable> {
    let process = Path::new("/proc").join(pid.to_string());
    let path = match map.name.strip_suffix(DELETED) {
        None => process.join("root").join(Path::new(&map.name).strip_prefix("/").ok()?),
        // Replaced since it was started, as an update does.
        Some(_) => process.join("map_files").join(&map.range),
    };
    let file = File::open(path).ok()?;
    let probes = notes::probes(&file, PROVIDER).ok()?;
    let traceable = Traceable { name: (&map.name).into(), file, probes, pids: Vec::new() };
    (!traceable.probes.is_empty()).then_some(traceable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_file_and_a_name_that_may_have_blanks() {
        let map = parse("7f00-7f01 rw-s 00001000 00:01 2051     /memfd:a b (deleted)").unwrap();
        assert_eq!(map.name, "/memfd:a b (deleted)");
        assert_eq!(map.file, ("00:01".to_owned(), 2051));
        assert!(map.is_writable && !map.is_executable);
        assert!(parse("7f00-7f01 rw-p 00000000 00:00 0").is_none());
    }
}
