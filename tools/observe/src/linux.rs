//! Inspects sessions of other processes without their help: finds their pages by the names of the memfds in
//! [`/proc/PID/maps`](https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html).

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use bellwire_core::sync::Ordering;
use bellwire_core::wire::PAGE_SIZE;
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::PeerRegion;
use rustix::fs::{AtFlags, MemfdFlags, Mode, OFlags, StatxFlags, memfd_create, open, statx};
use rustix::io::Errno;

use crate::{ObserveError, PageMap};

/// The prefix of the names of page memfds, as the kernel shows them.
const PREFIX: &str = "/memfd:bellwire-page-";

/// A readable page of another process: mapped, or copied at each read.
#[derive(Debug)]
pub struct View(Source);

#[derive(Debug)]
enum Source {
    /// Through `/proc/PID/map_files`, which requires `CAP_CHECKPOINT_RESTORE` (Linux 5.9) or `CAP_SYS_ADMIN`.
    Mapped(PeerRegion),
    /// Through `/proc/PID/mem`, which requires the right to trace the process.
    Copied(File, u64),
}

/// Returns the pages mapped by all processes whose maps this one may read, and the number of the other processes. Files that
/// have the name of a page but are not memfds are skipped.
///
/// # Errors
/// [`ObserveError::List`] when `/proc` cannot be read, or this process lacks a descriptor.
pub fn pages() -> Result<(Vec<PageMap>, usize), ObserveError> {
    let device = memfds().map_err(|source| ObserveError::List(source.into()))?;
    let (mut found, mut hidden) = (Vec::new(), 0);
    for entry in fs::read_dir("/proc").map_err(ObserveError::List)? {
        let name = entry.map_err(ObserveError::List)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // The process may have ended or belong to another user.
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_else(|error| {
            hidden += usize::from(error.kind() == ErrorKind::PermissionDenied);
            Vec::new()
        });
        // A peer chose the names of the memory that it shares: any bytes.
        let maps = String::from_utf8_lossy(&maps);
        let pages = maps.lines().filter_map(|line| parse(pid, line));
        found.extend(pages.filter(|page| page.object.0 == device));
    }
    Ok((found, hidden))
}

/// Returns the process's name: [`/proc/PID/comm`](https://man7.org/linux/man-pages/man5/proc_pid_comm.5.html).
pub(crate) fn command(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

impl View {
    /// Opens a page that was found. Maps it read-only if it has the seals of a page. That is harmless: nobody can take it
    /// away, and nothing can be changed through it.
    ///
    /// # Errors
    /// [`ObserveError::Denied`], [`ObserveError::Gone`].
    pub fn open(page: &PageMap) -> Result<Self, ObserveError> {
        let (from, to) = page.range;
        let path = format!("/proc/{}/map_files/{from:x}-{to:x}", page.pid);
        // Another object may be mapped there now. Open it only once it is known to be a memfd: opening a FUSE file asks its
        // server, which need not answer.
        let found = match open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::ACCESS | Errno::PERM) => return Self::copying(page),
            Err(_) => return Err(ObserveError::Gone),
        };
        if device(found.as_fd()) != memfds() {
            return Err(ObserveError::Gone);
        }
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|_| ObserveError::Gone)?;
        let region = PeerRegion::check_and_map(file.as_fd(), PAGE_SIZE);
        region.map(|region| Self(Source::Mapped(region))).map_err(|_| ObserveError::Gone)
    }

    fn copying(page: &PageMap) -> Result<Self, ObserveError> {
        let denied = |source: io::Error| match source.kind() {
            ErrorKind::NotFound => ObserveError::Gone,
            _ => ObserveError::Denied { pid: page.pid, source },
        };
        let memory = File::open(format!("/proc/{}/mem", page.pid)).map_err(denied)?;
        Ok(Self(Source::Copied(memory, page.range.0)))
    }

    /// Copies the page. If it is mapped, each word is read atomically; the words are read one after another.
    ///
    /// # Errors
    /// [`ObserveError::Gone`] when the process has unmapped it. A mapped view stays readable.
    pub fn read(&self, into: &mut [u8; PAGE_SIZE]) -> Result<(), ObserveError> {
        match &self.0 {
            Source::Mapped(region) => {
                for (at, word) in into.chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&region.load_u64(8 * at, Ordering::Relaxed).to_le_bytes());
                }
                Ok(())
            }
            Source::Copied(memory, at) => {
                memory.read_exact_at(into, *at).map_err(|_| ObserveError::Gone)
            }
        }
    }
}

/// Returns the device of all memfds: the kernel keeps them in a file system of its own, which holds no other files.
fn memfds() -> Result<u64, Errno> {
    device(memfd_create("bellwire-device", MemfdFlags::CLOEXEC)?.as_fd())
}

/// Returns the device of an open file without asking its server.
fn device(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, c"", flags, StatxFlags::TYPE)?;
    Ok(u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor))
}

/// Parses `7f00-7f01 rw-s 00000000 00:01 2051      /memfd:bellwire-page-client-echo-1 (deleted)`.
fn parse(pid: u32, line: &str) -> Option<PageMap> {
    let (fields, _) = line.split_once(PREFIX)?;
    let mut fields = fields.split_ascii_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let is_owner = fields.next()?.as_bytes().get(1) == Some(&b'w');
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let object = (hex(major)? << 32 | hex(minor)?, inode);
    Some(PageMap { pid, is_owner, object, range: (hex(from)?, hex(to)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_recognized_by_its_name_and_its_owner_by_the_right_to_write() {
        let line =
            "7f00-7f01 rw-s 00000000 00:01 2051     /memfd:bellwire-page-client-a-b-7 (deleted)";
        let page = parse(12, line).unwrap();
        assert_eq!((page.pid, page.is_owner), (12, true));
        assert_eq!((page.object, page.range), ((1, 2051), (0x7f00, 0x7f01)));
        assert!(!parse(12, &line.replace("rw-s", "r--s")).unwrap().is_owner);
        for other in [
            "7f00-7f01 rw-s 00000000 00:01 2051     /memfd:bellwire-lane-client-a-7 (deleted)",
            "7f00-7f01 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(parse(12, other), None);
        }
    }
}
