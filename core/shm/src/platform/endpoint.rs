//! The name of a service on disk: who holds it, who reaches it, and noticing that it comes or goes.

use std::path::{Path, PathBuf};
use std::{fs, io};

use bellwire_core::{Instant, ServiceName};

use super::{Absent, Admission, Platform};

/// The name of a service, held by this process.
pub trait Endpoint<P: Platform>: Sized {
    /// Takes the name without listening: until [`Endpoint::listen`], clients wait as for a provider that is absent. With
    /// `group_may_write`, a run directory is accepted whose group may replace what is in it. With a socket that was handed over,
    /// serves the name there: clients that connect before [`Endpoint::listen`] wait.
    ///
    /// # Errors
    /// The name is taken, the run directory is not safe, or clients do not reach the socket that was handed over.
    fn reserve(
        run_dir: &Path,
        service: ServiceName,
        admission: &Admission<P>,
        group_may_write: bool,
        inherited: Option<&P::Inherited>,
    ) -> Result<Self, P::BindError>;

    /// Returns whether clients find it by its name: always, by default, where a name has no files that can go.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Takes the name again after its files went or were replaced, and listens there. Clients that wait at the old place are
    /// rejected and connect again.
    ///
    /// # Errors
    /// Another process may have taken the name meanwhile. Then this endpoint is unchanged.
    fn take_place(&mut self) -> Result<(), P::BindError> {
        Ok(())
    }

    /// Listens, and wakes the clients that wait for that. At most `most` plus one connections wait for accept. Called again, it
    /// changes that number.
    ///
    /// # Errors
    /// None on an endpoint that is bound.
    fn listen(&self, most: u32) -> Result<(), P::Error>;

    /// Accepts a waiting connection; returns `None` if there is none. Does not wait.
    ///
    /// # Errors
    /// At the limit of descriptors, handles or memory: the connection keeps waiting. Connections that were closed meanwhile are
    /// skipped without an error.
    fn accept(&self) -> Result<Option<P::Channel>, P::Error>;

    /// Refuses further connections where the system can, and closes those that wait for accept.
    fn stop_accepting(&self);

    /// Returns the service.
    fn service(&self) -> ServiceName;

    /// Connects to a service whose endpoint belongs to this user, to the system, or to one of `owners`. Waits only while the
    /// queue of connections is full, until `until` at most. The caller still checks the peer's
    /// [`Credentials`](super::Credentials).
    ///
    /// # Errors
    /// No process serves it, or one that is not trusted.
    fn connect(
        run_dir: &Path,
        service: ServiceName,
        owners: &[P::User],
        until: Option<Instant>,
    ) -> Result<P::Channel, ConnectError<P>>;

    /// Takes the sockets that a service manager hands to this process: none, by default. Once: later calls find none.
    ///
    /// # Errors
    /// Of the first that is no endpoint. The others are closed then.
    fn inherited() -> Result<Vec<P::Inherited>, P::InheritError> {
        Ok(Vec::new())
    }

    /// Lists the endpoints of a run directory by name, and other objects that have an endpoint's name, without connecting.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list(run_dir: &Path) -> Result<Vec<EndpointInfo<P::User>>, ListError>;
}

/// Why a service cannot be reached. Each system has some of these reasons.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError<P: Platform> {
    /// Nobody serves it now. This is a state rather than a failure: try again later.
    #[error("no provider of {service} is running")]
    Absent {
        /// The service.
        service: ServiceName,
    },
    /// Something that is not a socket has the name, on Linux.
    #[error("{} is not a socket: remove it, or name the right run directory", .path.display())]
    NotASocket {
        /// Its path.
        path: PathBuf,
    },
    /// The socket or pipe belongs to a user who is not trusted.
    #[error(
        "{at} belongs to {owner}, neither this process's user nor root or the system: remove it, or list that user in the client's trusted users"
    )]
    Squatted {
        /// The socket's path or the pipe's name.
        at: String,
        /// Its owner.
        owner: P::User,
    },
    /// This process's user may not reach the socket, or may not connect to it or to the pipe.
    #[error(
        "{user} may not connect to {at}: run the client as the provider's user, or have the provider admit it (bellwire provide --admit), which lets it reach the run directory and the socket"
    )]
    Forbidden {
        /// The socket's path or the pipe's name.
        at: String,
        /// This process's user.
        user: P::User,
    },
    /// The queue of connections that wait for accept is full. Try again soon.
    #[error("{service} has too many connections waiting: try again")]
    Busy {
        /// The service.
        service: ServiceName,
    },
    /// The path of the socket is longer than an address can hold, on Linux.
    #[error("{} has {len} bytes where a socket's path has at most 107: use a shorter run directory", .path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len: usize,
    },
    /// The system refused.
    #[error("cannot connect to {at}: {source}")]
    System {
        /// The socket's path or the pipe's name.
        at: String,
        /// The error from the system.
        source: P::Error,
    },
}

impl<P: Platform> ConnectError<P> {
    /// Returns whether the name belongs to something that is not trusted.
    pub const fn is_impostor(&self) -> bool {
        matches!(self, Self::NotASocket { .. } | Self::Squatted { .. })
    }
}

/// A run directory's entry for one service, of a user of type `U`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointInfo<U> {
    /// The service.
    pub service: ServiceName,
    /// The path of the socket; on Windows, of the lock file.
    pub path: PathBuf,
    /// What clients connect to: the socket's path, or the pipe's name.
    pub address: String,
    /// Whether a process serves it.
    pub liveness: Liveness,
    /// The socket's permission bits; `None` on Windows, where the pipe's access control list admits its owner and the listed
    /// users.
    pub mode: Option<u32>,
    /// The owner of the file, if this process may query it.
    pub owner: Option<U>,
}

/// Returns the path of a service's lock file.
pub fn lock_path(run_dir: &Path, service: ServiceName) -> PathBuf {
    run_dir.join(format!("{service}.lock"))
}

/// Lists what `describe` returns for the files of a run directory that have a service's name and this suffix, by name.
///
/// # Errors
/// The directory cannot be read.
pub fn list<U>(
    run_dir: &Path,
    suffix: &str,
    describe: impl Fn(ServiceName, PathBuf) -> Option<EndpointInfo<U>>,
) -> Result<Vec<EndpointInfo<U>>, ListError> {
    let failed = |source| ListError { path: run_dir.to_owned(), source };
    let mut endpoints = Vec::new();
    for entry in fs::read_dir(run_dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(suffix));
        let Some(Ok(service)) = name.map(str::parse) else { continue };
        endpoints.extend(describe(service, path));
    }
    endpoints.sort_by_key(|endpoint| endpoint.service);
    Ok(endpoints)
}

/// Whether a process serves an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// A process holds its lock; its pid, if known.
    Alive(Option<u32>),
    /// No process serves it: a crash left it.
    Stale,
    /// The name is taken by something else: a socket whose listener does not hold the lock, a socket and a lock of different
    /// users, or an object that is not a socket. Never on Windows, where the pipe's owner shows that.
    Squatted,
    /// A service manager listens, and starts the provider when a client connects. Never on Windows.
    Activated,
    /// This process cannot find out.
    Unknown,
}

/// Why a run directory was not listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {}: {source}", .path.display())]
pub struct ListError {
    /// The directory.
    pub path: PathBuf,
    /// The error from the system.
    pub source: io::Error,
}

/// A socket that listens, bound by the service manager, which keeps it open.
pub trait Inherited {
    /// Returns where it was bound.
    fn path(&self) -> &Path;

    /// Returns whether clients of a service look for it there.
    fn is_of(&self, run_dir: &Path, service: ServiceName) -> bool;
}

impl<P> Inherited for Absent<P> {
    fn path(&self) -> &Path {
        match self.0 {}
    }

    fn is_of(&self, _: &Path, _: ServiceName) -> bool {
        match self.0 {}
    }
}

/// A wait for an endpoint to come up: ready when one may have.
pub trait Arrivals: Sized {
    /// Watches a run directory, which need not exist. Check for the endpoint after this call, and after each
    /// [`Arrivals::take`].
    ///
    /// # Errors
    /// The directory cannot be watched.
    fn watch(run_dir: &Path) -> io::Result<Self>;

    /// Consumes what made it ready.
    ///
    /// # Errors
    /// As of [`Arrivals::watch`]: no further change is noticed.
    fn take(&self) -> io::Result<()>;

    /// Closes what the next wait would use again: a process that has found its provider keeps nothing from others.
    fn release();
}

/// Watches a run directory, or where it was, for files that go or are replaced: ready when something may have happened.
pub trait Notify<P: Platform>: Sized {
    /// Watches a run directory. `None` if that is not possible, or nothing can happen: then changes go unnoticed.
    fn watch(run_dir: &Path) -> Option<Self>;

    /// Returns what to wait for.
    fn changed(&self) -> P::Borrowed<'_>;

    /// Consumes the events and keeps watching the directory, or its nearest existing ancestor. Check the files after this call.
    /// `is_missing` says that some of them were not there before: then nothing else tells that the directory goes.
    fn take(&self, is_missing: bool);
}

impl<P: Platform> Notify<P> for Absent<P> {
    fn watch(_: &Path) -> Option<Self> {
        None
    }

    fn changed(&self) -> P::Borrowed<'_> {
        match self.0 {}
    }

    fn take(&self, _: bool) {
        match self.0 {}
    }
}
