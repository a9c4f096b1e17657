//! A FUSE file whose server never answers, in place of the memory that a peer passes or has mapped.

use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::prelude::*;
use bellwire_memfd::reaper;
use bellwire_memfd::region::{PeerRegion, VerifyError};
use bellwire_memfd::snapshot::SnapshotMap;

#[path = "../../../tests/linux/support/fuse.rs"]
mod silent;

use silent::Silent;

/// Less than what waits for the file's server waits.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// In a thread of its own, which may wait for as long as the file is there.
fn returns<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(look()));
    receiver.recv_timeout(TEST_TIMEOUT).expect("it waits for the file's server")
}

fn is_no_eventfd(fd: OwnedFd) -> bool {
    matches!(Eventfd::from_peer(fd), Err(VerifyError::NotEventfd))
}

#[test]
fn a_file_whose_fuse_server_never_answers_is_refused_in_every_place() {
    let Some(silent) = Silent::new(c"file") else { return };
    let fd = silent.fd();
    assert!(returns(move || is_no_eventfd(fd)));
    for size in [4096, 16 << 10] {
        let fd = silent.fd();
        let refused = returns(move || PeerRegion::verify_and_map(fd, size).unwrap_err());
        assert!(matches!(refused, VerifyError::NotMemory { .. }), "{refused}");
    }
    let fd = silent.fd();
    let refused = returns(move || SnapshotMap::of_peer(fd, 4096, false).unwrap_err());
    assert!(matches!(refused, VerifyError::NotMemory { .. }), "{refused}");
    is_closed(silent);
}

/// The file's server answers from now on. A process that ends before that would wait for itself.
fn is_closed(silent: Silent) {
    drop(silent);
    while reaper::backlog() > 0 {
        thread::yield_now();
    }
}

/// The thread that reads has hold of the file's position, or of its inode when it writes.
#[test]
fn a_fuse_file_that_another_thread_waits_for_is_refused_too() {
    for reads in [true, false] {
        let Some(silent) = Silent::new(c"file") else { return };
        let (fd, id) = (silent.fd(), channel());
        thread::spawn(move || {
            id.0.send(rustix::thread::gettid()).unwrap();
            let _ = match reads {
                true => rustix::io::read(&fd, &mut [0_u8; 8]),
                false => rustix::io::write(&fd, &[0; 8]),
            };
        });
        let thread = id.1.recv().unwrap().as_raw_nonzero();
        let calls = [libc::SYS_read, libc::SYS_write].map(|call| format!("{call} "));
        let call = format!("/proc/self/task/{thread}/syscall");
        while !calls.iter().any(|it| std::fs::read_to_string(&call).unwrap().starts_with(it)) {
            thread::yield_now();
        }
        let fd = silent.fd();
        assert!(returns(move || is_no_eventfd(fd)));
        let fd = silent.fd();
        let refused = returns(move || PeerRegion::verify_and_map(fd, 4096).unwrap_err());
        assert!(matches!(refused, VerifyError::NotMemory { .. }), "{refused}");
        is_closed(silent);
    }
}

#[test]
#[allow(unsafe_code, reason = "maps a file, as another process would")]
fn one_that_is_mapped_and_named_like_a_page_is_no_page() {
    use std::os::fd::AsFd;

    use bellwire_observe::{ObserveError, PageMap, View, pages};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    let Some(silent) = Silent::new(c"memfd:bellwire-page-server-fuse-1") else { return };
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new map, which is never accessed.
    let map = unsafe {
        mmap(std::ptr::null_mut(), 4096, prot, MapFlags::SHARED, silent.as_fd(), 0).unwrap()
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("/memfd:bellwire-page-server-fuse-1"), "it looks like one: {maps}");
    let (found, _) = returns(pages).unwrap();
    let range = (map as u64, map as u64 + 4096);
    assert!(found.iter().all(|page| page.range != range), "{found:?}");
    // It was a page when it was found.
    let page = PageMap { pid: std::process::id(), is_owner: true, object: (1, 1), range };
    let error = returns(move || View::open(&page).unwrap_err());
    // SAFETY: no reference into it exists.
    unsafe { munmap(map, 4096).unwrap() };
    assert!(matches!(error, ObserveError::Gone | ObserveError::Denied { .. }), "{error}");
}
