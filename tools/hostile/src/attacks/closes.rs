use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use bellwire_core::lane::Epoch;
use bellwire_core::wire::{Attach, Message};
use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size};

use crate::wire::{Target, pause, send};

/// Sockets with unread data and a long linger, as page and lane, as the next lane, and on the socket with no meaning.
/// The thread that closes the last descriptor of one waits: now and then that is one of this process.
pub(super) fn run(target: &Target) {
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                // One for all: to bind thousands of ports takes the processor for milliseconds.
                let Ok(listener) = TcpListener::bind(("127.0.0.1", 0)) else { return };
                let mut unread = Vec::new();
                for round in 0_u64.. {
                    let _ = once(target, round, &listener, &mut unread);
                    if unread.len() > 500 {
                        unread.clear();
                    }
                }
            });
        }
    });
}

fn once(
    target: &Target,
    round: u64,
    listener: &TcpListener,
    unread: &mut Vec<TcpStream>,
) -> Option<()> {
    let (one, two) = (slow_to_close(listener, unread)?, slow_to_close(listener, unread)?);
    let fds = [one.as_fd(), two.as_fd()];
    let (socket, _session) = if round.is_multiple_of(4) {
        let (socket, session, _) = target.enter("echo")?;
        send(&socket, &Message::Attach(Attach { session }), &fds);
        (Some(socket), None)
    } else {
        let session = target.open("echo")?;
        let next = Epoch::first(target.lane).next(target.lane);
        match round % 4 {
            1 => _ = send(&session.socket, &Message::Ring, &fds),
            2 => _ = send(&session.socket, &Message::Lane(next), &[one.as_fd()]),
            _ => _ = bellwire_memfd::pass::send(session.socket.as_fd(), &[], &fds),
        }
        (None, Some(session))
    };
    // Before the server's, which shall be the last.
    drop((one, two));
    // Some are closed with these in their queue.
    if !round.is_multiple_of(8) {
        pause::<()>();
    }
    drop(socket);
    Some(())
}

fn slow_to_close(listener: &TcpListener, unread: &mut Vec<TcpStream>) -> Option<OwnedFd> {
    let mut sender = TcpStream::connect(listener.local_addr().ok()?).ok()?;
    unread.push(listener.accept().ok()?.0);
    set_socket_send_buffer_size(&sender, 4_096).ok()?;
    sender.set_nonblocking(true).ok()?;
    while sender.write(&[0; 1 << 16]).is_ok() {}
    sender.set_nonblocking(false).ok()?;
    set_socket_linger(&sender, Some(Duration::from_secs(30))).ok()?;
    Some(sender.into())
}
