#![allow(unsafe_code, reason = "named pipes; every handle is owned at once")]
//! The name: a pipe for each service, and a lock file in the run directory.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::time::Duration;

use bellwire_core::{Instant, ServiceName};
use sha2::{Digest, Sha256};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND, ERROR_IO_INCOMPLETE, ERROR_IO_PENDING,
    ERROR_PIPE_BUSY, ERROR_PIPE_CONNECTED, ERROR_SEM_TIMEOUT, ERROR_SHARING_VIOLATION,
    GENERIC_WRITE, HANDLE, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, DELETE, FILE_APPEND_DATA, FILE_FLAG_DELETE_ON_CLOSE,
    FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_GENERIC_READ, FILE_GENERIC_WRITE,
    FILE_SHARE_DELETE, FILE_SHARE_READ, OPEN_EXISTING, PIPE_ACCESS_DUPLEX, SECURITY_IDENTIFICATION,
    SECURITY_SQOS_PRESENT,
};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Pipes::{
    ConnectNamedPipe, CreateNamedPipeW, NAMED_PIPE_MODE, PIPE_READMODE_MESSAGE,
    PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_MESSAGE, PIPE_UNLIMITED_INSTANCES, PIPE_WAIT,
    SetNamedPipeHandleState, WaitNamedPipeW,
};

use crate::doorbell::Event;
use crate::pass::Channel;
use crate::peer::{self, Sid, User};
use crate::pipe::{End, Pipe};
use crate::security::Descriptor;
use crate::{OsError, clock};

/// How many connections may wait to be accepted: each costs a handle.
const BACKLOG: usize = 4;
/// What each direction of a pipe holds before a sender is told to wait, in bytes.
const BUFFER: u32 = 16 << 10;
/// Whole messages, and nobody from another machine.
const MODE: NAMED_PIPE_MODE =
    PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS;
/// What a client does with its end. Without `FILE_APPEND_DATA`, which on a pipe is the right to make another
/// instance: a client could serve in the server's name.
const CLIENT_RIGHTS: u32 = FILE_GENERIC_READ | (FILE_GENERIC_WRITE & !FILE_APPEND_DATA);
/// A lister may have a lock file open for a moment: so often is it tried again, that far apart.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// How long one wait for a free instance overlooks that the service has stopped.
const BUSY_SLICE: u32 = 50;

const _: () = assert!(MODE & PIPE_REJECT_REMOTE_CLIENTS != 0);

/// Why a run directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// There is something else by that name; a link counts.
    #[error("{} is not a directory: remove it or name another run directory", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot use {} as the run directory: {source}; create it for this user alone", .path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a service's name was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The run directory is not usable.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Another process, or another endpoint of this one, serves that name now.
    #[error("{service} is served by another process: it holds {}", .lock.display())]
    Taken {
        /// The service.
        service: ServiceName,
        /// The lock file that is held.
        lock: PathBuf,
    },
    /// The pipe is there although nobody holds the lock: a process that is not ours made it, or clients of a
    /// predecessor have not noticed its end.
    #[error("{pipe} is there and is not ours: end the processes that hold it, or try again soon")]
    Squatted {
        /// The pipe's name.
        pipe: String,
    },
    /// The system refused.
    #[error("cannot serve at {at}: {source}")]
    System {
        /// The file or the pipe concerned.
        at: String,
        /// What the system said.
        source: OsError,
    },
}

/// Why a service cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody serves it now: a state rather than a failure. Try again later.
    #[error("nobody serves {service} now")]
    Absent {
        /// The service.
        service: ServiceName,
    },
    /// The pipe belongs to somebody whom nothing makes trustworthy.
    #[error(
        "{pipe} belongs to {owner}, neither this process's user nor the system: not connecting"
    )]
    Squatted {
        /// The pipe's name.
        pipe: String,
        /// Its owner.
        owner: Sid,
    },
    /// This process's user may not connect.
    #[error("this user may not open {pipe}: list it among the provider's admitted users")]
    Denied {
        /// The pipe's name.
        pipe: String,
    },
    /// As many connections wait to be accepted as may. Try again soon.
    #[error("{service} has too many connections waiting: try again")]
    Busy {
        /// The service.
        service: ServiceName,
    },
    /// The system refused.
    #[error("cannot connect to {pipe}: {source}")]
    System {
        /// The pipe's name.
        pipe: String,
        /// What the system said.
        source: OsError,
    },
}

/// Why a run directory was not listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {}: {source}", .path.display())]
pub struct ListError {
    /// The directory.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// The name of a service, held by this process: `\\.\pipe\bellwire-{hash of the run directory}-{service}`
/// ([named pipes](https://learn.microsoft.com/en-us/windows/win32/ipc/named-pipes)).
///
/// Whoever holds `{service}.lock` in the run directory owns the name. The system removes that file with the
/// last handle, however the process ends: a crash leaves nothing behind.
#[derive(Debug)]
pub struct Endpoint {
    listening: RefCell<Vec<Listening>>,
    /// Set as long as somebody waits to be accepted.
    arrived: Event,
    rights: Rights,
    service: ServiceName,
    pipe: String,
    // Held until the pipe is gone.
    _lock: File,
}

/// Whether somebody serves an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// A process holds its lock; the pid, where it can be told.
    Alive(Option<u32>),
    /// Nobody does.
    Stale,
    /// It cannot be told from here.
    Unknown,
}

/// What stands in a run directory for one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointInfo {
    /// The service.
    pub service: ServiceName,
    /// The lock file's path.
    pub path: PathBuf,
    /// The pipe's name.
    pub pipe: String,
    /// Whether somebody serves it.
    pub liveness: Liveness,
}

/// Who may do what with the pipe, as text.
#[derive(Debug)]
struct Rights(String);

/// An instance of the pipe that nobody was seen to connect to yet.
#[derive(Debug)]
struct Listening {
    // `None` once somebody has it.
    handle: Option<OwnedHandle>,
    // Allocated on its own: the system writes there until somebody connects. `None` when somebody was faster.
    overlapped: Option<NonNull<OVERLAPPED>>,
}

// SAFETY: the OVERLAPPED belongs to the instance alone, and the system does not mind which thread asks for it.
unsafe impl Send for Listening {}

/// Where endpoints are when nothing says otherwise: `bellwire` below `LOCALAPPDATA`; without that below the directory for
/// temporary files.
pub fn default_run_dir() -> PathBuf {
    let local = std::env::var_os("LOCALAPPDATA").filter(|local| !local.is_empty());
    local.map_or_else(std::env::temp_dir, PathBuf::from).join("bellwire")
}

/// Creates the run directory if it is missing.
///
/// Who may connect is a matter of the pipe, whose owner and whose list of rights are checked: the directory
/// holds lock files only.
///
/// # Errors
/// [`RunDirError`] says what is wrong and how to mend it.
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

/// The path of a service's lock file.
pub fn lock_path(run_dir: &Path, service: ServiceName) -> PathBuf {
    run_dir.join(format!("{service}.lock"))
}

/// The name of a service's pipe.
///
/// # Errors
/// When the run directory is not there.
pub fn pipe_name(run_dir: &Path, service: ServiceName) -> io::Result<String> {
    // One directory, one name: letter case, links and dots are gone from here on.
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

impl ConnectError {
    /// Whether whoever has the name is not to be trusted.
    pub const fn is_impostor(&self) -> bool {
        matches!(self, Self::Squatted { .. })
    }
}

impl Endpoint {
    /// Takes the name and listens. Besides this user those in `admitted` may connect; nobody from another
    /// machine.
    ///
    /// # Errors
    /// [`BindError`]; [`BindError::Taken`] when somebody serves it already.
    pub fn bind_admitting(
        run_dir: &Path,
        service: ServiceName,
        admitted: &[User],
    ) -> Result<Self, BindError> {
        prepare_run_dir(run_dir)?;
        let lock = lock(&lock_path(run_dir, service), service)?;
        let pipe = pipe_name(run_dir, service).map_err(|source| {
            BindError::RunDir(RunDirError::System { path: run_dir.to_owned(), source })
        })?;
        let system = |source| BindError::System { at: pipe.clone(), source };
        let own = peer::own_user().map_err(system)?;
        let rights = Rights::new(&own, admitted);
        let arrived = Event::lasting().map_err(system)?;
        let first = Listening::open(&pipe, &rights, &arrived, true);
        let first = first.map_err(|source| match source.code() {
            ERROR_ACCESS_DENIED | ERROR_PIPE_BUSY => BindError::Squatted { pipe: pipe.clone() },
            _ => system(source),
        })?;
        let listening = RefCell::new(vec![first]);
        let endpoint = Self { listening, arrived, rights, service, pipe, _lock: lock };
        // Fewer do as well.
        let _ = endpoint.refill();
        Ok(endpoint)
    }

    /// Accepts a connection that waits; `None` when none does. Does not wait: [`Endpoint::as_handle`] is ready
    /// as long as there is one, and any other handle ends a wait for it.
    ///
    /// # Errors
    /// At the limit of handles or memory. Errors of a connection that went away meanwhile are passed over.
    pub fn accept(&self) -> Result<Option<Channel>, OsError> {
        let connected = self.connected();
        let refilled = self.refill();
        // In this order: one that connects after the reset sets the event, and one before it is seen.
        self.arrived.reset();
        if self.listening.borrow().iter().any(Listening::is_over) {
            self.arrived.ring();
        }
        match connected {
            Some(handle) => Pipe::new(handle, End::Server).map(Channel::new).map(Some),
            None => refilled.map(|()| None),
        }
    }

    /// The service.
    pub fn service(&self) -> ServiceName {
        self.service
    }

    /// The pipe's name.
    pub fn pipe(&self) -> &str {
        &self.pipe
    }

    /// Takes an instance that somebody has connected to.
    fn connected(&self) -> Option<OwnedHandle> {
        let mut listening = self.listening.borrow_mut();
        loop {
            let at = listening.iter().position(Listening::is_over)?;
            if let Some(handle) = listening.swap_remove(at).into_connected() {
                return Some(handle);
            }
        }
    }

    /// Makes instances until there are as many as should be. An error only if there is none at all.
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

impl AsHandle for Endpoint {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.arrived.as_handle()
    }
}

impl Rights {
    /// The pipe belongs to this user, who may do everything; those admitted may connect. Nobody is denied for
    /// having logged on over the network: a local client in a remote shell has. The mode keeps machines apart.
    fn new(own: &Sid, admitted: &[Sid]) -> Self {
        let mut text = format!("O:{own}D:P(A;;GA;;;{own})");
        for user in admitted {
            let _ = write!(text, "(A;;{CLIENT_RIGHTS:#x};;;{user})");
        }
        Self(text)
    }
}

impl Listening {
    fn open(pipe: &str, rights: &Rights, arrived: &Event, first: bool) -> Result<Self, OsError> {
        let rights = Descriptor::parse(&rights.0)?;
        let first = if first { FILE_FLAG_FIRST_PIPE_INSTANCE } else { 0 };
        let name = wide(pipe);
        // SAFETY: `name` ends with a zero; both it and `rights` live until the call is over.
        let handle = unsafe {
            CreateNamedPipeW(
                name.as_ptr(),
                PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | first,
                MODE,
                PIPE_UNLIMITED_INSTANCES,
                BUFFER,
                BUFFER,
                0,
                &rights.attributes(),
            )
        };
        let mut listening = Self { handle: Some(own(handle)?), overlapped: None };
        let event = arrived.as_handle().as_raw_handle();
        let overlapped = Box::new(OVERLAPPED { hEvent: event, ..OVERLAPPED::default() });
        let overlapped = NonNull::from(Box::leak(overlapped));
        // SAFETY: the OVERLAPPED lives until the wait is over: `close` sees to that.
        let done = unsafe { ConnectNamedPipe(listening.raw(), overlapped.as_ptr()) };
        let error = OsError::last();
        if done == 0 && error.code() == ERROR_IO_PENDING {
            listening.overlapped = Some(overlapped);
            return Ok(listening);
        }
        // SAFETY: leaked above; the system does not use it.
        drop(unsafe { Box::from_raw(overlapped.as_ptr()) });
        match error.code() {
            _ if done != 0 => Ok(listening),
            ERROR_PIPE_CONNECTED => Ok(listening),
            _ => Err(error),
        }
    }

    /// Whether the wait for somebody is over, well or badly.
    fn is_over(&self) -> bool {
        self.overlapped.is_none() || self.result(false) != Err(ERROR_IO_INCOMPLETE)
    }

    /// The instance, if somebody has connected to it.
    fn into_connected(mut self) -> Option<OwnedHandle> {
        let connected = self.overlapped.is_none() || self.result(false).is_ok();
        self.close();
        self.handle.take().filter(|_| connected)
    }

    fn result(&self, wait: bool) -> Result<(), u32> {
        let Some(overlapped) = self.overlapped else { return Ok(()) };
        let mut len = 0;
        // SAFETY: the OVERLAPPED of this instance's wait, which lives as long as the field is set.
        let done = unsafe {
            GetOverlappedResult(self.raw(), overlapped.as_ptr(), &mut len, i32::from(wait))
        };
        if done == 0 { Err(OsError::last().code()) } else { Ok(()) }
    }

    fn raw(&self) -> HANDLE {
        self.handle.as_ref().map_or(ptr::null_mut(), AsRawHandle::as_raw_handle)
    }

    /// Ends the wait.
    fn close(&mut self) {
        let Some(overlapped) = self.overlapped else { return };
        // SAFETY: as in `result`.
        let _ = unsafe { CancelIoEx(self.raw(), overlapped.as_ptr()) };
        // It was cancelled, or is over already.
        let _ = self.result(true);
        self.overlapped = None;
        // SAFETY: leaked by `open`, and freed once; the system does not use it any more.
        drop(unsafe { Box::from_raw(overlapped.as_ptr()) });
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.close();
    }
}

/// Connects to a service whose pipe belongs to this user, to the system or its administrators, or to one of
/// `trusted`. While as many connections wait as may, it tries again until `deadline`.
///
/// The caller still checks the [`credentials`](peer::credentials) of whoever answers.
///
/// # Errors
/// [`ConnectError`]; [`ConnectError::Absent`] when nobody serves it.
pub fn connect_trusting(
    run_dir: &Path,
    service: ServiceName,
    trusted: &[User],
    deadline: Option<Instant>,
) -> Result<Channel, ConnectError> {
    let pipe = match pipe_name(run_dir, service) {
        Ok(pipe) => pipe,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ConnectError::Absent { service });
        }
        Err(error) => {
            let pipe = run_dir.display().to_string();
            return Err(ConnectError::System { pipe, source: error.into() });
        }
    };
    let system = |source| ConnectError::System { pipe: pipe.clone(), source };
    let handle = loop {
        match open(&pipe) {
            Ok(handle) => break handle,
            Err(error) => match error.code() {
                ERROR_FILE_NOT_FOUND => return Err(ConnectError::Absent { service }),
                ERROR_ACCESS_DENIED => return Err(ConnectError::Denied { pipe }),
                ERROR_PIPE_BUSY if clock::is_over(deadline) => {
                    return Err(ConnectError::Busy { service });
                }
                ERROR_PIPE_BUSY => wait_for_instance(&pipe, deadline).map_err(system)?,
                _ => return Err(system(error)),
            },
        }
    };
    let channel = Pipe::new(handle, End::Client).map(Channel::new).map_err(system)?;
    let owner = peer::owner(&channel).map_err(system)?;
    let known = [Sid::local_system(), Sid::administrators()];
    if known.contains(&owner) || trusted.contains(&owner) || owner.is_own() {
        return Ok(channel);
    }
    Err(ConnectError::Squatted { pipe, owner })
}

/// Lists the endpoints of a run directory, by name.
///
/// # Errors
/// [`ListError`] when the directory cannot be read.
pub fn list(run_dir: &Path) -> Result<Vec<EndpointInfo>, ListError> {
    let failed = |source| ListError { path: run_dir.to_owned(), source };
    let mut endpoints = Vec::new();
    for entry in fs::read_dir(run_dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(service) = service_of(&path) else { continue };
        let pipe = pipe_name(run_dir, service).map_err(failed)?;
        endpoints.push(EndpointInfo { service, pipe, liveness: liveness(&path), path });
    }
    endpoints.sort_by_key(|endpoint| endpoint.service);
    Ok(endpoints)
}

fn service_of(path: &Path) -> Option<ServiceName> {
    let name = path.file_name()?.to_str()?.strip_suffix(".lock")?;
    ServiceName::parse(name.as_bytes()).ok()
}

fn liveness(lock: &Path) -> Liveness {
    // Whoever holds it lets nobody else write.
    let Err(error) = OpenOptions::new().write(true).open(lock) else { return Liveness::Stale };
    match OsError::from(error).code() {
        ERROR_FILE_NOT_FOUND => Liveness::Stale,
        ERROR_SHARING_VIOLATION => {
            let pid = fs::read_to_string(lock).ok().and_then(|text| text.trim().parse().ok());
            Liveness::Alive(pid)
        }
        _ => Liveness::Unknown,
    }
}

fn lock(path: &Path, service: ServiceName) -> Result<File, BindError> {
    for attempt in 1..=LOCK_TRIES {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .access_mode(GENERIC_WRITE | DELETE)
            .share_mode(FILE_SHARE_READ | FILE_SHARE_DELETE)
            .custom_flags(FILE_FLAG_DELETE_ON_CLOSE)
            .open(path);
        match file {
            Ok(mut file) => {
                // For whoever lists the directory.
                let _ = writeln!(file, "{}", std::process::id());
                return Ok(file);
            }
            Err(error) => match OsError::from(error) {
                // One that is being removed may not be opened either.
                source
                    if [ERROR_SHARING_VIOLATION, ERROR_ACCESS_DENIED].contains(&source.code()) =>
                {
                    if attempt < LOCK_TRIES {
                        std::thread::sleep(LOCK_PAUSE);
                    }
                }
                source => {
                    return Err(BindError::System { at: path.display().to_string(), source });
                }
            },
        }
    }
    Err(BindError::Taken { service, lock: path.to_owned() })
}

fn open(pipe: &str) -> Result<OwnedHandle, OsError> {
    let name = wide(pipe);
    // The server may learn who this is, and not act as it.
    let flags = FILE_FLAG_OVERLAPPED | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;
    // SAFETY: `name` ends with a zero and lives until the call is over.
    let handle = unsafe {
        CreateFileW(
            name.as_ptr(),
            CLIENT_RIGHTS,
            0,
            ptr::null(),
            OPEN_EXISTING,
            flags,
            ptr::null_mut(),
        )
    };
    let handle = own(handle)?;
    // SAFETY: the handle is open; the mode is a live constant, and nothing else is set.
    let done = unsafe {
        SetNamedPipeHandleState(
            handle.as_raw_handle(),
            &PIPE_READMODE_MESSAGE,
            ptr::null(),
            ptr::null(),
        )
    };
    if done == 0 { Err(OsError::last()) } else { Ok(handle) }
}

fn wait_for_instance(pipe: &str, deadline: Option<Instant>) -> Result<(), OsError> {
    let name = wide(pipe);
    let millis = clock::left(deadline).clamp(1, BUSY_SLICE);
    // SAFETY: `name` ends with a zero and lives until the call is over.
    if unsafe { WaitNamedPipeW(name.as_ptr(), millis) } != 0 {
        return Ok(());
    }
    match OsError::last() {
        // Whoever tries to open it sees.
        error if [ERROR_SEM_TIMEOUT, ERROR_FILE_NOT_FOUND].contains(&error.code()) => Ok(()),
        error => Err(error),
    }
}

fn own(handle: HANDLE) -> Result<OwnedHandle, OsError> {
    if handle == INVALID_HANDLE_VALUE {
        return Err(OsError::last());
    }
    // SAFETY: both callers have just opened it; nobody else knows it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}
