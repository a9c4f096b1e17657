use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use bellwire_core::lane::Epoch;
use bellwire_core::wire::{Join, Message};
use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size};

use bellwire_hostile::wire::{Target, rest, send};

/// Passes sockets with unread data and a long `SO_LINGER`: as page and lane, as the next lane, and with messages that need
/// none. The thread that closes the last descriptor of such a socket blocks: sometimes that is a thread of this process.
pub(super) fn run(target: &Target) {
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                // Shared by all rounds: binding thousands of ports takes milliseconds of CPU time.
                let Ok(listener) = TcpListener::bind(("127.0.0.1", 0)) else { return };
                let mut unread = Vec::new();
                for round in 0_u64.. {
                    let _ = pass_sockets(target, round, &listener, &mut unread);
                    if unread.len() > 500 {
                        unread.clear();
                    }
                }
            });
        }
    });
}

fn pass_sockets(
    target: &Target,
    round: u64,
    listener: &TcpListener,
    unread: &mut Vec<TcpStream>,
) -> Option<()> {
    let (one, two) = (slow_to_close(listener, unread)?, slow_to_close(listener, unread)?);
    let fds = [one.as_fd(), two.as_fd()];
    let (socket, _session) = if round.is_multiple_of(4) {
        let (socket, session, _) = target.hello_to_welcome("echo")?;
        send(&socket, &Message::Join(Join { session }), &fds);
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
    // Close these before the server's copies, which are to be the last ones.
    drop((one, two));
    // Sometimes the session closes while the descriptors are still in its queue.
    if !round.is_multiple_of(8) {
        rest();
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
