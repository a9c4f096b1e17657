//! Endpoint names: a pipe for each service, and a lock file in the run directory.

mod error;
mod instance;
mod lock;

use crate::Windows;
use crate::prelude::*;
use bellwire_shm::platform;
use bellwire_shm::platform::Absent;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};
use std::path::Path;

use bellwire_core::{Instant, ServiceName};
use sha2::{Digest, Sha256};
use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND, ERROR_PIPE_BUSY};

use crate::admission::Admission;
use crate::arrivals;
use crate::doorbell::Event;
use crate::pass::Channel;
use crate::peer::{self, Sid, User};
use crate::pipe::{End, Pipe};
use crate::{OsError, clock};
pub use bellwire_shm::{ListError, Liveness};
pub use error::{BindError, ConnectError, RunDirError};
use instance::{Listening, Rights};
pub use lock::{EndpointInfo, lock_path};

/// How many connections may wait for accept; each costs a handle.
const BACKLOG: usize = 4;
/// The name of a service, held by this process: `\\.\pipe\bellwire-{hash of the run directory}-{service}` ([named
/// pipes](https://learn.microsoft.com/en-us/windows/win32/ipc/named-pipes)).
///
/// The process that holds `{service}.lock` in the run directory owns the name. The system removes that file with its last
/// handle, however the process ends: a crash leaves nothing behind.
#[derive(Debug)]
pub struct Endpoint {
    listening: RefCell<Vec<Listening>>,
    /// Set while a client waits for accept.
    arrived: Event,
    rights: Rights,
    service: ServiceName,
    pipe: String,
    // Held until the pipe is closed.
    _lock: File,
}

/// Creates the run directory if it is missing.
///
/// The pipe controls who may connect, and its owner and access control list are checked: the directory only holds lock files.
///
/// # Errors
/// [`RunDirError`] says what is wrong and how to fix it.
pub fn prepare_run_dir(path: &Path) -> Result<(), RunDirError> {
    let system = |source| RunDirError::System { path: path.to_owned(), source };
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(system(error)),
        _ => {}
    }
    if fs::symlink_metadata(path).map_err(system)?.is_dir() {
        return Ok(());
    }
    Err(RunDirError::NotADirectory { path: path.to_owned() })
}

/// Returns the name of a service's pipe.
///
/// # Errors
/// When the run directory does not exist.
pub fn pipe_name(run_dir: &Path, service: ServiceName) -> io::Result<String> {
    // Canonical, so that one directory has one name whatever its letter case, links and dots.
    let path = fs::canonicalize(run_dir)?;
    let bytes: Vec<u8> = path.as_os_str().encode_wide().flat_map(u16::to_le_bytes).collect();
    let mut name = String::from(r"\\.\pipe\bellwire-");
    for byte in Sha256::digest(&bytes).iter().take(8) {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    let _ = write!(name, "-{service}");
    Ok(name)
}

impl Endpoint {
    /// Returns whether another first instance of this pipe could be created, which is possible only where the system ignores
    /// `FILE_FLAG_FIRST_PIPE_INSTANCE`.
    pub fn is_recreatable(&self) -> Result<bool, OsError> {
        match Listening::open(&self.pipe, &self.rights, &self.arrived, true) {
            Ok(_) => Ok(true),
            Err(error) if [ERROR_ACCESS_DENIED, ERROR_PIPE_BUSY].contains(&error.code()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the pipe's name.
    pub fn pipe(&self) -> &str {
        &self.pipe
    }

    /// Takes an instance to which a client has connected.
    fn connected(&self) -> Option<OwnedHandle> {
        let mut listening = self.listening.borrow_mut();
        loop {
            let at = listening.iter().position(Listening::is_over)?;
            if let Some(handle) = listening.swap_remove(at).into_connected() {
                return Some(handle);
            }
        }
    }

    /// Updates the event to show whether a client waits. Needed after instances were created: starting an overlapped
    /// operation resets its event, even if it was set for another one
    /// ([OVERLAPPED](https://learn.microsoft.com/en-us/windows/win32/api/minwinbase/ns-minwinbase-overlapped)).
    fn recheck(&self) {
        // In this order: a connection after the reset sets the event, and an earlier one is found.
        self.arrived.reset();
        if self.listening.borrow().iter().any(Listening::is_over) {
            self.arrived.ring();
        }
    }

    /// Creates instances up to the intended number. Fails only if there is none at all.
    fn refill(&self) -> Result<(), OsError> {
        let mut listening = self.listening.borrow_mut();
        while listening.len() < BACKLOG {
            match Listening::open(&self.pipe, &self.rights, &self.arrived, false) {
                Ok(instance) => listening.push(instance),
                Err(error) if listening.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }
}

impl platform::Endpoint<Windows> for Endpoint {
    /// Listens at once. Nobody from another machine may connect.
    fn reserve(
        run_dir: &Path,
        service: ServiceName,
        admission: &Admission,
        _group_may_write: bool,
        _inherited: Option<&Absent<Windows>>,
    ) -> Result<Self, BindError> {
        let everyone = [User::everyone()];
        let admitted = match admission {
            Admission::Users(users) => &users[..],
            Admission::Any => &everyone,
            Admission::Group(_) => return Err(BindError::NoGroups),
            _ => &[],
        };
        prepare_run_dir(run_dir)?;
        let lock = lock::lock(&lock_path(run_dir, service), service)?;
        let pipe = pipe_name(run_dir, service).map_err(|source| {
            BindError::RunDir(RunDirError::System { path: run_dir.to_owned(), source })
        })?;
        let system = |source| BindError::System { at: pipe.clone(), source };
        let own = peer::own_user().map_err(system)?;
        let rights = Rights::new(own, admitted);
        let arrived = Event::manual_reset().map_err(system)?;
        let first = Listening::open(&pipe, &rights, &arrived, true);
        let first = first.map_err(|source| match source.code() {
            ERROR_ACCESS_DENIED | ERROR_PIPE_BUSY => BindError::Squatted { pipe: pipe.clone() },
            _ => system(source),
        })?;
        let listening = RefCell::new(vec![first]);
        let endpoint = Self { listening, arrived, rights, service, pipe, _lock: lock };
        // Fewer instances suffice.
        let _ = endpoint.refill();
        // A client may have connected to the first one already.
        endpoint.recheck();
        arrivals::touch(&endpoint._lock);
        Ok(endpoint)
    }

    fn listen(&self, _: u32) -> Result<(), OsError> {
        Ok(())
    }

    fn accept(&self) -> Result<Option<Channel>, OsError> {
        let connected = self.connected();
        let refilled = self.refill();
        self.recheck();
        match connected {
            Some(handle) => Pipe::new(handle, End::Server).map(Channel::new).map(Some),
            None => refilled.map(|()| None),
        }
    }

    fn stop_accepting(&self) {
        while let Ok(Some(channel)) = self.accept() {
            drop(channel);
        }
    }

    fn service(&self) -> ServiceName {
        self.service
    }

    /// The system's administrators may own the pipe, too.
    fn connect(
        run_dir: &Path,
        service: ServiceName,
        owners: &[User],
        until: Option<Instant>,
    ) -> Result<Channel, ConnectError> {
        let pipe = match pipe_name(run_dir, service) {
            Ok(pipe) => pipe,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ConnectError::Absent { service });
            }
            Err(error) => {
                let at = run_dir.display().to_string();
                return Err(ConnectError::System { at, source: error.into() });
            }
        };
        let system = |source| ConnectError::System { at: pipe.clone(), source };
        let handle = loop {
            match instance::open(&pipe) {
                Ok(handle) => break handle,
                Err(error) => match error.code() {
                    ERROR_FILE_NOT_FOUND => return Err(ConnectError::Absent { service }),
                    ERROR_ACCESS_DENIED => {
                        return Err(ConnectError::Forbidden { at: pipe, user: User::own() });
                    }
                    ERROR_PIPE_BUSY if clock::is_over(until) => {
                        return Err(ConnectError::Busy { service });
                    }
                    ERROR_PIPE_BUSY => instance::wait_for_instance(&pipe, until).map_err(system)?,
                    _ => return Err(system(error)),
                },
            }
        };
        let channel = Pipe::new(handle, End::Client).map(Channel::new).map_err(system)?;
        let owner = peer::owner(&channel).map_err(system)?;
        let known = [Sid::local_system(), Sid::administrators()];
        if known.contains(&owner) || owners.contains(&owner) || owner.is_own() {
            return Ok(channel);
        }
        Err(ConnectError::Squatted { at: pipe, owner })
    }

    fn list(run_dir: &Path) -> Result<Vec<EndpointInfo>, ListError> {
        platform::list(run_dir, ".lock", |service, path| {
            let address = pipe_name(run_dir, service).ok()?;
            let (liveness, owner) = (lock::liveness(&path), lock::owner(&path));
            Some(EndpointInfo { service, path, address, liveness, mode: None, owner })
        })
    }
}

impl AsHandle for Endpoint {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.arrived.as_handle()
    }
}
