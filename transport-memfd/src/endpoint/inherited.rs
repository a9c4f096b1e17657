#![allow(unsafe_code, reason = "takes descriptors of which only their numbers are known")]
//! Listening sockets that a service manager bound before it started this process, and hands over: socket activation.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bellwire_core::ServiceName;
use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_shm::platform;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::getpid;

use super::lock::{lock, lock_path};
use super::run_dir::prepare_for;
use super::{BindError, Endpoint, socket_path};
use crate::admission::Admission;
use crate::prelude::*;

/// The first descriptor that is handed over ([`sd_listen_fds(3)`](https://man7.org/linux/man-pages/man3/sd_listen_fds.3.html)).
const FIRST: RawFd = 3;
static ARE_TAKEN: AtomicBool = AtomicBool::new(false);

/// A Unix socket of type `SOCK_SEQPACKET` that listens at a path, bound by the service manager, which keeps it open.
#[derive(Debug)]
pub struct Inherited {
    socket: OwnedFd,
    path: PathBuf,
}

/// Why a socket that was handed over is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InheritError {
    /// `LISTEN_FDS` is not the number of open descriptors that follow the first three.
    #[error(
        "LISTEN_FDS is {count:?}, but descriptor {fd} is not open: is it set by the service manager?"
    )]
    NotOpen {
        /// What the variable says.
        count: String,
        /// The descriptor.
        fd: RawFd,
    },
    /// Clients could not connect to it.
    #[error(
        "descriptor {fd} is no Unix socket of type SOCK_SEQPACKET that listens at a path: systemd makes one of ListenSequentialPacket= with Accept=no"
    )]
    NotAnEndpoint {
        /// The descriptor.
        fd: RawFd,
    },
    /// Another socket, or none, is where it was bound.
    #[error("the socket handed over is no longer at {}: restart the socket's unit", .path.display())]
    Displaced {
        /// The path.
        path: PathBuf,
    },
}

/// Takes the sockets that a service manager hands to this process: `LISTEN_FDS` of them, from descriptor 3 on, if `LISTEN_PID`
/// is this process. Once: later calls find none.
///
/// # Errors
/// [`InheritError`] of the first that is no endpoint. The others are closed then.
pub fn inherited() -> Result<Vec<Inherited>, InheritError> {
    let text = |name| std::env::var(name).unwrap_or_default();
    let count = text("LISTEN_FDS");
    // Relaxed: it guards no other memory.
    if text("LISTEN_PID") != getpid().to_string() || ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let Ok(number) = count.parse::<u16>() else {
        return Err(InheritError::NotOpen { count, fd: FIRST });
    };
    let numbers = FIRST..FIRST + RawFd::from(number);
    let taken = numbers.map(|fd| take(fd).map(|socket| (socket, fd)).ok_or(fd));
    // All are taken before one is refused, so that this process's children get none of them.
    let taken: Result<Vec<_>, RawFd> = taken.collect();
    let taken = taken.map_err(|fd| InheritError::NotOpen { count, fd })?;
    taken.into_iter().map(|(socket, fd)| Inherited::new(socket, fd)).collect()
}

/// Takes a descriptor, and keeps it from children; returns `None` if it is not open.
fn take(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: fcntl(2) fails for a number that is no descriptor, and only sets a flag of one that is.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return None;
    }
    // SAFETY: it is open, and the service manager's protocol gives it to whoever in this process asks first, which
    // `ARE_TAKEN` makes this caller.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Inherited {
    fn new(socket: OwnedFd, fd: RawFd) -> Result<Self, InheritError> {
        let found = (|| {
            let is_endpoint = sockopt::socket_domain(&socket)? == AddressFamily::UNIX
                && sockopt::socket_type(&socket)? == SocketType::SEQPACKET
                && sockopt::socket_acceptconn(&socket)?;
            let address = SocketAddrUnix::try_from(rustix::net::getsockname(&socket)?)?;
            let path = address.path().map(std::borrow::Cow::into_owned).filter(|_| is_endpoint);
            // accept(2) must not wait; the service manager's own copy of it is non-blocking already.
            fcntl_setfl(&socket, fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
            Ok::<_, Errno>(path)
        })();
        match found {
            Ok(Some(path)) => {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes()));
                Ok(Self { socket, path })
            }
            _ => Err(InheritError::NotAnEndpoint { fd }),
        }
    }

    /// Returns whether clients that connect to its path reach a socket. It tries with a socket of another type, which the kernel
    /// refuses with `EPROTOTYPE` where one is bound, so that nobody is disturbed.
    fn is_in_place(&self) -> bool {
        let Ok(address) = SocketAddrUnix::new(&self.path) else { return false };
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let tried = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .and_then(|socket| rustix::net::connect(&socket, &address));
        !matches!(tried, Ok(()) | Err(Errno::NOENT | Errno::CONNREFUSED))
    }
}

impl platform::Inherited for Inherited {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_of(&self, run_dir: &Path, service: ServiceName) -> bool {
        let place = |path: &Path| path.parent().and_then(|dir| dir.canonicalize().ok());
        let wanted = socket_path(run_dir, service);
        self.path.file_name() == wanted.file_name() && place(&self.path) == place(&wanted)
    }
}

impl Endpoint {
    /// Takes the name, and serves it at a socket that was handed over: its mode, its group and its file are left to the service
    /// manager. Clients that connect before [`Endpoint::listen`] wait.
    ///
    /// # Errors
    /// As [`Endpoint::reserve`]; [`BindError::Inherited`] when clients do not reach the socket.
    pub(super) fn at_inherited(
        run_dir: &Path,
        service: ServiceName,
        admission: &Admission,
        group_may_write: bool,
        inherited: &Inherited,
    ) -> Result<Self, BindError> {
        prepare_for(run_dir, admission, group_may_write)?;
        let path = socket_path(run_dir, service);
        let lock = lock(&lock_path(run_dir, service), service)?;
        if !inherited.is_of(run_dir, service) || !inherited.is_in_place() {
            return Err(InheritError::Displaced { path: inherited.path.clone() }.into());
        }
        let socket = inherited.socket.try_clone().map_err(|error: io::Error| {
            let source = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
            BindError::System { path: path.clone(), source }
        })?;
        let mut endpoint = Self::at(path, service, admission, group_may_write, socket, lock)?;
        endpoint.is_inherited = true;
        Ok(endpoint)
    }
}
