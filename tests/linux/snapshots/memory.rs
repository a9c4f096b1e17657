//! Whose memory a snapshot is, and what a refresh costs.

use std::os::fd::OwnedFd;

use bellwire::{Refreshed, SnapshotCache};
use bellwire_core::wire::{Header, Kind, Message, Status};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::support::child::Process;
use crate::support::guard::TEST_TIMEOUT;
use crate::support::kernel;
use crate::support::memory::maps_writable;
use crate::support::rogue::Rogue;
use crate::support::services::{Numbers, numbers};
use crate::support::test_server::{Dir, TestServer, client_config};

/// The inodes of the snapshots that a process has mapped, with their sizes.
fn snapshots(pid: u32) -> Vec<(u64, u64)> {
    let memory = kernel::memory(pid);
    let snapshots =
        memory.into_iter().filter(|(_, (name, _))| name.starts_with("snapshot-numbers"));
    snapshots.map(|(inode, (_, size))| (inode, size)).collect()
}

#[test]
fn readers_in_two_processes_map_the_same_memory_and_the_publisher_none() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    assert_eq!(server.ask("publish 1 40000"), "1");
    let readers = ["watcher", "watcher"].map(|role| Process::start(role, &dir.run_dir));
    let [first, second] = [&readers[0], &readers[1]].map(|reader| snapshots(reader.pid()));
    let size = (40_000_u64 * 8).next_multiple_of(4096);
    assert!(matches!(first[..], [(_, found)] if found == size), "{first:?}");
    assert_eq!(first, second);
    assert_eq!(snapshots(server.pid()), []);
}

#[test]
fn an_old_snapshot_is_unmapped_when_a_newer_one_is_taken() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    server.ask("publish 1 40000");
    let mut reader = Process::start("watcher", &dir.run_dir);
    let first = snapshots(reader.pid());
    let mut fds = 0;
    for generation in 2..20 {
        server.ask(&format!("publish {generation} 40000"));
        assert_eq!(reader.next_line(), format!("Changed {generation} {generation} 40000"));
        let now = kernel::fds(reader.pid());
        assert!(generation == 2 || now == fds, "no descriptor is kept: {fds}, now {now}");
        fds = now;
    }
    let last = snapshots(reader.pid());
    assert_eq!((first.len(), last.len()), (1, 1));
    assert_ne!(first, last);
}

#[test]
fn of_a_short_snapshot_nothing_stays_mapped() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    for (len, mapped) in [(32_768, 0), (32_769, 1), (1, 0)] {
        server.ask(&format!("publish 7 {len}"));
        let reader = Process::start("watcher", &dir.run_dir);
        assert_eq!(snapshots(reader.pid()).len(), mapped, "{len} numbers");
    }
}

/// The descriptor that a reader is passed.
fn passed(fixture: &TestServer) -> OwnedFd {
    let mut rogue = Rogue::connect(fixture.run_dir(), "numbers").open();
    rogue.put(Header::new(Kind::Request, Status::Ok, 1, 0), &[]);
    let (message, fds) = rogue.control();
    assert!(matches!(message, Message::Attachment(snapshot) if snapshot.len == 80), "{message:?}");
    fds.into_iter().next().unwrap()
}

#[test]
fn a_reader_cannot_change_a_snapshot() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let fd = passed(&fixture);
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    assert!(fcntl_get_seals(&fd).unwrap().contains(all));
    assert!(!maps_writable(&fd, MapFlags::SHARED));
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    assert!(rustix::fs::ftruncate(&fd, 8192).is_err());
    let holes = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, holes, 0, 4096), Err(Errno::PERM));
    // Opened anew it is no different.
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    if let Ok(again) = std::fs::File::options().read(true).write(true).open(path) {
        assert!(!maps_writable(&again, MapFlags::SHARED));
        assert_eq!(rustix::io::pwrite(&again, b"x", 0), Err(Errno::PERM));
    }
    let mut cache = SnapshotCache::<Numbers>::with_config(fixture.run_dir(), client_config());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    assert_eq!(cache.current().unwrap().bytes(), numbers(1, 10));
}

#[test]
fn a_refresh_that_finds_nothing_new_makes_no_system_call() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let mut reader = Process::start("reader", fixture.run_dir());
    // A system call other than read and write would end it.
    reader.send_line("go");
    assert_eq!(reader.try_next_line().as_deref(), Some("unchanged"));
    reader.kill();
}

#[test]
fn a_refresh_that_finds_something_new_makes_system_calls() {
    // Otherwise the test above would prove nothing.
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 10)).unwrap();
    let mut reader = Process::start("reader", fixture.run_dir());
    fixture.numbers.publish(&numbers(2, 10)).unwrap();
    reader.send_line("go");
    assert_eq!(reader.try_next_line(), None, "the kernel ended it");
}
