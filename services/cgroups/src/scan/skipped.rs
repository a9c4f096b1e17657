use std::io;

/// `ENODEV`, which the kernel returns for files of a cgroup that is gone. `io::ErrorKind` has no name for it.
const NO_DEVICE: i32 = 19;

/// What a scan met but did not read, by reason. None of it fails the scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Directories that were removed during the scan. That is normal, and nothing is missing.
    pub vanished: u32,
    /// Directories that this process may not list.
    pub denied: u32,
    /// Directories that could not be read because of another error.
    pub failed: u32,
    /// Directories whose name is not UTF-8 or contains a control character.
    pub bad_name: u32,
    /// Directories whose path is longer than a snapshot carries.
    pub too_long: u32,
    /// Directories below the deepest level walked.
    pub too_deep: u32,
    /// Directories found after the scan had reached its limit.
    pub too_many: u32,
    /// Cgroups in the scan whose population could not be read; they count as empty.
    pub unread: u32,
}

impl Skipped {
    /// Returns how many directories were left out of the scan or could not be read. Directories below them are not counted.
    pub fn left_out(&self) -> u32 {
        [self.denied, self.failed, self.bad_name, self.too_long, self.too_deep, self.too_many]
            .into_iter()
            .fold(0, u32::saturating_add)
    }

    /// Counts a directory that could not be read.
    pub(super) fn count(&mut self, error: &io::Error) {
        let reason = match error.kind() {
            // ENOTDIR, if a file has taken the name.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => &mut self.vanished,
            _ if is_gone(error) => &mut self.vanished,
            io::ErrorKind::PermissionDenied => &mut self.denied,
            _ => &mut self.failed,
        };
        *reason = reason.saturating_add(1);
    }
}

/// Returns whether an opened file belongs to a cgroup that is gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(NO_DEVICE)
}
