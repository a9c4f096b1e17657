//! Reads the mappings of processes from `/proc`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::call::printable;
use crate::error::Error;
use crate::notes;

/// The provider name of the library's probes.
pub(crate) const PROVIDER: &str = "bellwire";

/// The suffix of the name of a deleted file.
const DELETED: &str = " (deleted)";

/// One line of `/proc/PID/maps` that has a name.
#[derive(Clone, Debug)]
pub struct Map {
    /// Whether the process may write it.
    pub is_writable: bool,
    /// Whether the process may execute it.
    pub is_executable: bool,
    /// In the file.
    pub offset: u64,
    /// Device and inode.
    pub file: (String, u64),
    /// The first field: its name in `/proc/PID/map_files`.
    pub range: String,
    /// The name of the file or object.
    pub name: String,
}

/// The identity of a file, which the copies of one image in several containers share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// 0 in an overlay file system: each has a device of its own, and the same file below.
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// A program or shared library with probes, and the processes that have it mapped.
#[derive(Clone, Debug)]
pub struct Traceable {
    /// Its path as seen by the process.
    pub name: PathBuf,
    /// The open file, which is valid even if the process has its own root or mounts.
    pub file: Arc<File>,
    /// Its identity.
    pub id: FileId,
    /// The names of the probes that are there.
    pub probes: Vec<String>,
    /// In order.
    pub pids: Vec<u32>,
}

impl Traceable {
    /// Opens a file that no process need have mapped.
    pub(crate) fn open(name: &Path, file: File) -> std::io::Result<Self> {
        let probes = notes::probes(&file, PROVIDER)?;
        let probes = probes.into_iter().filter(|probe| probe.is_there).map(|probe| probe.name);
        let (id, probes) = (FileId::of(&file)?, probes.collect());
        Ok(Self { name: name.into(), file: Arc::new(file), id, probes, pids: Vec::new() })
    }

    /// Returns whether it has this probe.
    pub fn has(&self, probe: &str) -> bool {
        self.probes.iter().any(|name| name == probe)
    }

    /// Returns the ends of a session that the program can be, as its linker left them.
    pub fn roles(&self) -> &'static str {
        match (self.has("message"), self.has("reply")) {
            (true, true) => "server, client",
            (true, false) => "server",
            (false, true) => "client",
            (false, false) => "-",
        }
    }
}

impl FileId {
    fn of(file: &File) -> std::io::Result<Self> {
        /// `OVERLAYFS_SUPER_MAGIC` of the kernel.
        const OVERLAY: i64 = 0x794c_7630;
        let there = file.metadata()?;
        let is_overlay = rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == OVERLAY);
        Ok(Self {
            device: if is_overlay { 0 } else { there.dev() },
            inode: there.ino(),
            size: there.size(),
            changed: (there.ctime(), there.ctime_nsec()),
        })
    }
}

/// Returns the pids of the processes that /proc shows, in order.
pub fn pids() -> Result<Vec<u32>, Error> {
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

/// Returns whether this process is in the initial pid namespace, whose ids the scheduler uses.
pub(crate) fn is_first_pid_namespace() -> bool {
    /// `PROC_PID_INIT_INO` of the kernel.
    const FIRST: u32 = 0xeffffffc;
    pid_namespace() == FIRST
}

/// Returns whether /proc shows the process.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Returns the threads of a process; none if it has exited.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the process's mappings; none if it has exited or belongs to another user.
pub(crate) fn maps(pid: u32) -> Vec<Map> {
    // A peer chose the names of the memory that it shares: any bytes.
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
}

/// Parses `00400000-00452000 r-xp 00000000 08:02 173521  /usr/bin/name with blanks`.
fn parse(line: &str) -> Option<Map> {
    let mut fields = line.splitn(6, ' ');
    let range = fields.next()?.to_owned();
    let flags = fields.next()?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let device = fields.next()?.to_owned();
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next()?.trim_start().to_owned();
    let is = |at: usize, flag: u8| flags.as_bytes().get(at) == Some(&flag);
    let (is_writable, is_executable) = (is(1, b'w'), is(2, b'x'));
    Some(Map { is_writable, is_executable, offset, file: (device, inode), range, name })
}

/// Returns the name of a process without terminal control characters; it chose any bytes.
pub fn command(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    printable(name.strip_suffix(b"\n").unwrap_or(&name))
}

/// Returns the programs and libraries with probes that these processes, in order, have mapped.
pub fn traceable(pids: &[u32]) -> Vec<Traceable> {
    let mut mapped: BTreeMap<(String, u64), Option<Traceable>> = BTreeMap::new();
    for &pid in pids {
        for map in maps(pid) {
            if !map.is_executable || !map.name.starts_with('/') {
                continue;
            }
            let found = mapped.entry(map.file.clone()).or_insert_with(|| open_traceable(pid, &map));
            if let Some(found) = found
                && found.pids.last() != Some(&pid)
            {
                found.pids.push(pid);
            }
        }
    }
    let mut files: BTreeMap<FileId, Traceable> = BTreeMap::new();
    for found in mapped.into_values().flatten() {
        match files.get_mut(&found.id) {
            Some(same) => same.pids.extend(found.pids),
            None => drop(files.insert(found.id.clone(), found)),
        }
    }
    for file in files.values_mut() {
        file.pids.sort_unstable();
        file.pids.dedup();
    }
    files.into_values().collect()
}

/// Opens the file of a mapping; `None` if it has no probes.
fn open_traceable(pid: u32, map: &Map) -> Option<Traceable> {
    let traceable = Traceable::open(Path::new(&map.name), open_mapped(pid, map)?).ok()?;
    (!traceable.probes.is_empty()).then_some(traceable)
}

/// Opens the file of a mapping.
pub fn open_mapped(pid: u32, map: &Map) -> Option<File> {
    let process = Path::new("/proc").join(pid.to_string());
    let name = map.name.strip_suffix(DELETED).unwrap_or(&map.name);
    let below = Path::new(name).strip_prefix("/").ok()?;
    // By its mapping, if that is permitted: the file may have been replaced or be in another mount namespace, and the name
    // is as seen from here, or from the root of the process's own namespace.
    let places = [
        process.join("map_files").join(&map.range),
        process.join("root").join(below),
        Path::new("/").join(below),
        process.join("exe"),
    ];
    let is_it = |file: &File| file.metadata().is_ok_and(|there| there.ino() == map.file.1);
    places.iter().filter_map(|path| File::open(path).ok()).find(is_it)
}

/// Returns the mapping of a file at an address of a process, and the offset of the address in the file.
pub fn map_at(pid: u32, at: u64) -> Option<(Map, u64)> {
    maps(pid).into_iter().find_map(|map| {
        let (from, to) = map.range.split_once('-')?;
        let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).unwrap_or(0));
        let offset = (from..to).contains(&at).then(|| at - from + map.offset)?;
        map.name.starts_with('/').then_some((map, offset))
    })
}

/// Returns the path of a cgroup below the root of the unified hierarchy; its number if it is not found.
pub fn cgroup(number: u64) -> String {
    thread_local! {
        static KNOWN: RefCell<BTreeMap<u64, String>> = const { RefCell::new(BTreeMap::new()) };
    }
    KNOWN.with_borrow_mut(|known| {
        if !known.contains_key(&number) {
            for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                note_cgroups(Path::new(root), "/", known);
            }
            known.entry(number).or_insert_with(|| format!("cgroup {number}"));
        }
        known.get(&number).cloned().unwrap_or_default()
    })
}

fn note_cgroups(dir: &Path, name: &str, known: &mut BTreeMap<u64, String>) {
    // The number of a cgroup is its directory's inode.
    let Ok(there) = fs::metadata(dir) else { return };
    known.insert(there.ino(), name.to_owned());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let inside = Path::new(name).join(entry.file_name());
            note_cgroups(&entry.path(), &inside.to_string_lossy(), known);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::process;

    use super::*;

    #[test]
    fn a_map_has_a_file_and_a_name_that_may_have_blanks() {
        let map = parse("7f00-7f01 rw-s 00001000 00:01 2051     /memfd:a b (deleted)").unwrap();
        assert_eq!(map.name, "/memfd:a b (deleted)");
        assert_eq!(map.file, ("00:01".to_owned(), 2051));
        assert!(map.is_writable && !map.is_executable);
        assert!(parse("7f00-7f01 rw-p 00000000 00:00 0").is_none());
    }

    #[test]
    fn a_process_with_names_of_any_bytes_is_seen() {
        let name = [b"bellwire-\x1b\xff-", process::id().to_string().as_bytes()].concat();
        let program = std::env::temp_dir().join(OsStr::from_bytes(&name));
        fs::copy("/bin/cat", &program).unwrap();
        let mut command_line = process::Command::new(&program);
        command_line.stdin(process::Stdio::piped()).stdout(process::Stdio::piped());
        let mut child = command_line.spawn().unwrap();
        // It runs once it answers.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        fs::remove_file(&program).unwrap();
        let (maps, command) = (maps(child.id()), command(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(maps.iter().any(|map| map.name.contains("bellwire-")), "{maps:?}");
        assert!(command.starts_with("bellwire-?\u{fffd}"), "{command:?}");
    }
}
