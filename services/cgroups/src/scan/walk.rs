use std::ffi::{OsStr, OsString};
use std::io;

use crate::{MAX_PATH, check_name};
use cap_fs_ext::{DirExt, MetadataExt};
use cap_std::fs::{Dir, FileType, Metadata};

use super::hierarchy::Hierarchy;
use super::scanner::Limits;
use super::skipped::Skipped;

/// A directory of a hierarchy, as the walk visits it: parents before their children.
#[derive(Debug)]
pub(super) struct Step<'a> {
    /// The path below the hierarchy's root, starting with `/`.
    pub(super) path: &'a str,
    pub(super) inode: u64,
    /// Whether it has directories in it.
    pub(super) has_children: bool,
    /// Its parent directory and its name there; `None` for the hierarchy's root.
    pub(super) place: Option<(&'a Dir, &'a OsStr)>,
}

/// Receives what the walk finds.
pub(super) trait Sink {
    /// Takes a directory; returns false if there is no room for it.
    fn take(&mut self, step: &Step<'_>, skipped: &mut Skipped) -> bool;
}

/// Returns the names of the directories in a directory.
pub(super) fn directories(dir: &Dir) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in dir.entries()? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // Other types, including symbolic links, are not cgroups. For unknown ones `stat` decides.
        if kind.is_dir() || kind == FileType::unknown() {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

/// One walk through one hierarchy.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) hierarchy: &'a Hierarchy,
    pub(super) limits: Limits,
    pub(super) skipped: &'a mut Skipped,
}

impl Walk<'_> {
    /// Passes every directory of the hierarchy to the sink.
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

    /// Walks the children of `dir`, whose path is `path`, without the root's slash.
    fn children(
        &mut self,
        dir: &Dir,
        names: &[OsString],
        path: &mut String,
        depth: usize,
        sink: &mut impl Sink,
    ) {
        let parent_len = path.len();
        for name in names {
            let Some(text) = name.to_str().filter(|text| check_name(text).is_ok()) else {
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
        parent: &Dir,
        name: &OsStr,
        path: &mut String,
        depth: usize,
        sink: &mut impl Sink,
    ) {
        let stat = match parent.symlink_metadata(name) {
            Ok(stat) => stat,
            Err(error) => return self.skipped.count(&error),
        };
        // Not a cgroup: another type, or a mount of another file system.
        if !stat.is_dir() || stat.dev() != self.hierarchy.device {
            return;
        }
        let inside = if is_leaf(&stat) { None } else { self.open(parent, name) };
        let names = inside.as_ref().map(|dir| self.list(dir)).unwrap_or_default();
        let step = Step {
            path,
            inode: stat.ino(),
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

    /// Opens a directory, never through a symbolic link.
    fn open(&mut self, parent: &Dir, name: &OsStr) -> Option<Dir> {
        parent.open_dir_nofollow(name).map_err(|error| self.skipped.count(&error)).ok()
    }

    fn list(&mut self, dir: &Dir) -> Vec<OsString> {
        directories(dir).unwrap_or_else(|error| {
            self.skipped.count(&error);
            Vec::new()
        })
    }
}

/// Returns whether a directory contains no directory. Here and on most file systems, the link count is 2 plus one for each
/// directory in it; file systems that do not count return 1. So most cgroups need not be listed, which saves half the time of
/// a scan.
fn is_leaf(stat: &Metadata) -> bool {
    stat.nlink() == 2
}
