//! The descriptors of the BPF links that this process holds.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Duplicates the descriptor of each BPF link of this process. A link stays attached until the last one is closed.
///
/// # Errors
/// Those of /proc or the kernel (Linux 5.6).
pub(crate) fn duplicate_all() -> io::Result<Vec<OwnedFd>> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut duplicates = Vec::new();
    for entry in fs::read_dir("/proc/self/fdinfo")? {
        let entry = entry?;
        // The directory's own descriptor is closed by now.
        let Ok(info) = fs::read_to_string(entry.path()) else { continue };
        let is_link = info.lines().any(|line| line.starts_with("link_id:"));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| is_link) {
            duplicates.push(pidfd_getfd(&this, number, PidfdGetfdFlags::empty())?);
        }
    }
    Ok(duplicates)
}
