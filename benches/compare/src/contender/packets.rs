//! Unix sockets that keep message boundaries: `SOCK_SEQPACKET` and `SOCK_DGRAM`, unix(7). Both ends block.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bellwire_cgroups::View;
use bellwire_floor::process::{pass, passed};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with, socketpair,
};
use zerocopy::IntoBytes;

use super::{
    Contender, ContenderInfo, Counters, Indexed, Server, duplicate_of, serve_each, serve_messages,
};
use crate::Outcome;
use crate::burst::Burst;
use crate::handler::Handler;
use crate::load::{Case, Load, SMALL, Work};
use crate::measure::Measure;

/// A socket and a thread for each connection.
pub(super) struct Packets<K>(PhantomData<K>);

/// A kind of socket. Clients connect by `SOCK_SEQPACKET`, for every kind.
pub(super) trait Kind: 'static {
    const NAME: &'static str;
    /// In a few words.
    const SETTINGS: &'static str;

    fn refuses(load: &Load) -> Option<&'static str>;

    /// The server's end, of a connection that was accepted.
    fn accepted(connection: OwnedFd) -> Outcome<OwnedFd>;

    /// The client's end, of its connection.
    fn connected(connection: OwnedFd) -> Outcome<OwnedFd>;
}

/// The connection itself.
pub(super) struct Seqpacket;

impl Kind for Seqpacket {
    const NAME: &'static str = "seqpacket";
    const SETTINGS: &'static str = "blocking send and recv, a thread for each connection, default buffers; a snapshot in \
                                    datagrams of 64 KiB; many sessions: one thread, which waits with epoll";

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Grow { .. } => Some(TOO_LONG),
            Work::LookUp { .. } => duplicate_of(load),
            _ => (load.longest() > LONGEST).then_some(TOO_LONG),
        }
    }

    fn accepted(connection: OwnedFd) -> Outcome<OwnedFd> {
        Ok(connection)
    }

    fn connected(connection: OwnedFd) -> Outcome<OwnedFd> {
        Ok(connection)
    }
}

/// A pair of `SOCK_DGRAM` sockets, one of which the server passes over the connection: `net.unix.max_dgram_qlen`, 10 by
/// default, does not limit what waits in a socket whose peer is connected to it.
pub(super) struct Datagram;

impl Kind for Datagram {
    const NAME: &'static str = "datagram";
    const SETTINGS: &'static str =
        "blocking send and recv, a socket pair for each reader, default buffers";

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Events { size } if size <= LONGEST => None,
            Work::Events { .. } => Some(TOO_LONG),
            _ => Some("carries it as seqpacket does, but no end learns that the other has closed"),
        }
    }

    fn accepted(connection: OwnedFd) -> Outcome<OwnedFd> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        pass(connection.as_fd(), &[theirs.as_fd()])?;
        Ok(ours)
    }

    fn connected(connection: OwnedFd) -> Outcome<OwnedFd> {
        Ok(passed(connection.as_fd())?.pop().ok_or("no socket came")?)
    }
}

/// The longest datagram: the kernel's default send buffer holds three of them.
const LONGEST: usize = 64 << 10;
const TOO_LONG: &str = "a datagram has no more bytes than the socket's send buffer";

/// The bytes that are published, and their generation.
type Published = Arc<Mutex<(u64, Arc<[u8]>)>>;

/// The listening thread ends with its process.
struct Listening {
    published: Published,
    readers: Readers,
}

/// The connections of those who take events.
type Readers = Arc<Mutex<Vec<OwnedFd>>>;

impl<K: Kind> Contender for Packets<K> {
    const NAME: &'static str = K::NAME;

    fn about() -> ContenderInfo {
        ContenderInfo::of_linux(K::SETTINGS)
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        K::refuses(load)
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        let socket = socket()?;
        bind(&socket, &SocketAddrUnix::new(path(case))?)?;
        listen(&socket, 64)?;
        let (published, readers) = (Published::default(), Readers::default());
        let connected = Arc::clone(&readers);
        let (load, publications) = (case.load, Arc::clone(&published));
        let serve = move |socket: OwnedFd| match load.work {
            Work::Refresh { .. } => Ok(serve_snapshots(&socket, &publications)?),
            // Until the client has closed its end.
            _ => {
                let receive = |buffer: &mut [u8]| receive(&socket, buffer);
                Ok(serve_messages(&load, handler, receive, |answer| transmit(&socket, answer))?)
            }
        };
        let accept = move || {
            if let Work::Sessions { .. } = load.work {
                answer_all(&socket, handler)?;
            }
            loop {
                let socket = K::accepted(accept_with(&socket, SocketFlags::CLOEXEC)?)?;
                let Work::Events { .. } = load.work else { return Ok(socket) };
                connected.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
            }
        };
        serve_each(K::NAME, accept, serve)?;
        Ok(Listening { published, readers })
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        let path = path(case);
        match case.load.work {
            Work::Refresh { .. } => measure.run(|| Reader::connect::<K>(&path)),
            _ => measure.run(|| Connection::connect::<K>(&path)),
        }
    }
}

impl Server for Listening {
    fn publish(&mut self, snapshot: &[u8]) -> Outcome<()> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        *published = (published.0 + 1, snapshot.into());
        Ok(())
    }

    fn send_burst(&mut self, mut burst: Burst) -> Outcome<()> {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = burst.next() {
            readers.iter().try_for_each(|reader| transmit(reader, event))?;
        }
        Ok(())
    }
}

/// Answers on all connections from one thread, which waits for them with epoll.
fn answer_all(listener: &OwnedFd, handler: Handler) -> Result<(), Errno> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(u64::MAX), EventFlags::IN)?;
    let mut connections: Vec<Option<OwnedFd>> = Vec::new();
    let (mut events, mut buffer) = (Vec::with_capacity(256), [0; SMALL]);
    loop {
        retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut events), None))?;
        for event in events.drain(..) {
            let Some(slot) =
                usize::try_from(event.data.u64()).ok().and_then(|at| connections.get_mut(at))
            else {
                let connection = accept_with(listener, SocketFlags::CLOEXEC)?;
                let at = EventData::new_u64(connections.len() as u64);
                epoll::add(&epoll, &connection, at, EventFlags::IN)?;
                connections.push(Some(connection));
                continue;
            };
            let Some(connection) = slot else { continue };
            match receive(connection, &mut buffer) {
                Ok(len @ 1..) => {
                    let message = buffer.get_mut(..len).unwrap_or_default();
                    handler.answer(message);
                    transmit(connection, message)?;
                }
                _ => *slot = None,
            }
        }
    }
}

/// A request is the generation that the client has. The answer is the newest and its length, then its bytes; the length
/// is 0 where it is the same.
fn serve_snapshots(socket: &OwnedFd, published: &Published) -> Result<(), Errno> {
    let mut held = 0_u64;
    while receive(socket, held.as_mut_bytes())? == size_of_val(&held) {
        let (generation, bytes) = published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_new = generation != held;
        let bytes = if is_new { &bytes[..] } else { &[] };
        transmit(socket, [generation, bytes.len() as u64].as_bytes())?;
        for part in bytes.chunks(LONGEST) {
            transmit(socket, part)?;
        }
    }
    Ok(())
}

/// One connection.
struct Connection {
    socket: OwnedFd,
    calls: u64,
}

impl Connection {
    fn connect<K: Kind>(path: &PathBuf) -> Outcome<Self> {
        let connection = socket()?;
        retry_on_intr(|| connect(&connection, &SocketAddrUnix::new(path)?))?;
        Ok(Self { socket: K::connected(connection)?, calls: 0 })
    }
}

impl super::Client for Connection {
    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        self.calls += 1;
        Ok(transmit(&self.socket, request)?)
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        self.calls += 1;
        Ok(receive(&self.socket, answer)?)
    }

    #[inline]
    fn event(&mut self, event: &mut [u8]) -> Outcome<usize> {
        self.reply(event)
    }

    fn counters(&mut self) -> Counters {
        Counters::of_system_calls(self.calls)
    }
}

/// A connection that copies snapshots, and validates them as Bellwire's reader does.
struct Reader {
    connection: Connection,
    generation: u64,
    bytes: Vec<u8>,
    index: Indexed,
}

impl Reader {
    fn connect<K: Kind>(path: &PathBuf) -> Outcome<Self> {
        let connection = Connection::connect::<K>(path)?;
        Ok(Self { connection, generation: 0, bytes: Vec::new(), index: Indexed::default() })
    }
}

impl super::Client for Reader {
    #[inline]
    fn refresh(&mut self) -> Outcome<bool> {
        let socket = &self.connection.socket;
        transmit(socket, self.generation.as_bytes())?;
        let mut header = [0_u64; 2];
        receive(socket, header.as_mut_bytes())?;
        let [generation, len] = header;
        if len == 0 {
            return Ok(false);
        }
        self.bytes.resize(usize::try_from(len)?, 0);
        for part in self.bytes.chunks_mut(LONGEST) {
            if receive(socket, part)? != part.len() {
                return Err("a snapshot that ends too soon".into());
            }
        }
        self.index.update(&self.bytes)?;
        self.generation = generation;
        Ok(true)
    }

    fn snapshot(&self) -> Outcome<View<'_>> {
        self.index.view()
    }
}

fn path(case: &Case) -> PathBuf {
    case.file("packets.sock")
}

fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

#[inline]
fn transmit(socket: &OwnedFd, message: &[u8]) -> Result<(), Errno> {
    retry_on_intr(|| send(socket, message, SendFlags::NOSIGNAL)).map(|_| ())
}

#[inline]
fn receive(socket: &OwnedFd, into: &mut [u8]) -> Result<usize, Errno> {
    retry_on_intr(|| recv(socket, &mut *into, RecvFlags::empty())).map(|(_, len)| len)
}
