use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use bellwire_memfd::{poll, reaper};

use crate::support::patience;

/// Closing this would block for an hour.
#[test]
fn a_lingering_socket_holds_nobody_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_never_reads, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(3600))).unwrap();
    reaper::reap(stream.into());
    // What comes after it is closed too.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    reaper::reap(writer);
    assert!(poll::wait_readable(&[reader.as_fd()], patience()).unwrap().is(0));
}
