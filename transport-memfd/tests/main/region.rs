#![allow(unsafe_code, reason = "the attacks map memory by hand")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use bellwire_core::sync::Ordering;
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion, RegionError, VerifyError};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child;
use crate::support::socket_pair;

const SIZE: usize = 16 << 10;
const LANE: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

#[test]
fn a_futex_stands_on_the_low_half_of_a_word() {
    let (own, fd) = OwnRegion::create("lane", SIZE, |_| {}).unwrap();
    let peer = PeerRegion::verify_and_map(fd, SIZE).unwrap();
    own.store_u64(128, 0x1_0000_0002, Ordering::Release);
    assert_eq!(peer.word(128).load(), 2);
}

#[test]
fn messages_of_every_length_arrive_whole_and_write_nothing_beyond() {
    let (own, fd) = OwnRegion::create("lane", SIZE, |_| {}).unwrap();
    let peer = PeerRegion::verify_and_map(fd, SIZE).unwrap();
    let bytes: Vec<u8> = (0..2100_u32).map(|n| 1 + (n % 251) as u8).collect();
    // Those that are copied word by word, and those that are not.
    let lengths = || (0..=80).chain(2030..=2070);
    for (at, len) in (0..=20).flat_map(|at| lengths().map(move |len| (at, len))) {
        let (header, payload) = bytes[..16 + len].split_first_chunk().unwrap();
        let writes: [(&[u8], &dyn Fn()); 2] = [
            (&bytes[..len], &|| own.write(at, &bytes[..len])),
            (&bytes[..16 + len], &|| own.write_record(at, *header, payload)),
        ];
        for (written, write) in writes {
            own.write(0, &[0; 2200]);
            write();
            let mut seen = [0xff; 2200];
            peer.read(0, &mut seen);
            let end = at + written.len();
            assert_eq!(seen[at..end], *written, "{len} bytes at {at}");
            let is_beyond = |(n, byte): (usize, &u8)| (n < at || n >= end) && *byte != 0;
            assert!(!seen.iter().enumerate().any(is_beyond), "{len} bytes at {at}");
        }
    }
}

#[test]
fn a_new_region_is_zeroed_and_allocated() {
    let (_own, fd) = OwnRegion::create("lane", SIZE, |_| {}).unwrap();
    let stat = rustix::fs::fstat(&fd).unwrap();
    assert!(stat.st_blocks * 512 >= 16 << 10, "{} blocks", stat.st_blocks);
    let peer = PeerRegion::verify_and_map(fd, SIZE).unwrap();
    let mut bytes = vec![1; SIZE];
    peer.read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn a_region_is_close_on_exec_and_not_executable() {
    let (_own, fd) = OwnRegion::create("lane", SIZE, |_| {}).unwrap();
    assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    let seals = rustix::fs::fcntl_get_seals(&fd).unwrap();
    assert!(seals.contains(LANE), "{seals:?}");
    if rustix::fs::memfd_create("probe", MemfdFlags::NOEXEC_SEAL | MemfdFlags::CLOEXEC).is_ok() {
        assert!(seals.contains(SealFlags::EXEC), "{seals:?}");
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_mode & 0o111, 0);
    }
}

#[test]
fn a_child_does_not_inherit_the_mappings() {
    // A name of its own: a mapping that another test is making has no flags yet.
    let (_own, fd) = OwnRegion::create("inherited", SIZE, |_| {}).unwrap();
    let _peer = PeerRegion::verify_and_map(fd, SIZE).unwrap();
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut in_ours = false;
    let mut seen = 0;
    for line in smaps.lines() {
        if line.contains(" rw-s ") || line.contains(" r--s ") {
            in_ours = line.contains("/memfd:inherited ");
        } else if line.starts_with("VmFlags:") && in_ours {
            assert!(line.split_whitespace().any(|flag| flag == "dc"), "{line}");
            seen += 1;
            in_ours = false;
        }
    }
    assert!(seen >= 2, "{seen} mappings found");
}

#[test]
fn no_attack_from_the_receiving_side_changes_a_byte() {
    let (own, fd) = OwnRegion::create("victim", SIZE, |_| {}).unwrap();
    own.write(0, b"untouched");
    let len = SIZE as u64;
    let write = ProtFlags::READ | ProtFlags::WRITE;
    let map = |fd: &OwnedFd, prot| {
        // SAFETY: a fresh mapping that is only unmapped, or never made.
        unsafe { rustix::mm::mmap(ptr::null_mut(), SIZE, prot, MapFlags::SHARED, fd, 0) }
    };
    assert_eq!(map(&fd, write), Err(Errno::PERM), "map for writing");
    assert_eq!(rustix::io::write(&fd, b"evil"), Err(Errno::PERM), "write");
    assert_eq!(rustix::io::pwrite(&fd, b"evil", 8), Err(Errno::PERM), "pwrite");
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM), "shrink");
    assert_eq!(rustix::fs::ftruncate(&fd, 2 * len), Err(Errno::PERM), "grow");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, punch, 0, 4096), Err(Errno::PERM), "punch a hole");
    assert_eq!(
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), len, 4096),
        Err(Errno::PERM),
        "grow by allocating"
    );
    assert_eq!(
        rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE),
        Err(Errno::PERM),
        "lock the owner out"
    );
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let again = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    assert_eq!(map(&again, write), Err(Errno::PERM), "map a re-opened one for writing");
    assert_eq!(rustix::io::write(&again, b"evil"), Err(Errno::PERM), "write a re-opened one");
    assert_eq!(rustix::fs::ftruncate(&again, 0), Err(Errno::PERM), "shrink a re-opened one");
    let mapped = map(&fd, ProtFlags::READ).unwrap();
    let writable = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: the mapping made above; it fails.
    let protect = unsafe { rustix::mm::mprotect(mapped, SIZE, writable) };
    assert_eq!(protect, Err(Errno::ACCESS), "mprotect");
    // SAFETY: the mapping made above; it fails.
    let remove = unsafe { rustix::mm::madvise(mapped, SIZE, rustix::mm::Advice::LinuxRemove) };
    assert!(remove.is_err(), "MADV_REMOVE");
    // SAFETY: the mapping made above, not used any more.
    unsafe { rustix::mm::munmap(mapped, SIZE) }.unwrap();
    let peer = PeerRegion::verify_and_map(fd, SIZE).unwrap();
    assert_eq!(peer.read_header::<9>(0), *b"untouched");
    own.write(0, b"owner ok ");
    assert_eq!(peer.read_header::<9>(0), *b"owner ok ");
}

/// A memfd made by hand, as a hostile peer would.
fn memfd(size: u64, allocated: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&fd, size).unwrap();
    if allocated > 0 {
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, allocated).unwrap();
    }
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn refused(fd: OwnedFd) -> VerifyError {
    PeerRegion::verify_and_map(fd, SIZE).expect_err("it must be refused")
}

#[test]
fn each_missing_seal_is_refused() {
    assert!(PeerRegion::verify_and_map(memfd(SIZE as u64, SIZE as u64, LANE), SIZE).is_ok());
    for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
        let error = refused(memfd(SIZE as u64, SIZE as u64, LANE.difference(seal)));
        let VerifyError::Seals { missing, .. } = error else { panic!("{error}") };
        assert_eq!(missing, seal.bits());
    }
}

#[test]
fn a_write_sealed_memfd_passes_as_a_lane() {
    let seals = LANE.difference(SealFlags::FUTURE_WRITE) | SealFlags::WRITE;
    assert!(PeerRegion::verify_and_map(memfd(SIZE as u64, SIZE as u64, seals), SIZE).is_ok());
}

#[test]
fn another_size_than_announced_is_refused() {
    for found in [0, 1, SIZE as u64 - 4096, SIZE as u64 - 1, SIZE as u64 + 1, 2 * SIZE as u64] {
        let error = refused(memfd(found, found, LANE));
        assert_eq!(error, VerifyError::Size { found, expected: SIZE as u64 });
    }
}

#[test]
fn no_region_has_no_bytes() {
    assert!(PeerRegion::verify_and_map(memfd(0, 0, LANE), 0).is_err());
    assert!(OwnRegion::create("empty", 0, |_| {}).is_err());
}

#[test]
fn pages_beyond_the_end_do_not_count_for_those_inside() {
    let len = SIZE as u64;
    for inside in [0, 4096, len - 4096] {
        let fd = memfd(len, inside, SealFlags::empty());
        rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, len, len).unwrap();
        rustix::fs::fcntl_add_seals(&fd, LANE).unwrap();
        assert_eq!(refused(fd), VerifyError::Sparse { allocated: inside, size: len });
    }
}

#[test]
fn pages_that_were_only_allocated_or_lie_in_huge_ones_count() {
    for size in [4096, 2 << 20, (4 << 20) + 4096] {
        let (_own, fd) = OwnRegion::create("lane", size, |_| {}).unwrap();
        assert_eq!(PeerRegion::verify_and_map(fd, size).unwrap().size(), size);
        let fd = memfd(size as u64, size as u64, LANE);
        assert_eq!(PeerRegion::verify_and_map(fd, size).unwrap().size(), size);
    }
}

/// A peer that sends such memory again and again would use up this process's addresses and mappings.
#[test]
fn memory_that_can_only_be_written_leaves_no_addresses_reserved() {
    let (size, attempts) = (4 << 20, 256);
    let lane = memfd(size as u64, size as u64, LANE);
    let path = format!("/proc/self/fd/{}", lane.as_raw_fd());
    let used = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = used();
    for _ in 0..attempts {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        let error = PeerRegion::verify_and_map(fd, size).unwrap_err();
        assert_eq!(error, VerifyError::Unreadable);
    }
    // Other tests run meanwhile.
    assert!(used().saturating_sub(before) < size * attempts / 2);
}

#[test]
fn a_sparse_memfd_is_refused() {
    for allocated in [0, 4096, SIZE as u64 - 4096] {
        let error = refused(memfd(SIZE as u64, allocated, LANE));
        assert_eq!(error, VerifyError::Sparse { allocated, size: SIZE as u64 });
    }
}

#[test]
fn a_descriptor_that_is_no_memfd_is_refused() {
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let (socket, _peer) = socket_pair();
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.set_len(SIZE as u64).unwrap();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let eventfd = Eventfd::create().unwrap().as_fd().try_clone_to_owned().unwrap();
    for fd in [pipe, socket, file.into(), zero.into(), eventfd] {
        assert!(matches!(refused(fd), VerifyError::NotMemory { .. } | VerifyError::Seals { .. }));
    }
}

#[test]
fn a_file_on_tmpfs_is_refused() {
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm to write to");
        return;
    };
    file.set_len(SIZE as u64).unwrap();
    let error = refused(file.into());
    let VerifyError::Seals { held, .. } = error else { panic!("{error}") };
    assert_eq!(held, SealFlags::SEAL.bits(), "a tmpfs file can never be sealed further");
}

#[test]
fn huge_pages_are_refused() {
    const HUGE: usize = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(fd) = rustix::fs::memfd_create("huge", flags) else {
        eprintln!("skipped: this kernel has no huge pages");
        return;
    };
    rustix::fs::ftruncate(&fd, HUGE as u64).unwrap();
    rustix::fs::fcntl_add_seals(&fd, LANE).unwrap();
    let error = PeerRegion::verify_and_map(fd, HUGE).expect_err("huge pages must be refused");
    assert_eq!(error, VerifyError::HugePages);
}

#[test]
fn a_refused_name_is_an_error() {
    let name = "x".repeat(300);
    let error = OwnRegion::create(&name, SIZE, |_| {}).expect_err("memfd names are short");
    assert!(matches!(error, RegionError::Create { .. }), "{error}");
}

#[test]
fn a_region_past_the_file_size_limit_is_an_error_and_no_signal() {
    child::run("region::body_with_a_file_limit");
}

#[test]
fn body_with_a_file_limit() {
    if child::run_dir().is_none() {
        return;
    }
    let limit = Rlimit { current: Some(4096), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, limit).unwrap();
    let error = OwnRegion::create("large", SIZE, |_| {}).expect_err("past the limit");
    assert!(matches!(error, RegionError::FileLimit { size: 16384, limit: 4096 }), "{error}");
}
