//! Lock files: who owns a name, and which names exist.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsHandle;
use std::path::Path;
use std::time::Duration;

use bellwire_core::ServiceName;
use bellwire_shm::Liveness;
pub use bellwire_shm::platform::lock_path;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_FILE_NOT_FOUND, ERROR_SHARING_VIOLATION, GENERIC_WRITE,
};
use windows_sys::Win32::Storage::FileSystem::{
    DELETE, FILE_FLAG_DELETE_ON_CLOSE, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
    READ_CONTROL,
};

use super::error::BindError;
use crate::peer::User;
use crate::{OsError, security};

/// How often a lock is tried, `LOCK_PAUSE` apart: a lister may have the file open for a moment.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// A run directory's entry for one service.
pub type EndpointInfo = bellwire_shm::EndpointInfo<User>;

pub(super) fn owner(lock: &Path) -> Option<User> {
    let everybody = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    let mut options = OpenOptions::new();
    let file = options.access_mode(READ_CONTROL).share_mode(everybody).open(lock).ok()?;
    security::owner_of_file(file.as_handle()).ok()
}

pub(super) fn liveness(lock: &Path) -> Liveness {
    // The holder of the lock lets nobody else write.
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
                // For listers of the directory.
                let _ = writeln!(file, "{}", std::process::id());
                return Ok(file);
            }
            Err(error) => match OsError::from(error) {
                // A file that is being removed may not be opened either.
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
