use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};

use crate::check::{Check, CheckResult, Finding, Group};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use bellwire_memfd::snapshot::SnapshotBuilder;
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals,
    fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::{Errno, pwrite};

const PAGE: usize = 4096;
const SIZE: u64 = 2 * PAGE as u64;
const NAME: &str = "bellwire-doctor";

/// Checks sealed memory, which holds all of Bellwire's messages.
pub(super) fn checks() -> Vec<Check> {
    let mut group = Group::new("sealed memory");
    group.required(
        "memfd_create",
        "Linux 3.17 or newer has it; a sandbox (seccomp) may forbid it: allow memfd_create(2)",
        create(),
    );
    let old = "a sandbox or an old kernel is in the way: allow fcntl(2) F_ADD_SEALS, use Linux 5.10 or newer";
    group.required(
        "F_SEAL_SHRINK",
        old,
        seal(SealFlags::SHRINK, "cut off", |fd| ftruncate(fd, SIZE / 2)),
    );
    group.required(
        "F_SEAL_GROW",
        old,
        seal(SealFlags::GROW, "extended", |fd| ftruncate(fd, SIZE * 2)),
    );
    group.required("F_SEAL_WRITE", old, seal(SealFlags::WRITE, "written", write));
    group.required(
        "F_SEAL_FUTURE_WRITE",
        "Linux 5.1 or newer has it: without it a peer could write what it only may read",
        future_write(),
    );
    group.required(
        "F_SEAL_SEAL",
        old,
        seal(SealFlags::SEAL, "sealed further", |fd| fcntl_add_seals(fd, SealFlags::GROW)),
    );
    group.required("owner writes, peer reads", old, owner_alone_writes());
    group.required(
        "fallocate",
        "give the memfd's file system (tmpfs) memory: check free memory and swap",
        allocate(),
    );
    group.required("read-only map of a snapshot", old, snapshot_map());
    group.optional(
        "MFD_NOEXEC_SEAL",
        "Linux 6.3 or newer has it; without it memory could be made executable by who holds it",
        noexec(),
    );
    group.into_checks()
}

fn make() -> Result<OwnedFd, Errno> {
    let fd = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, SIZE)?;
    Ok(fd)
}

fn create() -> CheckResult {
    make()?;
    Ok(Finding::ok("made with sealing allowed"))
}

/// Adds a seal and tries the forbidden operation before and after.
fn seal(
    seal: SealFlags,
    forbidden: &str,
    attempt: impl Fn(&OwnedFd) -> Result<(), Errno>,
) -> CheckResult {
    // The operation has to work unsealed, or its failure proves nothing.
    attempt(&make()?)?;
    let fd = make()?;
    fcntl_add_seals(&fd, seal)?;
    if !fcntl_get_seals(&fd)?.contains(seal) {
        return Err("the kernel took the seal and does not have it".into());
    }
    match attempt(&fd) {
        Err(Errno::PERM) => Ok(Finding::ok(format!("sealed memory cannot be {forbidden}"))),
        Err(error) => Err(error.into()),
        Ok(()) => Err(format!("sealed memory was {forbidden}").into()),
    }
}

/// Punching a hole is a write too: it zeroes the bytes.
fn future_write() -> CheckResult {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    seal(SealFlags::FUTURE_WRITE, "written", write)?;
    seal(SealFlags::FUTURE_WRITE, "written, nor holes punched into it", |fd| {
        fallocate(fd, punch, 0, SIZE / 2)
    })
}

fn write(fd: &OwnedFd) -> Result<(), Errno> {
    pwrite(fd, b"x", 0).map(drop)
}

/// Runs the library's own code: map, seal, pass, verify, map read-only.
fn owner_alone_writes() -> CheckResult {
    let (own, fd) = OwnRegion::create(NAME, PAGE, |_| {})?;
    if write(&fd) != Err(Errno::PERM) {
        return Err("a descriptor of the region could be written".into());
    }
    let peer = PeerRegion::verify_and_map(fd, PAGE)?;
    own.write(100, b"bellwire");
    let mut read = [0; 8];
    peer.read(100, &mut read);
    same(&read, b"bellwire")?;
    Ok(Finding::ok("the owner's map still writes, the peer's map sees it"))
}

fn allocate() -> CheckResult {
    let fd = make()?;
    fallocate(&fd, FallocateFlags::empty(), 0, SIZE)?;
    let allocated = u64::try_from(fstat(&fd)?.st_blocks)? * 512;
    if allocated < SIZE {
        return Err(format!("{allocated} of {SIZE} bytes were allocated").into());
    }
    Ok(Finding::ok("all pages at once, charged to their creator"))
}

fn snapshot_map() -> CheckResult {
    let mut builder = SnapshotBuilder::create(NAME, 8)?;
    builder.bytes().copy_from_slice(b"bellwire");
    let snapshot = builder.seal()?;
    let map = snapshot.map()?;
    same(&map, b"bellwire")?;
    let inode = fstat(snapshot.as_fd())?.st_ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    // address perms offset dev inode pathname
    let line = maps.lines().find(|line| line.split_whitespace().nth(4) == Some(inode.as_str()));
    let perms = line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("?");
    Ok(match perms.ends_with('p') {
        true => Finding::ok(
            "private: a shared map of write-sealed memory needs Linux 6.7; the pages are the same",
        ),
        false => Finding::ok("shared, sealed against writing"),
    })
}

fn noexec() -> CheckResult {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    let fd = memfd_create(NAME, flags)?;
    match fchmod(&fd, Mode::RWXU) {
        Err(Errno::PERM) => Ok(Finding::ok("memory can never be made executable")),
        Err(error) => Err(error.into()),
        Ok(()) => Err("sealed memory was made executable".into()),
    }
}

fn same(read: &[u8], written: &[u8]) -> Result<(), Box<dyn Error>> {
    if read == written { Ok(()) } else { Err("what was read is not what was written".into()) }
}
