//! A service without shared memory: requests and responses over `SOCK_SEQPACKET`, and a server with epoll.
//!
//! Benchmarks compare the library's reactor with it. It does not speak the library's protocol.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, read, write};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

/// The longest message.
pub const MAX_MESSAGE: usize = 4096;
/// Maximum events per wait.
const EVENTS: usize = 256;
/// The token of the listening socket.
const LISTENER: u64 = u64::MAX;

/// A server that echoes each request.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    epoll: OwnedFd,
    clients: Vec<Option<OwnedFd>>,
}

/// One connection to a [`Server`].
#[derive(Debug)]
pub struct Client(OwnedFd);

impl Server {
    /// Listens at a path that does not exist yet.
    ///
    /// # Errors
    /// Those of its system calls; `EADDRINUSE` when the path exists.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = seqpacket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 4096)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self { listener, epoll, clients: Vec::new() })
    }

    /// Serves until `stops` returns true; checks it from time to time.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`.
    pub fn serve(&mut self, stops: impl Fn() -> bool) -> io::Result<()> {
        let slice = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let mut events = Vec::with_capacity(EVENTS);
        while !stops() {
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, Some(&slice)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    at => self.answer(usize::try_from(at).unwrap_or(usize::MAX)),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(client) = accept_with(&self.listener, flags) {
            let at = EventData::new_u64(self.clients.len() as u64);
            if epoll::add(&self.epoll, &client, at, EventFlags::IN).is_ok() {
                self.clients.push(Some(client));
            }
        }
    }

    /// Answers one request; the next wait reports further ones.
    fn answer(&mut self, at: usize) {
        let Some(slot) = self.clients.get_mut(at) else { return };
        let Some(client) = slot else { return };
        let mut message = [0; MAX_MESSAGE];
        let lives = match read(&*client, &mut message) {
            Ok(0) => false,
            Ok(len) => write(&*client, message.get(..len).unwrap_or_default()).is_ok(),
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        };
        if !lives {
            *slot = None;
        }
    }
}

impl Client {
    /// Connects to the server at this path.
    ///
    /// # Errors
    /// Those of its system calls; `ENOENT` and `ECONNREFUSED` when nobody listens there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = seqpacket(SocketFlags::CLOEXEC)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Sends a request, sleeps until the response arrives, and returns its length.
    ///
    /// # Errors
    /// Those of its system calls; [`io::ErrorKind::UnexpectedEof`] when the server is gone.
    pub fn call(&mut self, request: &[u8], response: &mut [u8]) -> io::Result<usize> {
        write(&self.0, request)?;
        loop {
            match read(&self.0, &mut *response) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn seqpacket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}
