//! Reads the mappings of processes from `/proc`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::notes;

/// The provider name of the library's probes.
pub(crate) const PROVIDER: &str = "bellwire";

/// The suffix of the name of a deleted file.
const DELETED: &str = " (deleted)";

/// One line of `/proc/PID/maps` that has a name.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) is_writable: bool,
    pub(crate) is_executable: bool,
    /// Device and inode.
    pub(crate) file: (String, u64),
    /// The first field: its name in `/proc/PID/map_files`.
    pub(crate) range: String,
    pub(crate) name: String,
}

/// A program or shared library with probes, and the processes that have it mapped.
#[derive(Debug)]
pub(crate) struct Traceable {
    /// Its path as seen by the process.
    pub(crate) name: PathBuf,
    /// The open file, which is valid even if the process has its own root or mounts.
    pub(crate) file: File,
    pub(crate) probes: Vec<String>,
    pub(crate) pids: Vec<u32>,
}

/// Returns the pids of the processes that /proc shows, in order.
pub(crate) fn pids() -> Result<Vec<u32>, Error> {
    let path = PathBuf::from("/proc");
    let entries = fs::read_dir(&path).map_err(|source| Error::Read { path, source })?;
    let mut pids: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Returns the inode of this process's pid namespace; 0 if /proc does not show it.
pub(crate) fn pid_namespace() -> u32 {
    let inode = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    u32::try_from(inode).unwrap_or(0)
}

/// Returns the process's mappings; none if it has exited or belongs to another user.
pub(crate) fn maps(pid: u32) -> Vec<Map> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// Parses `00400000-00452000 r-xp 00000000 08:02 173521  /usr/bin/name with blanks`.
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

/// Returns the name of a process.
pub(crate) fn command(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Returns the programs and libraries with probes that these processes have mapped.
pub(crate) fn traceable(pids: &[u32]) -> Vec<Traceable> {
    let mut files: BTreeMap<(String, u64), Option<Traceable>> = BTreeMap::new();
    for &pid in pids {
        for map in maps(pid) {
            if !map.is_executable || !map.name.starts_with('/') {
                continue;
            }
            let found = files.entry(map.file.clone()).or_insert_with(|| open_traceable(pid, &map));
            if let Some(found) = found
                && found.pids.last() != Some(&pid)
            {
                found.pids.push(pid);
            }
        }
    }
    files.into_values().flatten().collect()
}

/// Opens the file of a mapping; `None` if it has no probes.
fn open_traceable(pid: u32, map: &Map) -> Option<Traceable> {
    let process = Path::new("/proc").join(pid.to_string());
    let path = match map.name.strip_suffix(DELETED) {
        None => process.join("root").join(Path::new(&map.name).strip_prefix("/").ok()?),
        // The file was replaced after the process started, for instance by an update.
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
