//! The links by which programs are attached, as descriptors of this process.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// One more descriptor of each link that this process has: what it is attached to stays so until the last is closed.
///
/// # Errors
/// What /proc or the kernel refuses (Linux 5.6).
pub(crate) fn hold() -> io::Result<Vec<OwnedFd>> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut held = Vec::new();
    for entry in fs::read_dir("/proc/self/fdinfo")? {
        let entry = entry?;
        // That of the directory itself is gone when it is over.
        let Ok(info) = fs::read_to_string(entry.path()) else { continue };
        let is_link = info.lines().any(|line| line.starts_with("link_id:"));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| is_link) {
            held.push(pidfd_getfd(&this, number, PidfdGetfdFlags::empty())?);
        }
    }
    Ok(held)
}
