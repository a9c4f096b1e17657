//! What an operator can do when this system lacks something.

use bellwire_core::resize::Resource;

/// For a person to read.
pub const fn remedy(resource: Resource) -> &'static str {
    match resource {
        Resource::Descriptors => "raise the limit of open files (RLIMIT_NOFILE)",
        Resource::Memory => "free memory, or raise the limit of the memory cgroup or of file sizes",
        Resource::Maps => "raise vm.max_map_count or RLIMIT_AS",
        Resource::InFlight => "wait for peers to receive theirs, or raise RLIMIT_NOFILE",
        Resource::ControlSocket => "wait for the peer to read",
        _ => "see the code",
    }
}
