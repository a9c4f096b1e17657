use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use bellwire::cgroups::{MAX_PATH, check_name};
use rustix::fs::{AtFlags, FileType, Mode, RawDir, SeekFrom, Stat, openat, seek, statat};
use rustix::io::Errno;

use super::hierarchy::{FLAGS, Hierarchy};
use super::scan::Limits;
use super::skipped::Skipped;

/// A directory of a hierarchy, as the walk meets it: parents before their children.
#[derive(Debug)]
pub(super) struct Step<'a> {
    /// The path below the hierarchy's root, starting with `/`.
    pub(super) path: &'a str,
    pub(super) inode: u64,
    /// Whether it has directories in it.
    pub(super) has_children: bool,
    /// The directory that it is in, and its name there; nothing for the hierarchy's root.
    pub(super) place: Option<(&'a OwnedFd, &'a [u8])>,
}

/// Where the walk leaves what it finds.
pub(super) trait Sink {
    /// Takes a directory; false if there is no room for it.
    fn take(&mut self, step: &Step<'_>, skipped: &mut Skipped) -> bool;
}

/// Lists directories, with one buffer for all.
#[derive(Debug)]
pub(super) struct Listing {
    buffer: Vec<MaybeUninit<u8>>,
}

impl Listing {
    /// What glibc's `readdir` uses; a v1 controller's directory has some 60 entries.
    const BUFFER: usize = 32 * 1024;

    pub(super) fn new() -> Self {
        Self { buffer: vec![MaybeUninit::uninit(); Self::BUFFER] }
    }

    /// The names of the directories in a directory, which is read from its start.
    pub(super) fn directories(&mut self, dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
        seek(dir, SeekFrom::Start(0))?;
        let mut names = Vec::new();
        let mut entries = RawDir::new(dir, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            // Other types, symbolic links among them, are not cgroups. Unknown ones: `stat` tells.
            let candidate = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if candidate && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        Ok(names)
    }
}

/// One walk through one hierarchy.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) hierarchy: &'a Hierarchy,
    pub(super) limits: Limits,
    pub(super) listing: &'a mut Listing,
    pub(super) skipped: &'a mut Skipped,
}

impl Walk<'_> {
    /// Hands every directory of the hierarchy to the sink.
    pub(super) fn run(mut self, sink: &mut impl Sink) {
        let dir = &self.hierarchy.dir;
        let names = self.list(dir);
        let root = Step {
            path: "/",
            inode: self.hierarchy.inode,
            has_children: !names.is_empty(),
            place: None,
        };
        if !sink.take(&root, self.skipped) {
            self.skipped.too_many = self.skipped.too_many.saturating_add(1);
            return;
        }
        self.children(dir, &names, &mut String::new(), 1, sink);
    }

    /// `path` is that of `dir`, without the root's slash.
    fn children(
        &mut self,
        dir: &OwnedFd,
        names: &[CString],
        path: &mut String,
        depth: usize,
        sink: &mut impl Sink,
    ) {
        let parent_len = path.len();
        for name in names {
            let name = name.to_bytes();
            let text = str::from_utf8(name).ok().filter(|text| check_name(text).is_ok());
            let Some(text) = text else {
                self.skipped.bad_name = self.skipped.bad_name.saturating_add(1);
                continue;
            };
            if parent_len + 1 + text.len() > MAX_PATH {
                self.skipped.too_long = self.skipped.too_long.saturating_add(1);
                continue;
            }
            if depth > self.limits.depth {
                self.skipped.too_deep = self.skipped.too_deep.saturating_add(1);
                continue;
            }
            path.push('/');
            path.push_str(text);
            self.child(dir, name, path, depth, sink);
            path.truncate(parent_len);
        }
    }

    fn child(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &mut String,
        depth: usize,
        sink: &mut impl Sink,
    ) {
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return self.skipped.count(errno),
        };
        // Not a cgroup: another type, or another file system mounted there.
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory
            || stat.st_dev != self.hierarchy.device
        {
            return;
        }
        let inside = if is_leaf(&stat) { None } else { self.open(parent, name) };
        let names = inside.as_ref().map(|dir| self.list(dir)).unwrap_or_default();
        let step = Step {
            path,
            inode: stat.st_ino,
            has_children: !names.is_empty(),
            place: Some((parent, name)),
        };
        if !sink.take(&step, self.skipped) {
            self.skipped.too_many = self.skipped.too_many.saturating_add(1);
            return;
        }
        if let Some(dir) = inside {
            self.children(&dir, &names, path, depth + 1, sink);
        }
    }

    fn open(&mut self, parent: &OwnedFd, name: &[u8]) -> Option<OwnedFd> {
        openat(parent, name, FLAGS, Mode::empty()).map_err(|errno| self.skipped.count(errno)).ok()
    }

    fn list(&mut self, dir: &OwnedFd) -> Vec<CString> {
        self.listing.directories(dir).unwrap_or_else(|errno| {
            self.skipped.count(errno);
            Vec::new()
        })
    }
}

/// A directory's link count is 2 and one for each directory in it, here and on most file systems; those
/// that do not count say 1. So most cgroups need not be listed, which spares half the time of a scan.
fn is_leaf(stat: &Stat) -> bool {
    stat.st_nlink == 2
}
