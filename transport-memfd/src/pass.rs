#![allow(unsafe_code, reason = "setsockopt: rustix has no SO_PASSRIGHTS")]
//! Passes messages with descriptors over the control socket (`SOCK_SEQPACKET`,
//! [`unix(7)`](https://man7.org/linux/man-pages/man7/unix.7.html)). Nothing here blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bellwire_shm::platform;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, sendmsg,
};

use crate::Linux;
use crate::fork::{ForkGuard, OwnerProcess};
use crate::{clock, poll, reaper, spare};

/// The maximum number of descriptors in one message: the kernel's limit, `SCM_MAX_FD`.
pub const MAX_FDS: usize = 253;
/// `SO_PASSRIGHTS` on all architectures that Bellwire supports (Linux 6.16).
const SO_PASSRIGHTS: libc::c_int = 83;

/// Why a message was not sent.
pub type SendError = platform::SendError<Linux>;

/// Why no message was received. The descriptors of a refused message went to the reaper.
pub type ReceiveError = platform::ReceiveError<Linux>;

/// A received message. Its descriptors are `CLOEXEC`.
pub type Received = bellwire_shm::Received<OwnedFd>;

/// One end of a control socket, non-blocking. On drop it is closed on the reaper thread if it holds anything unverified, since
/// closing that may block.
#[derive(Debug)]
pub struct Channel {
    // A child of fork that kept the socket open would hide the end of this process. `None` only while it is dropped.
    socket: Option<(ForkGuard, OwnedFd)>,
    owner_process: OwnerProcess,
}

/// Sends `bytes` as one message, with `fds`.
///
/// # Errors
/// [`SendError`]: nothing of the message was sent.
pub fn send(sock: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds));
    if fds.len() > MAX_FDS || !fits {
        return Err(SendError::TooManyObjects { count: fds.len(), max: MAX_FDS });
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        // A message of a SEQPACKET socket is sent whole or not at all.
        let Err(error) = sendmsg(sock, &[IoSlice::new(bytes)], &mut control, flags) else {
            return Ok(());
        };
        return Err(match error {
            Errno::INTR => continue,
            Errno::AGAIN => SendError::WouldBlock,
            Errno::TOOMANYREFS => SendError::TooManyInFlight,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => SendError::Gone,
            source => SendError::System { source },
        });
    }
}

/// Receives one message of at most `buf.len()` bytes and `max_fds` descriptors. It may be empty, although no correct peer
/// sends an empty message.
///
/// # Errors
/// [`ReceiveError`]: every received descriptor went to the reaper.
pub fn receive(
    sock: BorrowedFd<'_>,
    buf: &mut [u8],
    max_fds: usize,
) -> Result<Received, ReceiveError> {
    receive_with(sock, buf, max_fds, RecvFlags::empty())
}

fn receive_with(
    sock: BorrowedFd<'_>,
    buf: &mut [u8],
    max_fds: usize,
    flags: RecvFlags,
) -> Result<Received, ReceiveError> {
    // Room for as many descriptors as a message can carry: the kernel would close the rest within this call, and a close can
    // block.
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let room = buf.len();
    let message = receive_message(sock, buf, &mut control, flags)?;
    let mut fds = Vec::new();
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = ancillary {
            fds.extend(more);
        }
    }
    let received = Received::new(message.bytes.min(room), fds, reaper::reap);
    // From here on dropping `received` reaps its descriptors.
    if message.flags.contains(ReturnFlags::CTRUNC) {
        // As of a call that finds this process at its limit of open files.
        return Err(ReceiveError::Short { source: Errno::MFILE });
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(ReceiveError::TooLong { room });
    }
    // The end of the stream. An empty message, which no correct peer sends, differs only in this check.
    if received.len == 0 && received.count() == 0 && has_ended(sock) {
        return Err(ReceiveError::Closed);
    }
    let count = received.count();
    if count > max_fds {
        return Err(ReceiveError::TooManyObjects { count, max: max_fds });
    }
    Ok(received)
}

/// Receives one message like [`receive`], but leaves it in the socket if this process has no room for its descriptors
/// ([`ReceiveError::Short`]): it can be received later.
///
/// Costs a second system call: the descriptors are taken while the message is only peeked at
/// ([`recv(2)`](https://man7.org/linux/man-pages/man2/recv.2.html), `MSG_PEEK`).
///
/// # Errors
/// As [`receive`].
pub fn receive_or_leave(
    sock: BorrowedFd<'_>,
    buf: &mut [u8],
    max_fds: usize,
) -> Result<Received, ReceiveError> {
    let peeked = receive_with(sock, buf, max_fds, RecvFlags::PEEK);
    if matches!(
        peeked,
        Err(ReceiveError::WouldBlock | ReceiveError::Closed)
            | Err(ReceiveError::Short { .. } | ReceiveError::System { .. })
    ) {
        return peeked;
    }
    // No room for descriptors: the kernel drops the message's references, none of which is the last one.
    let mut was_reset = false;
    loop {
        match rustix::net::recv(sock, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            // The socket reports once that the peer is gone, before the message.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            _ => return peeked,
        }
    }
}

/// Sets whether a peer can send descriptors to this socket, or to the connections of a listening one from their first moment on:
/// `SO_PASSRIGHTS` (Linux 6.16). Where it cannot, its `sendmsg` fails with `EPERM`. What is queued already stays.
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel, where a peer always can.
pub fn set_passrights(sock: BorrowedFd<'_>, value: bool) -> Result<(), Errno> {
    let value = libc::c_int::from(value);
    let at = <*const libc::c_int>::cast(&value);
    let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `len` bytes of `value`, which is live.
    let result =
        unsafe { libc::setsockopt(sock.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, at, len) };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

/// Returns whether the peer will send nothing more. The socket reports this as soon as a receive can reach the end; messages
/// from before a peer left are not visible then.
fn has_ended(sock: BorrowedFd<'_>) -> bool {
    poll::wait(&mut [poll::hung_up(sock)], Some(clock::now())).map_or(true, poll::Ready::any)
}

/// Returns whether the socket holds no message, not even an empty one; `false` if unknown.
pub(crate) fn is_empty(sock: BorrowedFd<'_>) -> bool {
    // From here on each message, but not the end, carries its sender's credentials: without room for them the kernel sets
    // `MSG_CTRUNC`, see `unix(7)`, `SO_PASSCRED`.
    if rustix::net::sockopt::set_socket_passcred(sock, true).is_err() {
        return false;
    }
    let mut control = RecvAncillaryBuffer::default();
    match receive_message(sock, &mut [0], &mut control, RecvFlags::PEEK) {
        // Nothing is there, or it was never connected.
        Err(ReceiveError::WouldBlock | ReceiveError::System { source: Errno::NOTCONN }) => true,
        Ok(peeked) => peeked.bytes == 0 && !peeked.flags.contains(ReturnFlags::CTRUNC),
        Err(_) => false,
    }
}

/// Takes the next message off the socket if it has no descriptors, whose close could block.
fn discard_plain(sock: BorrowedFd<'_>) {
    let mut control = RecvAncillaryBuffer::default();
    let peeked = receive_message(sock, &mut [0], &mut control, RecvFlags::PEEK);
    if peeked.is_ok_and(|message| !message.flags.contains(ReturnFlags::CTRUNC)) {
        let _ = rustix::net::recv(sock, &mut [0_u8; 0], RecvFlags::DONTWAIT);
    }
}

fn receive_message(
    sock: BorrowedFd<'_>,
    buf: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
    flags: RecvFlags,
) -> Result<rustix::net::RecvMsg, ReceiveError> {
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut was_reset = false;
    loop {
        return match recvmsg(sock, &mut [IoSliceMut::new(buf)], control, flags) {
            Ok(message) => Ok(message),
            Err(Errno::INTR) => continue,
            // A peer that closes before it read our messages leaves this error, once, ahead of its own messages, which are
            // still there.
            Err(Errno::CONNRESET) if !was_reset => {
                was_reset = true;
                continue;
            }
            Err(Errno::CONNRESET) => Err(ReceiveError::Closed),
            Err(Errno::AGAIN) => Err(ReceiveError::WouldBlock),
            Err(source) => Err(ReceiveError::System { source }),
        };
    }
}

impl Channel {
    /// Creates a channel from the socket that `open` opens; no child of fork ever has it.
    pub(crate) fn open<E>(open: impl FnOnce() -> Result<OwnedFd, E>) -> Result<Self, E> {
        ForkGuard::open(open).map(Self::new)
    }

    fn new(socket: (ForkGuard, OwnedFd)) -> Self {
        Self { socket: Some(socket), owner_process: OwnerProcess::current() }
    }
}

impl platform::Channel<Linux> for Channel {
    const CARRIES_NETIPC: bool = true;

    fn arrived(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        send(self.as_fd(), bytes, fds)
    }

    fn accept_objects(&self) {
        // A kernel without the option has refused none.
        let _ = set_passrights(self.as_fd(), true);
    }

    fn receive(&self, buf: &mut [u8], max_fds: usize) -> Result<Received, ReceiveError> {
        receive(self.as_fd(), buf, max_fds)
    }

    /// At the limit of open files it gives up the spare descriptor.
    fn receive_or_leave(&self, buf: &mut [u8], max_fds: usize) -> Result<Received, ReceiveError> {
        let mut receive = || receive_or_leave(self.as_fd(), buf, max_fds);
        match receive() {
            Err(ReceiveError::Short { .. }) if spare::release() => receive(),
            received => received,
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some((kept, socket)) = self.socket.take() else { return };
        drop(kept);
        // In a child of fork it is the parent's.
        if !self.owner_process.is_owner_process() {
            return;
        }
        // Nothing can be queued from here on, so an empty socket cannot block.
        let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        // A refused client's HELLO.
        discard_plain(socket.as_fd());
        if is_empty(socket.as_fd()) {
            drop(socket);
        } else {
            reaper::reap(socket);
        }
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self::new((ForkGuard::descriptor(socket.as_fd()), socket))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // CWD is not a socket: every use would fail.
        self.socket.as_ref().map_or(rustix::fs::CWD, |(_, socket)| socket.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};

    use super::*;
    use crate::prelude::*;

    #[test]
    fn a_message_without_bytes_is_not_the_end() {
        let family = AddressFamily::UNIX;
        let (near, far) =
            socketpair(family, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
        assert!(is_empty(near.as_fd()), "nothing was sent");
        for fds in [&[][..], &[far.as_fd()]] {
            send(far.as_fd(), b"", fds).unwrap();
            assert!(!is_empty(near.as_fd()));
            rustix::net::recv(&near, &mut [0_u8; 1], RecvFlags::DONTWAIT).unwrap();
            assert!(is_empty(near.as_fd()));
        }
        let other = crate::doorbell::Eventfd::create().unwrap();
        for fds in [&[][..], &[other.as_fd(), other.as_fd()]] {
            for receive in [receive, receive_or_leave] {
                send(far.as_fd(), b"", fds).unwrap();
                let received = receive(near.as_fd(), &mut [0; 8], 4).unwrap();
                assert_eq!((received.len, received.count()), (0, fds.len()));
                let none = receive(near.as_fd(), &mut [0; 8], 4).unwrap_err();
                assert_eq!(none, ReceiveError::WouldBlock, "it was taken");
            }
        }
        send(far.as_fd(), b"", &[]).unwrap();
        drop(far);
        assert!(!is_empty(near.as_fd()), "before the end");
        for receive in [receive, receive_or_leave] {
            assert_eq!(receive(near.as_fd(), &mut [0; 8], 4).unwrap_err(), ReceiveError::Closed);
        }
        rustix::net::recv(&near, &mut [0_u8; 1], RecvFlags::DONTWAIT).unwrap();
        assert!(is_empty(near.as_fd()), "at the end");
        let (flags, none) = (SocketFlags::empty(), None);
        let unconnected = socket_with(family, SocketType::SEQPACKET, flags, none).unwrap();
        assert!(is_empty(unconnected.as_fd()), "it was never connected");
    }
}
