//! Endpoint names on disk: a run directory with a socket and a lock file for each service.

mod connect;
mod error;
mod inherited;
mod lock;
mod run_dir;

use crate::Linux;
use crate::prelude::*;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bellwire_core::{Instant, ServiceName};
use bellwire_shm::platform;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, getpid};

use crate::admission::{self, Admission};
use crate::arrivals;
use crate::fork::ForkGuard;
use crate::pass::{self, Channel};
use crate::peer::User;
use crate::peer::own_uid;
pub use bellwire_shm::{ListError, Liveness};
pub use connect::{ConnectError, connect, connect_trusting};
pub use error::{BindError, RunDirError};
pub use inherited::{InheritError, Inherited, inherited};
pub use lock::{EndpointInfo, list, lock_path};
pub use run_dir::{default_run_dir, owner_trusted_by_root, prepare_run_dir};
use run_dir::{not_given, prepare_for};

/// How many connections may wait for accept, unless [`Endpoint::listen`] is told another limit.
pub const BACKLOG: u32 = 4096;
/// The longest path of a socket, in bytes (`sun_path` less its final zero).
pub const MAX_PATH: usize = 107;
/// What a session's client may leave unread on its control socket, in bytes; the kernel doubles it and counts its own structures, too
/// (`SO_SNDBUF`, [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)).
const SEND_BUFFER: usize = 64 << 10;

/// The name of a service, held by this process: `{run_dir}/{service}.sock`, `SOCK_SEQPACKET`, mode 0600 unless others are
/// admitted.
///
/// The process that holds the lock on `{service}.lock` owns the name and may replace a stale socket. The kernel releases the
/// lock when the process ends, so a crash never keeps a successor out. The lock file stays.
#[derive(Debug)]
pub struct Endpoint {
    // A helper process that kept them open would keep a successor out and let clients wait.
    _kept: [ForkGuard; 2],
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

/// Returns the path of a service's socket.
pub fn socket_path(run_dir: &Path, service: ServiceName) -> PathBuf {
    run_dir.join(format!("{service}.sock"))
}

impl Endpoint {
    /// Takes the name and listens for this user and root.
    ///
    /// # Errors
    /// [`BindError`]; [`BindError::Taken`] when the service is already served.
    pub fn bind(run_dir: &Path, service: ServiceName) -> Result<Self, BindError> {
        let endpoint = Self::bind_by(run_dir, service, &Admission::SameUser, false, None)?;
        endpoint.start_listening()?;
        Ok(endpoint)
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
            None => lock::lock(&lock_path(run_dir, service), service)?,
        };
        remove_stale(&path)?;
        let socket = seqpacket().map_err(system)?;
        // Before bind the mode of the socket is the mode of the file that bind creates, so that there is no moment with a
        // wider one. The umask, which belongs to the whole process, is unchanged.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(system)?;
        rustix::net::bind(&socket, &address).map_err(system)?;
        let endpoint = Self::at(path, service, admission, group_may_write, socket, lock)?;
        endpoint.open_to(admission)?;
        Ok(endpoint)
    }

    /// Creates the endpoint of a socket that is bound at `path`.
    fn at(
        path: PathBuf,
        service: ServiceName,
        admission: &Admission,
        group_may_write: bool,
        socket: OwnedFd,
        lock: OwnedFd,
    ) -> Result<Self, BindError> {
        let stat = match no_follow(&path) {
            Ok(stat) => stat,
            Err(source) => return Err(BindError::System { path, source }),
        };
        Ok(Self {
            _kept: [&socket, &lock].map(|fd| ForkGuard::descriptor(fd.as_fd())),
            socket,
            service,
            path,
            inode: (stat.st_dev, stat.st_ino),
            admission: admission.clone(),
            group_may_write,
            pid: getpid(),
            is_inherited: false,
            lock,
        })
    }

    /// Lets admitted users connect from the moment that the socket listens; nobody can connect before. `bind` masks the mode
    /// by the umask and chooses the file's group, so both are set after it. The group comes first, so that the socket is
    /// never open to another group. Nobody else can replace the file at that path: the run directory was checked.
    fn open_to(&self, admission: &Admission) -> Result<(), BindError> {
        if *admission == Admission::SameUser {
            return Ok(());
        }
        let failed = |source| BindError::System { path: self.path.clone(), source };
        if let Some(group) = admission::group(admission) {
            let given =
                rustix::fs::chownat(CWD, &self.path, None, Some(group), AtFlags::SYMLINK_NOFOLLOW);
            given.map_err(|source| not_given(&self.path, admission, source))?;
        }
        let [mode, _] = admission::modes(admission);
        rustix::fs::chmodat(CWD, &self.path, mode, AtFlags::empty()).map_err(failed)
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

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl platform::Endpoint<Linux> for Endpoint {
    fn reserve(
        run_dir: &Path,
        service: ServiceName,
        admission: &Admission,
        group_may_write: bool,
        inherited: Option<&Inherited>,
    ) -> Result<Self, BindError> {
        match inherited {
            Some(at) => Self::at_inherited(run_dir, service, admission, group_may_write, at),
            None => Self::bind_by(run_dir, service, admission, group_may_write, None),
        }
    }

    fn is_in_place(&self) -> bool {
        self.is_socket_in_place() && self.holds_lock()
    }

    fn take_place(&mut self) -> Result<(), BindError> {
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

    /// The kernel caps `most` at `net.core.somaxconn` ([`listen(2)`](https://man7.org/linux/man-pages/man2/listen.2.html)); beyond it
    /// connecting fails with [`ConnectError::Busy`].
    fn listen(&self, most: u32) -> Result<(), Errno> {
        // Descriptors of a client that is not admitted would only have to be closed. Kernels before Linux 6.16 have no such option.
        let _ = pass::set_passrights(self.socket.as_fd(), false);
        rustix::net::listen(&self.socket, i32::try_from(most).unwrap_or(i32::MAX))?;
        arrivals::touch(&self.path);
        Ok(())
    }

    fn accept(&self) -> Result<Option<Channel>, Errno> {
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

    /// Refuses connections with `ECONNREFUSED`, by [`shutdown(2)`](https://man7.org/linux/man-pages/man2/shutdown.2.html). At an
    /// inherited socket clients go on waiting, for the successor.
    fn stop_accepting(&self) {
        if self.is_inherited {
            return;
        }
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
        while let Ok(Some(channel)) = self.accept() {
            drop(channel);
        }
    }

    fn service(&self) -> ServiceName {
        self.service
    }

    fn connect(
        run_dir: &Path,
        service: ServiceName,
        owners: &[User],
        until: Option<Instant>,
    ) -> Result<Channel, ConnectError> {
        connect_trusting(run_dir, service, owners, until)
    }

    fn inherited() -> Result<Vec<Inherited>, InheritError> {
        inherited()
    }

    fn list(run_dir: &Path) -> Result<Vec<EndpointInfo>, ListError> {
        list(run_dir)
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

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let stat = match no_follow(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(source) => return Err(system(source)),
    };
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    if !is_socket || stat.st_uid != own_uid() {
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
