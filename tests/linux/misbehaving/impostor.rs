//! Descriptors that are not what the message says.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll as kernel_epoll};
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::support::memory::{Draft, SEALS, reopened};

/// As large as a page and as small as a lane.
const SIZE: u64 = 16 << 10;

pub(crate) fn pipe() -> OwnedFd {
    std::io::pipe().unwrap().0.into()
}

pub(super) fn unix_socket() -> OwnedFd {
    UnixStream::pair().unwrap().0.into()
}

/// Its `close` waits for longer than any test, or until `SO_LINGER` is reset: the written data is never read.
pub(super) fn lingering_socket() -> OwnedFd {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (never_reads, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(100))).unwrap();
    // Its end lives as long as this process.
    std::mem::forget(never_reads);
    stream.into()
}

pub(super) fn udp_socket() -> OwnedFd {
    UdpSocket::bind("127.0.0.1:0").unwrap().into()
}

pub(super) fn file_on_disk() -> OwnedFd {
    file_in(env!("CARGO_TARGET_TMPDIR"))
}

pub(super) fn file_on_tmpfs() -> OwnedFd {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(SIZE).unwrap();
    file.into_file().into()
}

pub(super) fn deleted_file_on_tmpfs() -> OwnedFd {
    file_in("/dev/shm")
}

fn file_in(dir: &str) -> OwnedFd {
    let file = tempfile::tempfile_in(dir).unwrap();
    file.set_len(SIZE).unwrap();
    file.into()
}

pub(super) fn directory() -> OwnedFd {
    File::open("/").unwrap().into()
}

pub(super) fn dev_zero() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/zero").unwrap().into()
}

pub(super) fn dev_null() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

pub(super) fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

pub(super) fn eventfd_by_its_path() -> OwnedFd {
    reopened(&eventfd(), OFlags::PATH)
}

pub(super) fn epoll() -> OwnedFd {
    kernel_epoll::create(kernel_epoll::CreateFlags::CLOEXEC).unwrap()
}

pub(super) fn pidfd() -> OwnedFd {
    pidfd_open(getpid(), PidfdFlags::empty()).unwrap()
}

/// A lane's memfd, by a descriptor that can neither be read nor written.
pub(super) fn path_only() -> OwnedFd {
    reopened(&Draft::lane().make(), OFlags::PATH)
}

/// Sealed as it should be. That there are no huge pages to be had is no reason not to pass them.
pub(super) fn huge_pages() -> OwnedFd {
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let fd = memfd_create("huge", flags).expect("this kernel knows hugetlbfs");
    ftruncate(&fd, HUGE).unwrap();
    fcntl_add_seals(&fd, SEALS | SealFlags::WRITE).unwrap();
    fd
}

pub(super) fn unsealable() -> OwnedFd {
    let fd = memfd_create("unsealable", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, SIZE).unwrap();
    fd
}
