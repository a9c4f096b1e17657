//! What an operator can do when this system lacks something.

use std::os::windows::io::BorrowedHandle;

use bellwire_core::resize::Resource;

/// For a person to read.
pub const fn remedy(resource: Resource) -> &'static str {
    match resource {
        Resource::Descriptors => "close handles, of this process or of the client's",
        Resource::Memory => "free memory, enlarge the paging file, or raise the job's limit",
        Resource::Maps => "free memory or address space of this process",
        Resource::InFlight | Resource::ControlSocket => "wait for the peer to read",
        _ => "see the code",
    }
}

/// How many eighths of the handles that this process may have are taken: none, since their number is limited by memory
/// alone.
pub const fn eighths_taken(_: BorrowedHandle<'_>, _: usize) -> usize {
    0
}
