//! Lock files: who owns a name, and which names exist.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use bellwire_core::ServiceName;
use bellwire_shm::platform;
pub use bellwire_shm::platform::lock_path;
use bellwire_shm::{ListError, Liveness};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::error::BindError;
use super::no_follow;
use super::run_dir::is_trusted;
use crate::peer::User;

/// How often a lock is tried, `LOCK_PAUSE` apart: a lister may hold it for a moment.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// A run directory's entry for one service.
///
/// ```
/// use bellwire_memfd::endpoint::{Endpoint, EndpointInfo, list};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let served = Endpoint::bind(dir.path(), "disks".parse()?)?;
/// let found: Vec<EndpointInfo> = list(dir.path())?;
/// assert_eq!((found[0].path.as_path(), found[0].mode), (served.path(), Some(0o600)));
/// # Ok(())
/// # }
/// ```
pub type EndpointInfo = bellwire_shm::EndpointInfo<User>;

/// Lists the endpoints of a run directory by name, and other objects that have an endpoint's name.
///
/// Liveness is read from `/proc/locks` ([`proc_locks(5)`](https://man7.org/linux/man-pages/man5/proc_locks.5.html)), which
/// disturbs nobody. Only a lock that does not appear there is tried, shared and for a moment. Nobody is connected to: that would
/// start what systemd activates.
///
/// # Errors
/// [`ListError`] when the directory cannot be read.
pub fn list(run_dir: &Path) -> Result<Vec<EndpointInfo>, ListError> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // The paths in it may be any bytes.
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    platform::list(run_dir, ".sock", |service, path| {
        let stat = no_follow(&path).ok()?;
        let lock = lock_path(run_dir, service);
        let held = liveness(&lock, &locks);
        let liveness = match held {
            _ if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => Liveness::Squatted,
            Liveness::Alive(_) if is_of_another(&stat, &lock) => Liveness::Squatted,
            Liveness::Alive(_) => held,
            _ => listener(&path, &sockets).map_or(held, |inode| holder(inode, &stat)),
        };
        let address = path.display().to_string();
        let (mode, owner) = (Some(stat.st_mode & 0o7777), Some(stat.st_uid.into()));
        Some(EndpointInfo { service, path, address, liveness, mode, owner })
    })
}

/// Returns whether a socket belongs neither to the user whose lock is held nor to root, who may take any lock.
fn is_of_another(socket: &Stat, lock: &Path) -> bool {
    socket.st_uid != 0 && no_follow(lock).is_ok_and(|lock| lock.st_uid != socket.st_uid)
}

/// Returns the inode of the socket that listens at that path, according to `/proc/net/unix` of this network namespace
/// ([`proc_pid_net(5)`](https://man7.org/linux/man-pages/man5/proc_pid_net.5.html)): flags of 0x10000, and the path as the
/// listener spelled it.
fn listener<'a>(path: &Path, sockets: &'a [u8]) -> Option<&'a str> {
    let real = fs::canonicalize(path);
    let names = [Ok(path.to_owned()), real];
    sockets.split(|byte| *byte == b'\n').find_map(|line| {
        let flags = line.split(|byte| *byte == b' ').nth(3);
        let mut names = names.iter().flatten().filter(|_| flags == Some(b"00010000"));
        let rest = names
            .find_map(|name| line.strip_suffix(name.as_os_str().as_bytes())?.strip_suffix(b" "))?;
        std::str::from_utf8(rest).ok()?.split_ascii_whitespace().last()
    })
}

/// Returns what is listening on a socket without holding the lock, by the descriptors of those processes that this one may
/// inspect.
fn holder(inode: &str, file: &Stat) -> Liveness {
    let mut found = Liveness::Unknown;
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = process.file_name().to_str().and_then(|pid| pid.parse().ok());
        let Some(pid) = pid.filter(|pid| has_socket(*pid, inode)) else { continue };
        found = Liveness::Squatted;
        let is_systemd =
            fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(b"systemd"));
        // Any process may take that name.
        if is_systemd && (pid == 1 || is_trusted(file.st_uid)) {
            return Liveness::Activated;
        }
    }
    found
}

fn has_socket(pid: u32, inode: &str) -> bool {
    let name = format!("socket:[{inode}]");
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    targets.any(|target| target.as_os_str() == &*name)
}

fn liveness(path: &Path, locks: &str) -> Liveness {
    let stat = match no_follow(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Liveness::Stale,
        Err(_) => return Liveness::Unknown,
    };
    if let Some(pid) = lock_holder(&stat, locks) {
        return Liveness::Alive(pid);
    }
    // Not in the list: the lock is free, or held where /proc does not show it (another pid namespace, a file system whose
    // device numbers differ).
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Liveness::Unknown };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Liveness::Stale,
        Err(Errno::AGAIN) => Liveness::Alive(None),
        Err(_) => Liveness::Unknown,
    }
}

/// Returns who holds an exclusive `flock` on the file according to `/proc/locks`: `Some(None)` if it names no pid.
fn lock_holder(stat: &Stat, locks: &str) -> Option<Option<u32>> {
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let file = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let lock = (fields.next()?, fields.next()?, fields.next()?);
        let pid = fields.next()?;
        let held = lock == ("FLOCK", "ADVISORY", "WRITE") && fields.next()? == file;
        held.then(|| pid.parse().ok().filter(|pid| *pid > 0))
    })
}

pub(super) fn lock(path: &Path, service: ServiceName) -> Result<OwnedFd, BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let squatted = || BindError::LockSquatted { path: path.to_owned() };
    let taken = || BindError::Taken { service, lock: path.to_owned() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for attempt in 1..=LOCK_TRIES {
        let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let file = opened.map_err(|source| match source {
            Errno::LOOP | Errno::ISDIR => squatted(),
            Errno::ACCESS if no_follow(path).is_ok_and(|stat| !is_trusted(stat.st_uid)) => {
                squatted()
            }
            source => system(source),
        })?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) if attempt < LOCK_TRIES => {
                std::thread::sleep(LOCK_PAUSE);
                continue;
            }
            Err(Errno::AGAIN) => {
                let owner = rustix::fs::fstat(&file).map_err(system)?.st_uid;
                return Err(if is_trusted(owner) { taken() } else { squatted() });
            }
            Err(source) => return Err(system(source)),
        }
        let held = rustix::fs::fstat(&file).map_err(system)?;
        // The file may have been removed between open and flock: then another file has its name.
        if no_follow(path)
            .is_ok_and(|named| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
        {
            return Ok(file);
        }
    }
    Err(taken())
}
