//! Unix sockets that keep message boundaries: `SOCK_SEQPACKET`, unix(7). Both ends block.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bellwire::Snapshot;
use bellwire_cgroups::{CgroupsSnapshot, Index, View};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with,
};

use super::{About, Contender, Counters, Server};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::{Load, Place, Work};
use crate::measure::Measure;

/// A socket and a thread for each connection.
pub(super) struct Seqpacket;

/// The longest datagram: the kernel's default send buffer holds three of them.
const LONGEST: usize = 64 << 10;

/// The bytes that are published, and their generation.
type Published = Arc<Mutex<(u64, Arc<[u8]>)>>;

/// The listening thread ends with its process.
pub(super) struct Listening {
    published: Published,
}

impl Contender for Seqpacket {
    const NAME: &'static str = "seqpacket";
    type Server = Listening;

    fn about() -> About {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        About {
            version: format!("Linux {release}"),
            settings: "blocking send and recv, a thread for each connection, default buffers; a snapshot in \
                       datagrams of 64 KiB"
                .to_owned(),
        }
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Grow { .. } => Some("a datagram has no more bytes than the socket's send buffer"),
            Work::LookUp { .. } => Some("finds things in the same index as bellwire"),
            _ => (load.longest() > LONGEST)
                .then_some("a datagram has no more bytes than the socket's send buffer"),
        }
    }

    fn serve(place: &Place, load: &Load, handler: Handler) -> Outcome<Listening> {
        let socket = socket()?;
        bind(&socket, &SocketAddrUnix::new(path(place))?)?;
        listen(&socket, 64)?;
        let published = Published::default();
        let (load, shelf) = (*load, Arc::clone(&published));
        thread::Builder::new().name("seqpacket".to_owned()).spawn(move || {
            while let Ok(socket) = accept_with(&socket, SocketFlags::CLOEXEC) {
                let shelf = Arc::clone(&shelf);
                let serve = move || match load.work {
                    Work::Refresh { .. } => serve_snapshots(&socket, &shelf),
                    Work::Stream { .. } | Work::OneWay { .. } => take(&socket, handler),
                    _ => answer(&socket, handler, load.longest()),
                };
                // Without a thread the socket is closed, and the client reports that.
                let _ = thread::Builder::new().spawn(serve);
            }
        })?;
        Ok(Listening { published })
    }

    fn measure(place: &Place, load: &Load, measure: Measure<'_>) -> Outcome<()> {
        let path = path(place);
        match load.work {
            Work::Refresh { .. } => measure.run(|| Reader::connect(&path)),
            _ => measure.run(|| Connection::connect(&path)),
        }
    }
}

impl Server for Listening {
    fn publish(&mut self, snapshot: &[u8]) -> Outcome<()> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        *published = (published.0 + 1, snapshot.into());
        Ok(())
    }
}

/// Until the client has closed its end.
fn answer(socket: &OwnedFd, handler: Handler, longest: usize) -> Result<(), Errno> {
    let mut buffer = vec![0; longest];
    loop {
        let len = receive(socket, &mut buffer)?;
        let Some(message) = buffer.get_mut(..len).filter(|message| !message.is_empty()) else {
            return Ok(());
        };
        handler.answer(message);
        transmit(socket, message)?;
    }
}

fn take(socket: &OwnedFd, handler: Handler) -> Result<(), Errno> {
    let mut buffer = vec![0; LONGEST];
    loop {
        let len = receive(socket, &mut buffer)?;
        let Some(message) = buffer.get(..len).filter(|message| !message.is_empty()) else {
            return Ok(());
        };
        handler.take(message);
    }
}

/// A request is the generation that the client has. The answer is the newest and its length, then its bytes; the length
/// is 0 where it is the same.
fn serve_snapshots(socket: &OwnedFd, published: &Published) -> Result<(), Errno> {
    let mut held = [0; 8];
    while receive(socket, &mut held)? == held.len() {
        let (generation, bytes) = published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_new = generation != u64::from_le_bytes(held);
        let bytes = if is_new { &bytes[..] } else { &[] };
        transmit(socket, &header(generation, bytes.len()))?;
        for part in bytes.chunks(LONGEST) {
            transmit(socket, part)?;
        }
    }
    Ok(())
}

fn header(generation: u64, len: usize) -> [u8; 16] {
    let mut header = [0; 16];
    let (first, second) = header.split_at_mut(8);
    first.copy_from_slice(&generation.to_le_bytes());
    second.copy_from_slice(&(len as u64).to_le_bytes());
    header
}

/// One connection.
struct Connection {
    socket: OwnedFd,
    calls: u64,
}

impl Connection {
    fn connect(path: &PathBuf) -> Outcome<Self> {
        let socket = socket()?;
        retry_on_intr(|| connect(&socket, &SocketAddrUnix::new(path)?))?;
        Ok(Self { socket, calls: 0 })
    }
}

impl super::Client for Connection {
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        self.submit(request)?;
        self.reply(answer)
    }

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
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        self.submit(message)
    }

    fn counters(&mut self) -> Counters {
        Counters { system_calls: Some(self.calls), ..Counters::default() }
    }
}

/// A connection that copies snapshots, and validates them as Bellwire's reader does.
struct Reader {
    connection: Connection,
    generation: u64,
    bytes: Vec<u8>,
    index: Option<Index>,
}

impl Reader {
    fn connect(path: &PathBuf) -> Outcome<Self> {
        let connection = Connection::connect(path)?;
        Ok(Self { connection, generation: 0, bytes: Vec::new(), index: None })
    }
}

impl super::Client for Reader {
    #[inline]
    fn refresh(&mut self) -> Outcome<bool> {
        let socket = &self.connection.socket;
        transmit(socket, &self.generation.to_le_bytes())?;
        let mut header = [0; 16];
        receive(socket, &mut header)?;
        let [generation, len] = [0, 8].map(|at| header.get(at..at + 8).unwrap_or_default());
        let len = usize::try_from(u64::from_le_bytes(len.try_into()?))?;
        if len == 0 {
            return Ok(false);
        }
        self.bytes.resize(len, 0);
        for part in self.bytes.chunks_mut(LONGEST) {
            if receive(socket, part)? != part.len() {
                return Err("a snapshot that ends too soon".into());
            }
        }
        match &mut self.index {
            Some(index) => CgroupsSnapshot::update(index, &self.bytes)?,
            None => self.index = Some(CgroupsSnapshot::validate(&self.bytes)?),
        }
        self.generation = u64::from_le_bytes(generation.try_into()?);
        Ok(true)
    }

    fn snapshot(&self) -> Outcome<View<'_>> {
        Ok(self.index.as_ref().ok_or("nothing was published")?.view())
    }
}

fn path(place: &Place) -> PathBuf {
    place.file("seqpacket.sock")
}

fn socket() -> Result<OwnedFd, Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok(socket)
}

#[inline]
fn transmit(socket: &OwnedFd, message: &[u8]) -> Result<(), Errno> {
    retry_on_intr(|| send(socket, message, SendFlags::NOSIGNAL)).map(|_| ())
}

#[inline]
fn receive(socket: &OwnedFd, into: &mut [u8]) -> Result<usize, Errno> {
    retry_on_intr(|| recv(socket, &mut *into, RecvFlags::empty())).map(|(_, len)| len)
}
