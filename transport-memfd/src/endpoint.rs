//! Endpoint names on disk: a run directory with a socket and a lock file for each service.

mod connect;
mod inherited;

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwire_core::ServiceName;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, getpid};

use crate::admission::Admission;
use crate::arrivals;
use crate::fork::Kept;
use crate::pass::Channel;
use crate::peer::{self, User};
pub use connect::{ConnectError, connect, connect_trusting};
pub use inherited::{InheritError, Inherited, inherited};

/// How many connections may wait for accept, unless [`Endpoint::listen`] is told another limit.
pub const BACKLOG: u32 = 4096;
/// The longest path of a socket, in bytes (`sun_path` less its final zero).
pub const MAX_PATH: usize = 107;
/// How often a lock is tried, `LOCK_PAUSE` apart: a lister may hold it for a moment.
const LOCK_TRIES: u32 = 5;
/// What a session's client may leave unread on its control socket, in bytes; the kernel doubles it and counts its own structures, too
/// (`SO_SNDBUF`, [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)).
const SEND_BUFFER: usize = 64 << 10;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Why a run directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// Something else has that name, possibly a symbolic link.
    #[error("{} is not a directory: remove it or name another run directory", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It belongs to another user, who could replace its contents.
    #[error(
        "{} belongs to uid {owner}, neither this process's user nor root: chown it or name another", .path.display()
    )]
    ForeignOwner {
        /// The path.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
    },
    /// Other users may replace its contents.
    #[error(
        "{} has mode {mode:04o}, so that other users may replace what is in it: chmod go-w, or set its sticky bit", .path.display()
    )]
    WritableByOthers {
        /// The path.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It existed already, and the users to be admitted cannot pass through it.
    #[error(
        "{} has mode {mode:04o} and group {group}, so that {admitted} cannot come near its sockets: chmod o+x, or chgrp and chmod g+x, or have it made by removing it", .path.display()
    )]
    Closed {
        /// The path.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Its group's gid.
        group: u32,
        /// The users whom the server was to admit.
        admitted: String,
    },
    /// This process may not give the directory, or its socket, to the group to be admitted.
    #[error(
        "cannot give {} to {group}: run as root, or as a member of that group (systemd: SupplementaryGroups=)", .path.display()
    )]
    NotInGroup {
        /// The path.
        path: PathBuf,
        /// The group.
        group: peer::Group,
    },
    /// The system refused.
    #[error("cannot use {} as the run directory: {source}; create it with mode 0700", .path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// The error from the kernel.
        source: Errno,
    },
}

/// Why a service's name could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The run directory is not safe.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A socket that the service manager handed over is not used.
    #[error(transparent)]
    Inherited(#[from] InheritError),
    /// Another process, or another endpoint of this one, serves that name.
    #[error("{service} is served already: its provider holds {}", .lock.display())]
    Taken {
        /// The service.
        service: ServiceName,
        /// The lock file that is held.
        lock: PathBuf,
    },
    /// Something that is not this library's socket has the socket's name.
    #[error("{} is there and is no socket of this user: remove it", .path.display())]
    Squatted {
        /// The path.
        path: PathBuf,
    },
    /// Another user's file has the lock's name, or another user holds the lock.
    #[error("{} is no lock of this user: remove it, or use a run directory that nobody else may write", .path.display())]
    LockSquatted {
        /// The path.
        path: PathBuf,
    },
    /// The path does not fit into a socket address.
    #[error("{} has {len} bytes where a socket's path has at most 107: use a shorter run directory", .path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
    /// The system refused.
    #[error("cannot serve at {}: {source}", .path.display())]
    System {
        /// The file concerned.
        path: PathBuf,
        /// The error from the kernel.
        source: Errno,
    },
}

/// Why a run directory was not listed.
///
/// ```
/// use bellwire_memfd::endpoint::list;
/// use std::path::Path;
///
/// let error = list(Path::new("/nowhere")).unwrap_err();
/// assert_eq!(error.source.kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug, thiserror::Error)]
#[error("cannot list {}: {source}", .path.display())]
pub struct ListError {
    /// The directory.
    pub path: PathBuf,
    /// The error from the system.
    pub source: std::io::Error,
}

/// The name of a service, held by this process: `{run_dir}/{service}.sock`, `SOCK_SEQPACKET`, mode 0600 unless others are
/// admitted.
///
/// The process that holds the lock on `{service}.lock` owns the name and may replace a stale socket. The kernel releases the
/// lock when the process ends, so a crash never keeps a successor out. The lock file stays.
#[derive(Debug)]
pub struct Endpoint {
    // A helper process that kept them open would keep a successor out and let clients wait.
    _kept: [Kept; 2],
    socket: OwnedFd,
    service: ServiceName,
    path: PathBuf,
    // Identifies our socket at `path`.
    inode: (u64, u64),
    // Needed to take the name again.
    admission: Admission,
    group_may_write: bool,
    // The owner: a child of fork removes nothing.
    pid: Pid,
    // The service manager bound the socket and removes it.
    is_inherited: bool,
    // Held until the socket's file is removed.
    lock: OwnedFd,
}

/// Whether a process serves an endpoint.
///
/// ```
/// use bellwire_memfd::endpoint::{Endpoint, Liveness, list};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let served = Endpoint::bind(dir.path(), "disks".parse()?)?;
/// assert_eq!(list(dir.path())?[0].liveness, Liveness::Alive(Some(std::process::id())));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// A process holds its lock; its pid, if known.
    Alive(Option<u32>),
    /// No process serves it: the socket was left by a crash.
    Stale,
    /// The name is taken by something else: a socket whose listener does not hold the lock, a socket and a lock of different
    /// users, or an object that is not a socket.
    Squatted,
    /// This process cannot find out.
    Unknown,
}

/// A run directory's entry for one service.
///
/// ```
/// use bellwire_memfd::endpoint::{Endpoint, EndpointInfo, list};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let served = Endpoint::bind(dir.path(), "disks".parse()?)?;
/// let found: Vec<EndpointInfo> = list(dir.path())?;
/// assert_eq!((found[0].path.as_path(), found[0].mode), (served.path(), 0o600));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointInfo {
    /// The service.
    pub service: ServiceName,
    /// The socket's path.
    pub path: PathBuf,
    /// Whether a process serves it.
    pub liveness: Liveness,
    /// The socket's permission bits.
    pub mode: u32,
    /// The socket's owner.
    pub owner: u32,
}

impl EndpointInfo {
    /// Returns the socket's path, to which clients connect.
    pub fn address(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the socket's owner.
    pub fn owner(&self) -> Option<User> {
        Some(self.owner.into())
    }

    /// Returns the permission bits.
    pub const fn permissions(&self) -> Option<u32> {
        Some(self.mode)
    }
}

/// Returns the default run directory: `bellwire` below `XDG_RUNTIME_DIR`, or `/run/bellwire` without that.
pub fn default_run_dir() -> PathBuf {
    run_dir_below(std::env::var_os("XDG_RUNTIME_DIR"))
}

fn run_dir_below(runtime: Option<OsString>) -> PathBuf {
    match runtime.filter(|runtime| !runtime.is_empty()) {
        Some(runtime) => Path::new(&runtime).join("bellwire"),
        None => "/run/bellwire".into(),
    }
}

/// Creates the run directory (mode 0700) if it is missing, and refuses one in which other users could replace what this
/// process puts there.
///
/// # Errors
/// [`RunDirError`] says what is wrong and how to fix it.
pub fn prepare_run_dir(path: &Path) -> Result<(), RunDirError> {
    prepare_for(path, &Admission::SameUser, false)
}

/// Prepares the run directory for these users. A new directory is opened to them; an existing one is unchanged, and refused
/// if they cannot pass through it.
fn prepare_for(
    path: &Path,
    admission: &Admission,
    group_may_write: bool,
) -> Result<(), RunDirError> {
    let system = |source| RunDirError::System { path: path.to_owned(), source };
    let is_made = match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(source) => return Err(system(source)),
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(|source| match source {
        Errno::NOTDIR | Errno::LOOP => RunDirError::NotADirectory { path: path.to_owned() },
        source => system(source),
    })?;
    let stat = rustix::fs::fstat(&dir).map_err(system)?;
    if !is_trusted(stat.st_uid) {
        return Err(RunDirError::ForeignOwner { path: path.to_owned(), owner: stat.st_uid });
    }
    let mode = stat.st_mode & 0o7777;
    let others = if group_may_write { 0o002 } else { 0o022 };
    if mode & others != 0 && mode & 0o1000 == 0 {
        return Err(RunDirError::WritableByOthers { path: path.to_owned(), mode });
    }
    if is_made && *admission != Admission::SameUser {
        // Set the group before the mode, so that no other group can ever pass.
        if let Some(group) = admission.group() {
            let given = rustix::fs::fchown(&dir, None, Some(group));
            given.map_err(|source| {
                // The next attempt shall find the same state as this one.
                let _ = rustix::fs::rmdir(path);
                not_given(path, admission, source)
            })?;
        }
        return rustix::fs::fchmod(&dir, admission.run_dir_mode()).map_err(system);
    }
    let is_open = match admission {
        Admission::SameUser => true,
        Admission::Group(group) if group.gid() == stat.st_gid && mode & 0o010 != 0 => true,
        // An access control list is left to its author to get right.
        _ => mode & 0o001 != 0 || has_acl(&dir),
    };
    if is_open {
        return Ok(());
    }
    let (path, admitted) = (path.to_owned(), admission.to_string());
    Err(RunDirError::Closed { path, mode, group: stat.st_gid, admitted })
}

/// Returns whether a directory has an access control list ([`acl(5)`](https://man7.org/linux/man-pages/man5/acl.5.html)).
fn has_acl(dir: &OwnedFd) -> bool {
    let mut nothing = [0_u8; 0];
    rustix::fs::fgetxattr(dir, "system.posix_acl_access", &mut nothing).is_ok_and(|len| len > 0)
}

fn not_given(path: &Path, admission: &Admission, source: Errno) -> RunDirError {
    match (admission, source) {
        (Admission::Group(group), Errno::PERM) => {
            RunDirError::NotInGroup { path: path.to_owned(), group: *group }
        }
        (_, source) => RunDirError::System { path: path.to_owned(), source },
    }
}

/// Returns the path of a service's socket.
pub fn socket_path(run_dir: &Path, service: ServiceName) -> PathBuf {
    run_dir.join(format!("{service}.sock"))
}

/// Returns the path of a service's lock file.
pub fn lock_path(run_dir: &Path, service: ServiceName) -> PathBuf {
    run_dir.join(format!("{service}.lock"))
}

impl Endpoint {
    /// Takes the name and listens for this user and root.
    ///
    /// # Errors
    /// As [`Endpoint::bind_admitting`].
    pub fn bind(run_dir: &Path, service: ServiceName) -> Result<Self, BindError> {
        Self::bind_admitting(run_dir, service, &Admission::SameUser)
    }

    /// Takes the name and listens. The socket's group and mode let the admitted users connect; the caller still has to
    /// [check](Admission::admits) each connection.
    ///
    /// # Errors
    /// [`BindError`]; [`BindError::Taken`] when the service is already served.
    pub fn bind_admitting(
        run_dir: &Path,
        service: ServiceName,
        admission: &Admission,
    ) -> Result<Self, BindError> {
        let endpoint = Self::reserve(run_dir, service, admission, false)?;
        endpoint.start_listening()?;
        Ok(endpoint)
    }

    /// Takes the name without listening: until [`Endpoint::listen`], clients find nobody there, and wait for it as for a
    /// provider that is absent. With `group_may_write`, a run directory is accepted whose group may replace what is in it.
    ///
    /// # Errors
    /// As [`Endpoint::bind_admitting`].
    pub fn reserve(
        run_dir: &Path,
        service: ServiceName,
        admission: &Admission,
        group_may_write: bool,
    ) -> Result<Self, BindError> {
        Self::bind_by(run_dir, service, admission, group_may_write, None)
    }

    fn start_listening(&self) -> Result<(), BindError> {
        let listens = self.listen(BACKLOG);
        listens.map_err(|source| BindError::System { path: self.path.clone(), source })
    }

    /// Binds with the lock that is already held, if there is one.
    fn bind_by(
        run_dir: &Path,
        service: ServiceName,
        admission: &Admission,
        group_may_write: bool,
        held: Option<OwnedFd>,
    ) -> Result<Self, BindError> {
        prepare_for(run_dir, admission, group_may_write)?;
        let path = socket_path(run_dir, service);
        let system = |source| BindError::System { path: path.clone(), source };
        let len = path.as_os_str().len();
        if len > MAX_PATH {
            return Err(BindError::PathTooLong { path, len });
        }
        let address = SocketAddrUnix::new(&path).map_err(system)?;
        let lock = match held {
            Some(held) => held,
            None => lock(&lock_path(run_dir, service), service)?,
        };
        remove_stale(&path)?;
        let socket = seqpacket().map_err(system)?;
        // Before bind the mode of the socket is the mode of the file that bind creates, so that there is no moment with a
        // wider one. The umask, which belongs to the whole process, is unchanged.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(system)?;
        rustix::net::bind(&socket, &address).map_err(system)?;
        let stat = no_follow(&path).map_err(system)?;
        let inode = (stat.st_dev, stat.st_ino);
        let _kept = [&socket, &lock].map(|fd| Kept::descriptor(fd.as_fd()));
        let (pid, admission) = (getpid(), admission.clone());
        let endpoint = Self {
            _kept,
            socket,
            service,
            path,
            inode,
            admission,
            group_may_write,
            pid,
            is_inherited: false,
            lock,
        };
        endpoint.open_to(&endpoint.admission)?;
        Ok(endpoint)
    }

    /// Lets admitted users connect from the moment that the socket listens; nobody can connect before. `bind` masks the mode
    /// by the umask and chooses the file's group, so both are set after it. The group comes first, so that the socket is
    /// never open to another group. Nobody else can replace the file at that path: the run directory was checked.
    fn open_to(&self, admission: &Admission) -> Result<(), BindError> {
        if *admission == Admission::SameUser {
            return Ok(());
        }
        let failed = |source| BindError::System { path: self.path.clone(), source };
        if let Some(group) = admission.group() {
            let given =
                rustix::fs::chownat(CWD, &self.path, None, Some(group), AtFlags::SYMLINK_NOFOLLOW);
            given.map_err(|source| not_given(&self.path, admission, source))?;
        }
        rustix::fs::chmodat(CWD, &self.path, admission.socket_mode(), AtFlags::empty())
            .map_err(failed)
    }

    /// Returns whether clients find it by its name: its socket and its lock are where they were created.
    pub fn is_in_place(&self) -> bool {
        self.is_socket_in_place() && self.holds_lock()
    }

    /// Takes the name again if the socket or the lock is gone or was replaced by another file, and listens there; creates the
    /// run directory again if needed. Clients that wait at the old socket are turned away and connect again.
    ///
    /// # Errors
    /// As [`Endpoint::bind`]: another process may have taken the name meanwhile. Then this endpoint is unchanged.
    pub fn take_place(&mut self) -> Result<(), BindError> {
        let Some(run_dir) = self.path.parent() else { return Ok(()) };
        let system = |source: std::io::Error| BindError::System {
            path: self.path.clone(),
            source: Errno::from_io_error(&source).unwrap_or(Errno::INVAL),
        };
        let held =
            if self.holds_lock() { Some(self.lock.try_clone().map_err(system)?) } else { None };
        let (admission, group_may_write) = (&self.admission, self.group_may_write);
        *self = Self::bind_by(run_dir, self.service, admission, group_may_write, held)?;
        self.start_listening()
    }

    fn holds_lock(&self) -> bool {
        let path = self.path.parent().map(|dir| lock_path(dir, self.service));
        let named = path.and_then(|path| no_follow(&path).ok());
        let held = rustix::fs::fstat(&self.lock).ok();
        named
            .zip(held)
            .is_some_and(|(named, held)| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
    }

    fn is_socket_in_place(&self) -> bool {
        no_follow(&self.path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.inode)
    }

    /// Listens, and wakes the clients that wait for that. At most `most` plus one connections wait for accept; the next one
    /// fails with [`ConnectError::Busy`]. Called again, it changes that number. The kernel caps it at `net.core.somaxconn` ([`listen(2)`](https://man7.org/linux/man-pages/man2/listen.2.html)).
    ///
    /// # Errors
    /// None on a socket that is bound.
    pub fn listen(&self, most: u32) -> Result<(), Errno> {
        rustix::net::listen(&self.socket, i32::try_from(most).unwrap_or(i32::MAX))?;
        arrivals::touch(&self.path);
        Ok(())
    }

    /// Accepts a waiting connection; returns `None` if there is none. Does not block. The channel is non-blocking and
    /// `CLOEXEC`.
    ///
    /// # Errors
    /// `EMFILE` and `ENFILE` at the limit of open files: the connection keeps waiting. Connections that were closed meanwhile
    /// are skipped without an error.
    pub fn accept(&self) -> Result<Option<Channel>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match Channel::open(|| rustix::net::accept_with(&self.socket, flags)) {
                Ok(connection) => {
                    // Without it the kernel's default holds, which is more.
                    let _ = set_socket_send_buffer_size(connection.arrived(), SEND_BUFFER);
                    return Ok(Some(connection));
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the service.
    pub fn service(&self) -> ServiceName {
        self.service
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if getpid() != self.pid || self.is_inherited {
            return;
        }
        // The lock is still held, so no correct process has put another socket there.
        if self.is_socket_in_place() {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Lists the endpoints of a run directory by name, and other objects that have an endpoint's name.
///
/// Liveness is read from `/proc/locks` ([`proc_locks(5)`](https://man7.org/linux/man-pages/man5/proc_locks.5.html)), which
/// disturbs nobody. Only a lock that does not appear there is tried, shared and for a moment.
///
/// # Errors
/// [`ListError`] when the directory cannot be read.
pub fn list(run_dir: &Path) -> Result<Vec<EndpointInfo>, ListError> {
    let failed = |source| ListError { path: run_dir.to_owned(), source };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // The paths in it may be any bytes.
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    let mut endpoints = Vec::new();
    for entry in fs::read_dir(run_dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(service) = service_of(&path) else { continue };
        let Ok(stat) = no_follow(&path) else { continue };
        let held = liveness(&lock_path(run_dir, service), &locks);
        let is_squatted = FileType::from_raw_mode(stat.st_mode) != FileType::Socket
            || match held {
                Liveness::Alive(_) => is_of_another(&stat, &lock_path(run_dir, service)),
                _ => is_listened_on(&path, &sockets),
            };
        endpoints.push(EndpointInfo {
            service,
            liveness: if is_squatted { Liveness::Squatted } else { held },
            mode: stat.st_mode & 0o7777,
            owner: stat.st_uid,
            path,
        });
    }
    endpoints.sort_by_key(|endpoint| endpoint.service);
    Ok(endpoints)
}

/// Returns whether a socket belongs neither to the user whose lock is held nor to root, who may take any lock.
fn is_of_another(socket: &Stat, lock: &Path) -> bool {
    socket.st_uid != 0 && no_follow(lock).is_ok_and(|lock| lock.st_uid != socket.st_uid)
}

/// Returns whether a process listens at that path, according to `/proc/net/unix` of this network namespace
/// ([`proc_pid_net(5)`](https://man7.org/linux/man-pages/man5/proc_pid_net.5.html)): flags of 0x10000, and the path as the
/// listener spelled it.
fn is_listened_on(path: &Path, sockets: &[u8]) -> bool {
    let real = fs::canonicalize(path);
    let names = [Ok(path.to_owned()), real];
    sockets.split(|byte| *byte == b'\n').any(|line| {
        let flags = line.split(|byte| *byte == b' ').nth(3);
        flags == Some(b"00010000")
            && names.iter().flatten().any(|name| {
                let rest = line.strip_suffix(name.as_os_str().as_bytes());
                rest.is_some_and(|rest| rest.ends_with(b" "))
            })
    })
}

fn service_of(path: &Path) -> Option<ServiceName> {
    let name = path.file_name()?.as_bytes().strip_suffix(b".sock")?;
    ServiceName::parse(name).ok()
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

fn lock(path: &Path, service: ServiceName) -> Result<OwnedFd, BindError> {
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

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let stat = match no_follow(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(source) => return Err(system(source)),
    };
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    if !is_socket || stat.st_uid != effective_uid() {
        return Err(BindError::Squatted { path: path.to_owned() });
    }
    rustix::fs::unlink(path).map_err(system)
}

fn seqpacket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn no_follow(path: &Path) -> Result<Stat, Errno> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

/// In a user namespace that does not map them, all other users look like this one.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || (uid == effective_uid() && !peer::is_overflow(uid))
}

/// Returns the owner of the run directory if this process is root's and nobody else can replace its contents: each directory
/// from the root of the file system on belongs to root or to that owner, only its owner may write to it, and none is a
/// symbolic link.
///
/// Root gave such a directory to its owner, who could stop or replace each service in it; refusing the owner to clients of
/// root would keep nobody out. Returns `None` for other users' processes, and for a program that got its rights from its file, as
/// a setuid one does: whoever starts it names the run directory.
pub fn owner_trusted_by_root(run_dir: &Path) -> Option<User> {
    if effective_uid() != 0 || peer::is_privileged_by_its_file() {
        return None;
    }
    let owner = no_follow(run_dir).ok()?.st_uid;
    if owner == 0 || peer::is_overflow(owner) {
        return None;
    }
    // The path as written: whoever can replace a link on the way could lead root elsewhere, so links are not safe.
    let path = std::path::absolute(run_dir).ok()?;
    let is_safe = |dir: &Path| {
        no_follow(dir).is_ok_and(|stat| {
            [0, owner].contains(&stat.st_uid)
                && stat.st_mode & 0o022 == 0
                && FileType::from_raw_mode(stat.st_mode).is_dir()
        })
    };
    path.ancestors().all(is_safe).then_some(User::from(owner))
}

fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_runtime_dir_comes_before_that_of_the_machine() {
        assert_eq!(run_dir_below(Some("/b".into())), Path::new("/b/bellwire"));
        assert_eq!(run_dir_below(Some(OsString::new())), Path::new("/run/bellwire"));
        assert_eq!(run_dir_below(None), Path::new("/run/bellwire"));
    }
}
