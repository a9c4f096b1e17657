//! What an operator can do when this system lacks something.

use bellwire_core::resize::{Resource, Shortage};
use windows_sys::Win32::Foundation::{
    ERROR_COMMITMENT_LIMIT, ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY,
    ERROR_TOO_MANY_OPEN_FILES,
};

use crate::os_error::OsError;

/// Returns advice for a person to read.
pub const fn hint(resource: Resource) -> &'static str {
    match resource {
        Resource::Descriptors => "close handles, of this process or of the client's",
        Resource::Memory => "free memory, enlarge the paging file, or raise the job's limit",
        Resource::Maps => "free memory or address space of this process",
        Resource::InFlight | Resource::ControlSocket => "wait for the peer to read",
        _ => "see the code",
    }
}

/// Returns the resource that a system call without shared memory lacked.
pub const fn of(error: OsError) -> Shortage {
    let resource = match error.code() {
        ERROR_NO_SYSTEM_RESOURCES | ERROR_TOO_MANY_OPEN_FILES => Resource::Descriptors,
        ERROR_NOT_ENOUGH_MEMORY | ERROR_OUTOFMEMORY | ERROR_COMMITMENT_LIMIT => Resource::Memory,
        _ => Resource::Other,
    };
    Shortage { resource, bytes: 0, code: error.code().cast_signed() }
}
