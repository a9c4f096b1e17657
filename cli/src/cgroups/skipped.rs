use std::io;

/// `ENODEV`, which the kernel answers for files of a cgroup that is gone. `io::ErrorKind` has no name for it.
const NO_DEVICE: i32 = 19;

/// What a scan met and did not read, by reason. None of it fails the scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// Directories that were removed while the scan ran. That is ordinary, and leaves nothing out.
    pub(crate) vanished: u32,
    /// Directories that this process may not list.
    pub(crate) denied: u32,
    /// Directories that another error hid.
    pub(crate) failed: u32,
    /// Directories whose name is not UTF-8 or has a control character.
    pub(crate) bad_name: u32,
    /// Directories whose path is longer than a snapshot carries.
    pub(crate) too_long: u32,
    /// Directories below the deepest level walked.
    pub(crate) too_deep: u32,
    /// Directories found after the scan was full.
    pub(crate) too_many: u32,
    /// Cgroups in the scan whose population could not be read; they are taken to be empty.
    pub(crate) unread: u32,
}

impl Skipped {
    /// How many directories were left out of the scan, or could not be looked into. What lies below
    /// them is not counted.
    pub(crate) fn left_out(&self) -> u32 {
        [self.denied, self.failed, self.bad_name, self.too_long, self.too_deep, self.too_many]
            .into_iter()
            .fold(0, u32::saturating_add)
    }

    /// Counts a directory that could not be read.
    pub(super) fn count(&mut self, error: &io::Error) {
        let reason = match error.kind() {
            // ENOTDIR, if a file took the name.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => &mut self.vanished,
            _ if is_gone(error) => &mut self.vanished,
            io::ErrorKind::PermissionDenied => &mut self.denied,
            _ => &mut self.failed,
        };
        *reason = reason.saturating_add(1);
    }
}

/// Whether a file that was opened belongs to a cgroup that is gone meanwhile.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(NO_DEVICE)
}
