//! A client that implements the wire protocol itself, and can send arbitrary messages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use bellwire_core::lane::Epoch;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{
    Doorbell, Header, Hello, Join, Kind, MAX_CONTROL, Message, PAGE_SIZE, PROTOCOL, PageHeader,
    Role, Status, record_len,
};
use bellwire_core::{Geometry, Limits, ServiceName, Word};
use bellwire_memfd::pass::{self, ReceiveError};
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zerocopy::IntoBytes;

/// The seals of a page or a lane.
pub const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
/// The seals of an attachment.
pub const ATTACHMENT_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// The server to attack, and the parameters of this client's HELLO.
#[derive(Clone, Debug)]
pub struct Target {
    run_dir: PathBuf,
    /// The size of the lane that sessions open with.
    pub lane: Geometry,
    doorbell: Doorbell,
}

/// An open session.
#[derive(Debug)]
pub struct Session {
    /// The control socket.
    pub socket: OwnedFd,
    /// The descriptors of the server's page, lane and board.
    pub server_fds: Vec<OwnedFd>,
    page: OwnRegion,
    lane: OwnRegion,
    peer: PeerRegion,
    /// The position of the next record.
    pub tail: u64,
    /// The id of the last request.
    pub id: u64,
    base: u64,
    epoch: Epoch,
}

impl Target {
    /// The server whose endpoints are in `run_dir`.
    pub fn new(run_dir: PathBuf) -> Self {
        Self { run_dir, lane: Geometry::DEFAULT, doorbell: Doorbell::Futex }
    }

    /// The same, with another initial lane size.
    #[must_use]
    pub fn with_lane(&self, size: u64) -> Self {
        Self { lane: Geometry::new(size).unwrap_or(self.lane), ..self.clone() }
    }

    /// The same, with another doorbell of the client.
    #[must_use]
    pub fn with_doorbell(&self, doorbell: Doorbell) -> Self {
        Self { doorbell, ..self.clone() }
    }

    /// Connects, and sends nothing.
    pub fn connect(&self, service: &str) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
        let socket = socket.ok().or_else(pause)?;
        let path = self.run_dir.join(service).with_extension("sock");
        let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(&path).ok()?);
        connected.map_or_else(|_| pause(), |()| Some(socket))
    }

    /// Connects, and sends HELLO.
    pub fn hello(&self, name: &str) -> Option<OwnedFd> {
        let socket = self.connect(name)?;
        let hello = Hello {
            versions: PROTOCOL,
            features: 0,
            service: service(name)?,
            service_version: 1,
            token: [0; 16],
            lane: self.lane,
            least_lane: Geometry::SMALLEST,
            limits: Limits::default(),
            doorbell: self.doorbell,
            rings_eventfd: false,
            schema: 0,
        };
        send(&socket, &Message::Hello(hello), &[]).then_some(socket)
    }

    /// Goes through the handshake up to WELCOME. Returns the socket, the session's number and the descriptors that came with
    /// WELCOME.
    pub fn hello_to_welcome(&self, service: &str) -> Option<(OwnedFd, u64, Vec<OwnedFd>)> {
        let socket = self.hello(service)?;
        match await_message(&socket) {
            Ok((Message::Welcome(welcome), fds)) => Some((socket, welcome.session, fds)),
            _ => pause(),
        }
    }

    /// The constant part of a page, as a well-behaved client writes it.
    pub fn page_header(&self, name: &str, session: u64) -> Option<PageHeader> {
        let lane = u32::try_from(self.lane.size()).ok()?;
        Some(PageHeader::new(Role::Client, session, std::process::id(), lane, 1, service(name)?))
    }

    /// Opens a session; `None`, after a pause, if the server refuses or a system call fails.
    pub fn open(&self, name: &str) -> Option<Session> {
        let (socket, session, server_fds) = self.hello_to_welcome(name)?;
        let header = self.page_header(name, session)?;
        let start = |page: &OwnRegion| {
            page.write(0, header.as_bytes());
            for (word, value) in [
                (Word::WantData, u64::MAX),
                (Word::WantSpace, u64::MAX),
                (Word::State, 1),
                (Word::Doorbell, self.doorbell as u64),
            ] {
                page.store_u64(word.offset(), value, Ordering::Relaxed);
            }
        };
        let (page, page_fd) = OwnRegion::create("hostile-page", PAGE_SIZE, start).ok()?;
        let size = usize::try_from(self.lane.size()).ok()?;
        let (lane, lane_fd) = OwnRegion::create("hostile-lane", size, |_| {}).ok()?;
        let join = Message::Join(Join { session });
        if !send(&socket, &join, &[page_fd.as_fd(), lane_fd.as_fd()]) {
            return pause();
        }
        let Ok((Message::Ready(_), _)) = await_message(&socket) else { return pause() };
        let peer = server_fds.first()?.try_clone().ok()?;
        let peer = PeerRegion::verify_and_map(peer, PAGE_SIZE).ok()?;
        let (tail, id, base, epoch) = (0, 0, 0, Epoch::first(self.lane));
        Some(Session { socket, server_fds, page, lane, peer, tail, id, base, epoch })
    }

    /// Opens `count` sessions, or as many as the server admits.
    pub fn sessions(&self, service: &str, count: usize) -> Vec<Session> {
        (0..count).filter_map(|_| self.open(service)).collect()
    }

    /// Reopens the sessions that the server has closed.
    pub fn reopen(&self, service: &str, sessions: &mut Vec<Session>) {
        let before = sessions.len();
        sessions.retain(|session| !session.is_closed());
        sessions.extend(self.sessions(service, before - sessions.len()));
    }

    /// Has each of `count` sessions act in turn, reopens those that the server has closed, rests, and begins again.
    pub fn repeat(
        &self,
        service: &str,
        count: usize,
        rest: fn(),
        mut act: impl FnMut(&mut Session),
    ) -> ! {
        let mut sessions = self.sessions(service, count);
        loop {
            sessions.iter_mut().for_each(&mut act);
            self.reopen(service, &mut sessions);
            rest();
        }
    }
}

impl Session {
    /// Appends a record, with a pad before it if the record would wrap around; false if there is no room.
    pub fn put(&mut self, header: Header, payload: &[u8]) -> bool {
        let size = self.epoch.size.size();
        let need = 16 + (payload.len() as u64).next_multiple_of(16);
        let left = size - (self.tail - self.base) % size;
        let pad = if need > left { left } else { 0 };
        let head = self.word(Word::Head).max(self.base);
        if self.tail + pad + need + 32 > head + size {
            return false;
        }
        if pad > 0 {
            self.write(Header::new(Kind::Pad, Status::Ok, 0, saturate(pad - 16)), &[]);
            self.tail += pad - 16;
        }
        self.write(header, payload);
        true
    }

    /// Writes a record at the tail, without a check for room.
    pub fn write(&mut self, header: Header, payload: &[u8]) {
        let at = usize::try_from((self.tail - self.base) % self.epoch.size.size()).unwrap_or(0);
        self.lane.write(at, &header.to_bytes());
        self.lane.write(at + 16, payload);
        self.tail += record_len(saturate(payload.len() as u64));
    }

    /// Appends the next request; false if there is no room.
    pub fn request(&mut self, payload: &[u8]) -> bool {
        let len = saturate(payload.len() as u64);
        let header = Header::new(Kind::Request, Status::Ok, self.id + 1, len);
        let fits = self.put(header, payload);
        self.id += u64::from(fits);
        fits
    }

    /// Publishes the records that were written, and rings.
    pub fn publish(&self) {
        self.set(Word::Tail, self.tail);
        send(&self.socket, &Message::Ring, &[]);
    }

    /// Consumes all answers: stores Head behind them.
    pub fn consume_answers(&self) {
        self.set(Word::Head, self.word(Word::Tail));
    }

    /// Writes bytes anywhere in the lane.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        self.lane.write(at, bytes);
    }

    /// Consumes all answers and drains the socket.
    pub fn consume(&self) {
        self.consume_answers();
        self.drain_socket();
    }

    /// Stores a word of the client's own page.
    pub fn set(&self, word: Word, value: u64) {
        self.page.store_u64(word.offset(), value, Ordering::Release);
    }

    /// Loads a word of the server's page.
    pub fn word(&self, word: Word) -> u64 {
        self.peer.load_u64(word.offset(), Ordering::Acquire)
    }

    /// Whether the server has closed the session.
    pub fn is_closed(&self) -> bool {
        self.word(Word::State) & 0xffff_ffff == 3
    }

    /// Drains the socket, and returns the descriptors that the server passed.
    pub fn drain_socket(&self) -> Vec<OwnedFd> {
        std::iter::from_fn(|| receive(&self.socket).ok()).flat_map(|(_, fds)| fds).collect()
    }

    /// The size of the client's lane in its current epoch.
    pub fn lane_size(&self) -> u64 {
        self.epoch.size.size()
    }

    /// Switches to a new epoch of that size, if the server has reached the current one.
    pub fn switch(&mut self, size: u64) -> Option<()> {
        if self.word(Word::Head) < self.base {
            return None;
        }
        let next = self.epoch.next(Geometry::new(size).ok()?);
        let created = OwnRegion::create("hostile-lane", usize::try_from(size).ok()?, |_| {});
        let (lane, fd) = created.ok()?;
        let before = self.tail;
        if !self.put(Header::new(Kind::Switch, Status::Ok, next.to_wire(), 0), &[]) {
            return None;
        }
        if !send(&self.socket, &Message::Lane(next), &[fd.as_fd()]) {
            self.tail = before;
            return None;
        }
        (self.base, self.epoch, self.lane) = (self.tail, next, lane);
        Some(())
    }
}

/// Sends a message whose header has the right descriptor count.
pub fn send(socket: &OwnedFd, message: &Message, fds: &[BorrowedFd<'_>]) -> bool {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(u16::try_from(fds.len()).unwrap_or(0), &mut bytes);
    bytes.get(..len).is_some_and(|bytes| pass::send(socket.as_fd(), bytes, fds).is_ok())
}

/// Creates a memfd of `size` bytes that begins with `bytes`. The pages of a sparse one are allocated beyond its end.
///
/// # Errors
/// A system call fails.
pub fn memfd(size: u64, bytes: &[u8], seals: SealFlags, sparse: bool) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("hostile", flags)?;
    rustix::fs::ftruncate(&fd, size)?;
    let (mode, from) =
        if sparse { (FallocateFlags::KEEP_SIZE, size) } else { (FallocateFlags::empty(), 0) };
    rustix::fs::fallocate(&fd, mode, from, size)?;
    rustix::io::pwrite(&fd, bytes, 0)?;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}

/// Sleeps for a millisecond.
pub fn rest() {
    thread::sleep(Duration::from_millis(1));
}

/// Sleeps for a millisecond, and returns `None`.
pub fn pause<T>() -> Option<T> {
    rest();
    None
}

/// Waits up to two seconds for the next message.
fn await_message(socket: &OwnedFd) -> Result<(Message, Vec<OwnedFd>), ReceiveError> {
    let timeout = Timespec { tv_sec: 2, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
    receive(socket)
}

fn receive(socket: &OwnedFd) -> Result<(Message, Vec<OwnedFd>), ReceiveError> {
    let mut bytes = [0; MAX_CONTROL];
    let received = pass::receive(socket.as_fd(), &mut bytes, 16)?;
    let count = received.count();
    let message = Message::parse(bytes.get(..received.len).unwrap_or_default(), count);
    let message = message.map_err(|_| ReceiveError::Closed)?;
    Ok((message, received.into_objects().collect()))
}

fn service(name: &str) -> Option<ServiceName> {
    name.parse().ok()
}

fn saturate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
