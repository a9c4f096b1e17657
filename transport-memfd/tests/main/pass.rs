use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::pass::{self, MAX_FDS, ReceiveError, SendError};
use bellwire_memfd::prelude::*;
use bellwire_memfd::{peer, poll, reaper};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child;
use crate::support::{socket_pair, test_deadline};

fn eventfds(count: usize) -> Vec<Eventfd> {
    (0..count).map(|_| Eventfd::create().unwrap()).collect()
}

fn send_fds(sock: &OwnedFd, count: usize) {
    let owned = eventfds(count);
    let fds: Vec<BorrowedFd<'_>> = owned.iter().map(AsFd::as_fd).collect();
    pass::send(sock.as_fd(), b"message", &fds).unwrap();
}

#[test]
fn a_message_brings_its_bytes_and_descriptors() {
    let (a, b) = socket_pair();
    let mut buf = [0; 64];
    assert_eq!(pass::receive(b.as_fd(), &mut buf, 0).err(), Some(ReceiveError::WouldBlock));
    for count in [0, 1, 4, 16, MAX_FDS] {
        send_fds(&a, count);
        let received = pass::receive(b.as_fd(), &mut buf, count).unwrap();
        assert_eq!(&buf[..received.len], b"message");
        assert_eq!(received.count(), count);
        for fd in received.into_objects() {
            let flags = rustix::io::fcntl_getfd(&fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}

#[test]
fn more_descriptors_than_allowed_are_refused() {
    let (a, b) = socket_pair();
    let mut buf = [0; 64];
    send_fds(&a, 3);
    let error = pass::receive(b.as_fd(), &mut buf, 2).err();
    assert_eq!(error, Some(ReceiveError::TooManyObjects { count: 3, max: 2 }));
    send_fds(&a, 2);
    assert_eq!(pass::receive(b.as_fd(), &mut buf, 2).unwrap().count(), 2);
}

#[test]
fn a_descriptor_that_is_not_taken_is_closed() {
    let (a, b) = socket_pair();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    pass::send(a.as_fd(), b"m", &[writer.as_fd()]).unwrap();
    drop(writer);
    drop(pass::receive(b.as_fd(), &mut [0; 8], 1).unwrap());
    // The end of the pipe: the last writer was closed, on the reaper thread.
    assert!(poll::wait_readable(&[reader.as_fd()], test_deadline()).unwrap().is(0));
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let (a, b) = socket_pair();
    pass::send(a.as_fd(), &[1; 65], &[]).unwrap();
    let error = pass::receive(b.as_fd(), &mut [0; 64], 0).err();
    assert_eq!(error, Some(ReceiveError::TooLong { room: 64 }));
}

#[test]
fn the_peers_end_is_distinguished_from_silence() {
    let (a, b) = socket_pair();
    pass::send(a.as_fd(), b"last words", &[]).unwrap();
    drop(a);
    let mut buf = [0; 64];
    assert_eq!(pass::receive(b.as_fd(), &mut buf, 0).unwrap().len, 10);
    assert_eq!(pass::receive(b.as_fd(), &mut buf, 0).err(), Some(ReceiveError::Closed));
    assert_eq!(pass::send(b.as_fd(), b"hello?", &[]), Err(SendError::Gone));
}

#[test]
fn the_last_messages_of_a_peer_arrive_though_it_left_ours_unread() {
    let (a, b) = socket_pair();
    pass::send(b.as_fd(), b"never read", &[]).unwrap();
    send_fds(&a, 1);
    drop(a);
    let mut buf = [0; 64];
    let received = pass::receive(b.as_fd(), &mut buf, 1).unwrap();
    assert_eq!((received.len, received.count()), (7, 1));
    assert_eq!(pass::receive(b.as_fd(), &mut buf, 0).err(), Some(ReceiveError::Closed));
}

#[test]
fn a_full_socket_does_not_block_the_sender() {
    let (a, _b) = socket_pair();
    let full = (0..100_000).find_map(|_| pass::send(a.as_fd(), &[0; 64], &[]).err());
    assert_eq!(full, Some(SendError::WouldBlock));
}

#[test]
fn more_descriptors_than_a_message_carries_are_refused() {
    let (a, _b) = socket_pair();
    let one = Eventfd::create().unwrap();
    let fds = vec![one.as_fd(); MAX_FDS + 1];
    let error = pass::send(a.as_fd(), b"m", &fds);
    assert_eq!(error, Err(SendError::TooManyObjects { count: MAX_FDS + 1, max: MAX_FDS }));
}

#[test]
fn descriptors_lost_at_the_limit_are_noticed() {
    child::run("pass::body_at_the_limit");
}

#[test]
fn body_at_the_limit() {
    if child::run_dir().is_none() {
        return;
    }
    let (a, b) = socket_pair();
    send_fds(&a, 4);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let limit = Rlimit {
        current: u64::try_from(next).ok().map(|next| next + 2),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(
        pass::receive(b.as_fd(), &mut [0; 64], 4).err(),
        Some(ReceiveError::Short { source: rustix::io::Errno::MFILE })
    );
}

#[test]
fn a_message_that_is_left_at_the_limit_is_received_later() {
    child::run("pass::body_that_leaves_a_message");
}

#[test]
fn body_that_leaves_a_message() {
    if child::run_dir().is_none() {
        return;
    }
    let (a, b) = socket_pair();
    send_fds(&a, 4);
    pass::send(a.as_fd(), b"another", &[]).unwrap();
    let before = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let current = u64::try_from(next).ok().map(|next| next + 2);
    setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
    for _ in 0..100 {
        let received = pass::receive_or_leave(b.as_fd(), &mut [0; 64], 4);
        assert_eq!(received.err(), Some(ReceiveError::Short { source: rustix::io::Errno::MFILE }));
    }
    // The first is not lost, nor passed by the second.
    setrlimit(Resource::Nofile, before).unwrap();
    let mut bytes = [0; 64];
    let received = pass::receive_or_leave(b.as_fd(), &mut bytes, 4).unwrap();
    assert_eq!((&bytes[..received.len], received.count()), (&b"message"[..], 4));
    let received = pass::receive_or_leave(b.as_fd(), &mut bytes, 4).unwrap();
    assert_eq!((&bytes[..received.len], received.count()), (&b"another"[..], 0));
    let nothing = pass::receive_or_leave(b.as_fd(), &mut bytes, 4);
    assert_eq!(nothing.err(), Some(ReceiveError::WouldBlock));
}

#[test]
fn a_message_that_is_refused_is_not_left() {
    let (a, b) = socket_pair();
    let mut bytes = [0; 64];
    send_fds(&a, 5);
    pass::send(a.as_fd(), &[7; 65], &[]).unwrap();
    pass::send(a.as_fd(), b"good", &[]).unwrap();
    let too_many = pass::receive_or_leave(b.as_fd(), &mut bytes, 4).err();
    assert_eq!(too_many, Some(ReceiveError::TooManyObjects { count: 5, max: 4 }));
    let too_long = pass::receive_or_leave(b.as_fd(), &mut bytes, 4).err();
    assert_eq!(too_long, Some(ReceiveError::TooLong { room: 64 }));
    assert_eq!(pass::receive_or_leave(b.as_fd(), &mut bytes, 4).unwrap().len, 4);
    drop(a);
    assert_eq!(pass::receive_or_leave(b.as_fd(), &mut bytes, 4).err(), Some(ReceiveError::Closed));
}

/// The peer's end is reported once, before what it sent, and can come between the two polls.
#[test]
fn a_message_is_received_once_though_its_sender_closes_meanwhile() {
    let mut bytes = [0; 64];
    let go = Arc::new(AtomicU64::new(0));
    let (goers, to_go) = std::sync::mpsc::channel::<OwnedFd>();
    let started = Arc::clone(&go);
    let closer = std::thread::spawn(move || {
        for (round, socket) in (1..).zip(to_go) {
            while started.load(Ordering::Acquire) < round {
                std::hint::spin_loop();
            }
            for _ in 0..round * 7 % 256 {
                std::hint::spin_loop();
            }
            drop(socket);
        }
    });
    for round in 1..=6_000 {
        let (a, b) = socket_pair();
        send_fds(&a, 1);
        // Unread with the peer, so that its end is a reset.
        pass::send(b.as_fd(), b"unread", &[]).unwrap();
        goers.send(a).unwrap();
        go.store(round, Ordering::Release);
        let mut received = 0;
        loop {
            match pass::receive_or_leave(b.as_fd(), &mut bytes, 4) {
                Ok(message) => received += message.count(),
                Err(ReceiveError::WouldBlock) => std::thread::yield_now(),
                Err(error) => {
                    assert_eq!(error, ReceiveError::Closed);
                    break;
                }
            }
        }
        assert_eq!(received, 1, "in round {round}");
    }
    drop(goers);
    closer.join().unwrap();
}

#[test]
fn peer_credentials_are_those_of_the_connecting_process() {
    let (a, _b) = socket_pair();
    let who = peer::credentials(a.as_fd()).unwrap();
    assert_eq!(who.pid, Some(std::process::id()));
    assert_eq!(who.uid, rustix::process::geteuid().as_raw());
    assert_eq!(who.gid, rustix::process::getegid().as_raw());
    assert!(!who.overflow);
    let process = peer::peer_pidfd(a.as_fd()).expect("pidfds work here");
    assert!(!process.has_exited());
    assert!(rustix::io::fcntl_getfd(&process).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn the_reapers_backlog_drains() {
    let copies = eventfds(10).into_iter().map(|e| e.as_fd().try_clone_to_owned().unwrap());
    copies.for_each(reaper::reap);
    while reaper::backlog() > 0 {
        std::thread::yield_now();
    }
}
