//! Lock files: who owns a name, and which names there are.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsHandle;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwire_core::ServiceName;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND, ERROR_SHARING_VIOLATION, GENERIC_WRITE,
};
use windows_sys::Win32::Storage::FileSystem::{
    DELETE, FILE_FLAG_DELETE_ON_CLOSE, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
    READ_CONTROL,
};

use super::error::{BindError, ListError};
use super::pipe_name;
use crate::peer::User;
use crate::{OsError, security};

/// A lister may have a lock file open for a moment: so often is it tried again, that far apart.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Whether somebody serves an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// A process holds its lock; the pid, where it can be told.
    Alive(Option<u32>),
    /// Nobody does.
    Stale,
    /// Something else has its name: never here, where the pipe's owner tells.
    Squatted,
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

impl EndpointInfo {
    /// What clients connect to: the pipe's name.
    pub fn address(&self) -> String {
        self.pipe.clone()
    }

    /// Whom the lock file belongs to, where that may be asked.
    pub fn owner(&self) -> Option<User> {
        let everybody = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
        let mut options = OpenOptions::new();
        let file = options.access_mode(READ_CONTROL).share_mode(everybody).open(&self.path).ok()?;
        security::owner_of_file(file.as_handle()).ok()
    }

    /// Permission bits: there are none. The pipe has a list of rights, which admits its owner and the listed users.
    pub const fn permissions(&self) -> Option<u32> {
        None
    }
}

/// The path of a service's lock file.
pub fn lock_path(run_dir: &Path, service: ServiceName) -> PathBuf {
    run_dir.join(format!("{service}.lock"))
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

pub(super) fn lock(path: &Path, service: ServiceName) -> Result<File, BindError> {
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
