use std::fs::{File, read_dir, read_link};
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bellwire_memfd::clock;
use bellwire_memfd::memory::{LoanAccount, MemoryPool, Quota};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, VerifyError};
use bellwire_memfd::snapshot::{Snapshot, SnapshotBuilder, SnapshotMap};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, pipe, splice};

fn publish(bytes: &[u8]) -> Snapshot {
    let mut builder = SnapshotBuilder::create("snapshot", bytes.len()).unwrap();
    builder.bytes().copy_from_slice(bytes);
    builder.seal().unwrap()
}

#[test]
fn many_readers_map_one_publication() {
    for len in [1, 4095, 4096, 4097, 100_000] {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
        let snapshot = publish(&bytes);
        assert_eq!(snapshot.len(), len);
        for _ in 0..3 {
            let fd = snapshot.as_fd().try_clone_to_owned().unwrap();
            let map = SnapshotMap::of_peer(fd, len, false).unwrap();
            assert_eq!(*map, *bytes);
        }
        assert_eq!(*snapshot.map().unwrap(), *bytes);
    }
}

#[test]
fn a_copy_is_sealed_has_all_its_pages_and_is_zero_behind_its_bytes() {
    for len in [0, 1, 4095, 4096, 4097, 100_000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1] {
        let bytes: Vec<u8> = (1..=u8::MAX).cycle().take(len).collect();
        let snapshot = Snapshot::copy_of("snapshot", &bytes).unwrap();
        assert_eq!(snapshot.len(), len);
        assert_eq!(rustix::io::write(&snapshot, b"evil"), Err(Errno::PERM));
        // A reader wants every seal, the size and every page.
        let fd = snapshot.as_fd().try_clone_to_owned().unwrap();
        let size = len.max(1).next_multiple_of(4096);
        let whole = SnapshotMap::of_peer(fd, size, false).unwrap();
        assert_eq!(whole[..len], *bytes);
        assert!(whole[len..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn an_empty_snapshot_is_one() {
    let snapshot = publish(&[]);
    assert!(snapshot.is_empty());
    let fd = snapshot.as_fd().try_clone_to_owned().unwrap();
    assert!(SnapshotMap::of_peer(fd, 0, false).unwrap().is_empty());
}

/// A pipe pins the pages that were spliced into it, as reclaim does those that it scans.
#[test]
fn temporarily_pinned_pages_are_sealed_once_released() {
    const HELD: Duration = Duration::from_millis(400);
    let name = "held-for-a-while";
    let mut builder = SnapshotBuilder::create(name, 4096).unwrap();
    builder.bytes().fill(7);
    let open = read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_its = |path: &std::path::PathBuf| {
        read_link(path).is_ok_and(|link| link.to_string_lossy().contains(name))
    };
    let memfd = File::open(open.into_iter().find(is_its).unwrap()).unwrap();
    let (from, into) = pipe().unwrap();
    assert_eq!(splice(&memfd, Some(&mut 0), &into, None, 4096, SpliceFlags::empty()), Ok(4096));
    let began = Instant::now();
    let (_ended, end) = mpsc::channel::<()>();
    let holder = thread::spawn(move || {
        let _ = end.recv_timeout(HELD);
        drop((from, into));
    });
    let snapshot = builder.seal().unwrap();
    assert!(began.elapsed() >= HELD, "it was sealed while the pipe held its page");
    holder.join().unwrap();
    assert_eq!(*snapshot.map().unwrap(), [7; 4096]);
}

#[test]
fn a_snapshot_cannot_be_written() {
    let snapshot = publish(b"immutable");
    assert_eq!(rustix::io::write(&snapshot, b"evil"), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&snapshot, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&snapshot, 1 << 20), Err(Errno::PERM));
    assert_eq!(*snapshot.map().unwrap(), *b"immutable");
}

/// The kernel reports whether anybody has a memfd, not who.
#[test]
fn snapshots_that_one_user_keeps_do_not_fill_the_quota_of_another() {
    const LEN: usize = 8 << 10;
    let pool = Arc::new(MemoryPool::new(64 << 20, Box::new(())));
    let user = || Arc::new(Quota::new(32 << 20, Arc::clone(&pool)));
    let (keeper, modest) = (user(), user());
    let lend = |sealed: &Snapshot, quota: &Arc<Quota>| {
        sealed.lend(&LoanAccount { quota: Arc::clone(quota), is_watching: true }).unwrap()
    };
    let mut kept = Vec::new();
    for generation in 0..100_u8 {
        let bytes = [generation; LEN];
        let sealed = publish(&bytes);
        // Whoever is first.
        let both = [&keeper, &modest];
        let first = usize::from(generation % 2);
        let mut passed = [None, None];
        for at in [first, 1 - first] {
            let lent = lend(&sealed, both[at]);
            assert!(Arc::ptr_eq(&lent, &lend(&sealed, both[at])), "each user gets one");
            // As a peer receives it: the same description, by another descriptor.
            let lent = lent.as_fd().try_clone_to_owned().unwrap();
            let seen = lent.try_clone().unwrap();
            assert_eq!(&*SnapshotMap::of_peer(seen, LEN, false).unwrap(), bytes);
            passed[at] = Some(lent);
        }
        let [keepers, modests] = passed;
        kept.extend(keepers);
        drop((modests, sealed));
    }
    for quota in [&keeper, &modest] {
        quota.reclaim(clock::now(), 200);
    }
    let held = [&keeper, &modest].map(|quota| quota.held() / LEN as u64);
    assert_eq!(held[0], 100);
    assert!(held[1] <= 5, "what both have until the first is known to keep them: {held:?}");
    drop(kept);
    for quota in [&keeper, &modest] {
        quota.reclaim(clock::now(), 200);
        assert!(quota.is_idle());
    }
}

#[test]
fn a_lane_is_no_snapshot() {
    // Its owner can still write it: a slice over it would change under its reader.
    let (_own, fd) = OwnRegion::create("lane", 4096, |_| {}).unwrap();
    let error = SnapshotMap::of_peer(fd, 4096, false).expect_err("a lane must be refused");
    assert!(matches!(error, VerifyError::Seals { .. }), "{error}");
}

#[test]
fn another_length_than_announced_is_refused() {
    let snapshot = publish(&[7; 5000]);
    let fd = || snapshot.as_fd().try_clone_to_owned().unwrap();
    let error = SnapshotMap::of_peer(fd(), usize::MAX, false).expect_err("no size");
    assert!(matches!(error, VerifyError::Size { found: 8192, .. }), "{error}");
    let error = SnapshotMap::of_peer(fd(), 4096, false).expect_err("announced too short");
    assert_eq!(error, VerifyError::Size { found: 8192, expected: 4096 });
    let error = SnapshotMap::of_peer(fd(), 9000, false).expect_err("announced too long");
    assert_eq!(error, VerifyError::Size { found: 8192, expected: 12288 });
}
