//! A client of netipc, written from its public documents alone: it shares no line with the crate `bellwire-netipc`.

#[path = "netipc_wire.rs"]
mod netipc_wire;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

pub(crate) use self::netipc_wire::*;

/// A test that waits for longer hangs.
const HANGS: Duration = Duration::from_secs(60);

/// One end of a connection.
pub(crate) struct Peer {
    socket: OwnedFd,
    packet: usize,
    next: u64,
}

/// What a server answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) flags: u16,
    pub(crate) code: u16,
    pub(crate) status: u16,
    pub(crate) items: u32,
    pub(crate) id: u64,
    pub(crate) payload: Vec<u8>,
}

/// The items of a table.
pub(crate) fn items(table: &[u8], count: usize) -> Vec<&[u8]> {
    let area = &table[count * 8..];
    let entry = |nth: usize| {
        let (offset, len) = (u32_at(table, nth * 8) as usize, u32_at(table, nth * 8 + 4) as usize);
        &area[offset..offset + len]
    };
    (0..count).map(entry).collect()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The text whose offset and length are at `at`.
pub(crate) fn text(item: &[u8], at: usize) -> &str {
    let (offset, len) = (u32_at(item, at) as usize, u32_at(item, at + 4) as usize);
    assert_eq!(item[offset + len], 0, "a NUL behind a text");
    std::str::from_utf8(&item[offset..offset + len]).unwrap()
}

impl Peer {
    /// Connects, and says nothing.
    pub(crate) fn connect(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(HANGS)).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self { socket, packet: 65_536, next: 1 }
    }

    /// Opens a session.
    pub(crate) fn open(path: &Path, hello: Hello) -> Self {
        let mut peer = Self::connect(path);
        let ack = peer.greet(hello);
        assert_eq!(ack.status, 0, "the server refused: {ack:?}");
        assert_eq!((u32_at(&ack.payload, 4), u32_at(&ack.payload, 12)), (1, 1), "the profile");
        peer.packet = u32_at(&ack.payload, 32) as usize;
        peer
    }

    /// Sends a HELLO, and returns the answer.
    pub(crate) fn greet(&mut self, hello: Hello) -> Answer {
        self.send(&hello.datagram()).unwrap();
        let ack = self.receive().expect("the server went away");
        assert_eq!((ack.flags, ack.code, ack.id, ack.payload.len()), (0, 2, 7, 48));
        ack
    }

    pub(crate) fn send(&self, datagram: &[u8]) -> rustix::io::Result<usize> {
        rustix::net::send(&self.socket, datagram, SendFlags::NOSIGNAL)
    }

    /// Sends what fits without waiting.
    pub(crate) fn try_send(&self, datagram: &[u8]) -> rustix::io::Result<usize> {
        rustix::net::send(&self.socket, datagram, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn datagram(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 65_537];
        let received = rustix::net::recv(self.socket.as_fd(), &mut bytes, RecvFlags::empty());
        let len = received.map_or_else(
            |error| {
                assert_ne!(error, rustix::io::Errno::AGAIN, "nothing came");
                0
            },
            |(len, _)| len,
        );
        bytes.truncate(len);
        (len > 0).then_some(bytes)
    }

    /// Returns whether the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.datagram().is_none()
    }

    /// Returns the next message, put together; `None` at the end.
    pub(crate) fn receive(&self) -> Option<Answer> {
        let first = self.datagram()?;
        assert!(first.len() <= self.packet && &first[..4] == b"CPIN", "{first:?}");
        assert_eq!((u16_at(&first, 4), u16_at(&first, 6)), (1, 32));
        assert!(matches!(u16_at(&first, 8), 2 | 3), "a kind that a server sends");
        let (len, id) = (u32_at(&first, 16) as usize, u64_at(&first, 24));
        let mut payload = first[32..].to_vec();
        let room = self.packet - 32;
        let count = len.div_ceil(room).max(1);
        for index in 1..count {
            let next = self.datagram()?;
            let bytes = room.min(len - payload.len());
            let expected = chunk(id, len + 32, index as u32, count as u32, bytes);
            assert_eq!((&next[..32], next.len()), (&expected[..], 32 + bytes), "chunk {index}");
            payload.extend_from_slice(&next[32..]);
        }
        assert_eq!(payload.len(), len);
        Some(Answer {
            flags: u16_at(&first, 10),
            code: u16_at(&first, 12),
            status: u16_at(&first, 14),
            items: u32_at(&first, 20),
            id,
            payload,
        })
    }

    /// Sends a request, in chunks where it does not fit a datagram.
    pub(crate) fn ask(&mut self, code: u16, items: u32, payload: &[u8]) -> u64 {
        let id = self.next;
        self.next += 1;
        let flags = u16::from(items > 1);
        let room = self.packet - 32;
        let count = payload.len().div_ceil(room).max(1) as u32;
        let mut pieces = payload.chunks(room);
        let first = pieces.next().unwrap_or_default();
        let head = header(1, flags, code, payload.len(), items, id);
        self.send(&[&head[..], first].concat()).unwrap();
        for (piece, index) in pieces.zip(1..) {
            let head = chunk(id, payload.len() + 32, index, count, piece.len());
            self.send(&[&head[..], piece].concat()).unwrap();
        }
        id
    }

    /// Asks, and returns the answer.
    pub(crate) fn call(&mut self, code: u16, items: u32, payload: &[u8]) -> Answer {
        let id = self.ask(code, items, payload);
        let answer = self.receive().expect("the server went away");
        assert_eq!((answer.id, answer.code), (id, code));
        answer
    }
}
