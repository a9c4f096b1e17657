//! The socket floor: datagrams over a `SOCK_SEQPACKET` pair, both ends asleep each turn.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use super::pingpong::{Link, PingPong, answer};
use super::private::Private;
use super::process::{Peer, RoleResult, spawn};
use super::{Cpus, Error, Result};

/// The peer's role.
pub const ROLE: &str = "floor-seqpacket";

/// The largest payload: a datagram must fit the default send buffer.
pub const LIMIT: usize = 64 << 10;

/// The socket floor; [`PingPong::round_trips`] measures it.
pub type Floor = PingPong<End>;

impl Floor {
    /// `size` bytes each way, at least 1; on one CPU ([`Cpus::same`]) or across two.
    pub fn start(cpus: Cpus, size: usize) -> Result<Floor> {
        if !(1..=LIMIT).contains(&size) {
            return Err(Error::Size { size, limit: LIMIT });
        }
        let (mine, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(Error::system("create a socket pair"))?;
        let child = spawn(ROLE, &[cpus.peer], &[size.to_string()], &[theirs.as_fd()])?;
        // From here on the peer alone holds its end, so that its death ends a `recv` here.
        drop(theirs);
        Ok(PingPong::new(child, End::new(mine, size)))
    }
}

/// The other process.
pub fn peer(peer: &mut Peer) -> RoleResult {
    let end = End::new(peer.descriptor()?, peer.number(0)?);
    Ok(answer(peer, end)?)
}

/// One end.
pub struct End {
    socket: OwnedFd,
    outgoing: Private,
    incoming: Private,
}

impl End {
    fn new(socket: OwnedFd, size: usize) -> End {
        End { socket, outgoing: Private::new(size), incoming: Private::new(size) }
    }
}

impl Link for End {
    const WARM: u64 = 10;

    #[inline]
    fn send(&mut self) -> Result<()> {
        retry_on_intr(|| send(&self.socket, self.outgoing.bytes(), SendFlags::NOSIGNAL))
            .map_err(|_| Error::PeerGone { role: ROLE })?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        let into = self.incoming.bytes_mut();
        match retry_on_intr(|| recv(&self.socket, &mut *into, RecvFlags::empty())) {
            Ok((_, len)) if len > 0 => Ok(()),
            Ok(_) | Err(_) => Err(Error::PeerGone { role: ROLE }),
        }
    }

    fn buffers(&mut self) -> (&mut Private, &Private) {
        (&mut self.outgoing, &self.incoming)
    }
}
