use rustix::io::Errno;

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
    pub(super) fn count(&mut self, error: Errno) {
        let reason = match error {
            // The kernel answers ENODEV for files of a cgroup that is gone, and ENOTDIR if a file took
            // the name.
            Errno::NOENT | Errno::NODEV | Errno::NOTDIR => &mut self.vanished,
            Errno::ACCESS | Errno::PERM => &mut self.denied,
            _ => &mut self.failed,
        };
        *reason = reason.saturating_add(1);
    }
}
