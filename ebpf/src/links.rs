//! The links that attach programs, as descriptors of this process.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Duplicates the descriptor of each link of this process: the link stays attached until the last one is closed.
///
/// # Errors
/// Those of /proc or the kernel (Linux 5.6).
pub(crate) fn hold() -> io::Result<Vec<OwnedFd>> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut held = Vec::new();
    for entry in fs::read_dir("/proc/self/fdinfo")? {
        let entry = entry?;
        // The directory's own descriptor is closed by now.
        let Ok(info) = fs::read_to_string(entry.path()) else { continue };
        let is_link = info.lines().any(|line| line.starts_with("link_id:"));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| is_link) {
            held.push(pidfd_getfd(&this, number, PidfdGetfdFlags::empty())?);
        }
    }
    Ok(held)
}
