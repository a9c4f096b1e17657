use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bellwire_memfd::{pass, poll, reaper};

use crate::support::{socket_pair, test_deadline};

#[test]
fn a_lingering_socket_does_not_block_the_reaper() {
    reaper::reap(lingering_socket());
    // What comes after it is closed too.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    reaper::reap(writer);
    assert!(poll::wait_readable(&[reader.as_fd()], test_deadline()).unwrap().is(0));
}

/// It is unread on another socket, and would be closed with that socket.
#[test]
fn a_queued_lingering_socket_does_not_block_the_reaper() {
    for before in [0, 1, 10] {
        let (queue, sender) = socket_pair();
        for _ in 0..before {
            pass::send(sender.as_fd(), b"", &[]).unwrap();
        }
        let lingering = lingering_socket();
        pass::send(sender.as_fd(), b"message", &[lingering.as_fd(), lingering.as_fd()]).unwrap();
        drop(lingering);
        reaper::reap(queue);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        reaper::reap(writer);
        assert!(poll::wait_readable(&[reader.as_fd()], test_deadline()).unwrap().is(0));
    }
}

/// Closing it would block for longer than a test waits.
fn lingering_socket() -> OwnedFd {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (never_reads, _) = listener.accept().unwrap();
    std::mem::forget(never_reads);
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(100))).unwrap();
    stream.into()
}
