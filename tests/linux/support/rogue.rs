//! A peer that speaks the protocol by hand, and sends arbitrary messages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bellwire::RunDir;
use bellwire_core::lane::{Epoch, Lanes};
use bellwire_core::sync::{AtomicBool, Ordering};
use bellwire_core::wire::{
    BOARD_SIZE, BoardHeader, BoardState, BoardWord, CloseReason, Doorbell, Header, Hello, Join,
    Kind, LIFE_OFFSET, MAX_CONTROL, Message, PAGE_SIZE, PROTOCOL, PageHeader, PageState, Ready,
    RefuseCode, Role, Status, Welcome, record_len,
};
use bellwire_core::{
    Bell, Geometry, Limits, OwnMemory, Park, PeerMemory, Port, ServiceName, Woken, Word,
};
use bellwire_memfd::doorbell::Eventfd;
use bellwire_memfd::link::{Link, OwnEnd, Parts, PeerEnd};
use bellwire_memfd::pass::{self, Channel, ReceiveError, SendError};
use bellwire_memfd::peer::Process;
use bellwire_memfd::prelude::*;
use bellwire_memfd::region::{OwnRegion, PeerRegion};
use bellwire_memfd::{endpoint, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zerocopy::IntoBytes;

use super::guard::test_deadline;

const MAX_FDS: usize = 16;

/// One end of a control socket.
pub(crate) struct Rogue {
    pub(crate) socket: OwnedFd,
    pub(crate) service: ServiceName,
    /// The client's parameters; for a rogue client, its own.
    pub(crate) hello: Hello,
}

/// A listening socket that no lock protects.
pub(crate) struct RogueListener {
    socket: OwnedFd,
    service: ServiceName,
    /// Whether its sessions' life words say that it lives, whatever it does.
    pub(crate) shows_life: bool,
}

/// An open session, with the memory of both ends.
pub(crate) struct RogueSession {
    pub(crate) link: Link,
    /// The page that tells of snapshots; a server's only.
    pub(crate) board: Option<OwnRegion>,
    /// The position of the next record.
    pub(crate) tail: u64,
}

pub(crate) fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

/// The HELLO of an honest client.
pub(crate) fn hello(service: ServiceName) -> Hello {
    Hello {
        versions: PROTOCOL,
        features: 0,
        service,
        service_version: 1,
        token: [0; 16],
        lane: Geometry::DEFAULT,
        least_lane: Geometry::DEFAULT,
        limits: Limits::default(),
        doorbell: Doorbell::Futex,
        rings_eventfd: true,
        schema: 0,
    }
}

/// The WELCOME of an honest server.
pub(crate) fn welcome(session: u64) -> Welcome {
    Welcome {
        version: PROTOCOL.max,
        features: 0,
        session,
        lane: Geometry::DEFAULT,
        least_lane: Geometry::DEFAULT,
        limits: Limits::default(),
        doorbell: Doorbell::Socket,
        max_batch: 1 << 16,
        schema: 0,
    }
}

/// A message's bytes, whose header says `fds` descriptors.
pub(crate) fn encode(message: &Message, fds: usize) -> Vec<u8> {
    let mut bytes = [0; MAX_CONTROL];
    let len = message.encode(u16::try_from(fds).unwrap(), &mut bytes);
    bytes[..len].to_vec()
}

impl Rogue {
    pub(crate) fn connect(run_dir: &RunDir, name: &str) -> Self {
        let service = service(name);
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        let path = endpoint::socket_path(run_dir.path(), service);
        rustix::net::connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        Self { socket, service, hello: hello(service) }
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        pass::send(self.socket.as_fd(), bytes, fds).unwrap();
    }

    /// Nothing with a descriptor can be sent, where the kernel has `SO_PASSRIGHTS`.
    #[track_caller]
    pub(crate) fn passes_nothing(&self) {
        let socket = self.socket.as_fd();
        if let Err(error) = pass::set_passrights(socket, true) {
            return println!("nothing was tried: no SO_PASSRIGHTS here ({error})");
        }
        let refused = SendError::System { source: Errno::PERM };
        assert_eq!(pass::send(socket, b"fd", &[socket]), Err(refused));
    }

    pub(crate) fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) {
        self.send_bytes(&encode(message, fds.len()), fds);
    }

    /// The next message; `None` when the peer closed.
    pub(crate) fn receive(&self) -> Option<(Message, Vec<OwnedFd>)> {
        let mut bytes = [0; MAX_CONTROL];
        loop {
            match pass::receive(self.socket.as_fd(), &mut bytes, MAX_FDS) {
                Ok(received) => {
                    let message = Message::parse(&bytes[..received.len], received.count());
                    return Some((message.unwrap(), received.into_objects().collect()));
                }
                Err(ReceiveError::Closed) => return None,
                Err(ReceiveError::WouldBlock) => {
                    let ready = poll::wait_readable(&[self.socket.as_fd()], Some(test_deadline()));
                    assert!(ready.unwrap().any(), "the peer says nothing");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends an honest HELLO, and returns the server's WELCOME.
    pub(crate) fn enter(&self) -> (Welcome, Vec<OwnedFd>) {
        self.send(&Message::Hello(self.hello), &[]);
        match self.receive() {
            Some((Message::Welcome(welcome), fds)) => (welcome, fds),
            other => panic!("{other:?} is no WELCOME"),
        }
    }

    pub(crate) fn join(&self, session: u64, fds: &[BorrowedFd<'_>]) {
        self.send(&Message::Join(Join { session }), fds);
    }

    /// The peer refuses with a sentence that holds `part`, then closes.
    #[track_caller]
    pub(crate) fn is_refused(&self, code: RefuseCode, part: &str) {
        let Some((Message::Refuse(refuse), fds)) = self.receive() else {
            panic!("not refused");
        };
        assert_eq!((refuse.code, fds.len()), (code, 0), "{}", refuse.reason());
        assert!(refuse.reason().contains(part), "{:?} lacks {part:?}", refuse.reason());
        self.is_closed();
    }

    /// The peer closes without a word.
    #[track_caller]
    pub(crate) fn is_closed(&self) {
        assert!(self.receive().is_none(), "the peer says more");
    }

    /// Goes through a client's handshake as an honest client does.
    pub(crate) fn open(self) -> RogueSession {
        let (welcome, fds) = self.enter();
        let mut fds = fds.into_iter();
        let (own, page, lane) = own_end(Role::Client, welcome.session, self.service);
        let peer = peer_end(&mut fds, welcome.lane);
        let _board = fds.next();
        let peer_eventfd = fds.next().map(|fd| Eventfd::from_peer(fd).unwrap());
        self.join(welcome.session, &[page.as_fd(), lane.as_fd()]);
        let Some((Message::Ready(_), _)) = self.receive() else { panic!("not READY") };
        RogueSession::new(self.socket, own, peer, peer_eventfd)
    }
}

impl RogueListener {
    pub(crate) fn bind(run_dir: &RunDir, name: &str) -> Self {
        let service = service(name);
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        let path = endpoint::socket_path(run_dir.path(), service);
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 16).unwrap();
        Self { shows_life: false, socket, service }
    }

    /// Whether a client has connected.
    pub(crate) fn has_caller(&self) -> bool {
        let now = Some(bellwire_memfd::clock::now());
        poll::wait_readable(&[self.socket.as_fd()], now).unwrap().any()
    }

    /// The next client, its HELLO received.
    pub(crate) fn accept(&self) -> Rogue {
        let mut rogue = self.accept_without_hello();
        let Some((Message::Hello(said), _)) = rogue.receive() else { panic!("no HELLO") };
        rogue.hello = said;
        rogue
    }

    /// The next client, its HELLO unread.
    pub(crate) fn accept_without_hello(&self) -> Rogue {
        let ready = poll::wait_readable(&[self.socket.as_fd()], Some(test_deadline()));
        assert!(ready.unwrap().any(), "nobody connects");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags).unwrap();
        Rogue { socket, service: self.service, hello: hello(self.service) }
    }

    /// Opens a session with a client while that connects.
    pub(crate) fn meet(&self, connect: impl FnOnce()) -> RogueSession {
        thread::scope(|scope| {
            let rogue = scope.spawn(|| self.open(1));
            connect();
            rogue.join().unwrap()
        })
    }

    /// Goes through a server's handshake as an honest server does.
    pub(crate) fn open(&self, session: u64) -> RogueSession {
        let rogue = self.accept();
        let (own, page, lane) = own_end(Role::Server, session, self.service);
        if self.shows_life {
            let lives = libc::FUTEX_WAITERS | std::process::id();
            own.page.write(LIFE_OFFSET, &lives.to_ne_bytes());
        }
        let header = BoardHeader::new(std::process::id(), 1, self.service);
        let (board, board_fd) =
            OwnRegion::create("rogue-board", BOARD_SIZE, |board| board.write(0, header.as_bytes()))
                .unwrap();
        let fds = [page.as_fd(), lane.as_fd(), board_fd.as_fd()];
        rogue.send(&Message::Welcome(welcome(session)), &fds);
        let Some((Message::Join(_), fds)) = rogue.receive() else { panic!("no JOIN") };
        let mut fds = fds.into_iter();
        let peer = peer_end(&mut fds, rogue.hello.lane);
        rogue.send(&Message::Ready(Ready { session }), &[]);
        let eventfd = fds.next().map(|fd| Eventfd::from_peer(fd).unwrap());
        let mut opened = RogueSession::new(rogue.socket, own, peer, eventfd);
        opened.board = Some(board);
        opened
    }
}

impl RogueSession {
    fn new(socket: OwnedFd, own: OwnEnd, peer: PeerEnd, peer_event: Option<Eventfd>) -> Self {
        let channel = Channel::from(socket);
        let process = Process::watch(&channel);
        let parts = Parts {
            own,
            peer,
            channel,
            doorbell: Doorbell::Socket,
            own_event: None,
            peer_event,
            process,
            limits: Limits::default(),
            lane_name: "rogue-lane".into(),
            trusts_peer: true,
        };
        Self { link: Link::new(parts).unwrap(), board: None, tail: 0 }
    }

    /// Honest lanes, for a rogue that is honest for a while.
    pub(crate) fn lanes(&self) -> Lanes {
        Lanes::new(Geometry::DEFAULT, Geometry::DEFAULT)
    }

    /// Stores a word of the own page and rings.
    pub(crate) fn set(&self, word: Word, value: u64) {
        self.link.own().store(word, value, Ordering::Release);
        self.link.ring(Bell::Data);
    }

    /// Says on the board, as a server, that a snapshot of this generation is there.
    pub(crate) fn announce(&self, generation: u64) {
        let board = self.board.as_ref().unwrap();
        board.store_u64(BoardWord::Generation.offset(), generation, Ordering::Release);
    }

    /// Says on the board that the provider was stopped.
    pub(crate) fn stop(&self) {
        let board = self.board.as_ref().unwrap();
        board.store_u64(BoardWord::State.offset(), BoardState::Stopped as u64, Ordering::Release);
    }

    /// Writes a record where the next one belongs, whatever its header says, without publishing it.
    pub(crate) fn write(&mut self, header: Header, payload: &[u8]) {
        let at = usize::try_from(self.tail % Geometry::DEFAULT.size()).unwrap();
        self.link.own().write(at, header.as_bytes());
        self.link.own().write(at + header.as_bytes().len(), payload);
        self.tail += record_len(u32::try_from(payload.len()).unwrap());
    }

    pub(crate) fn publish(&self) {
        self.set(Word::Tail, self.tail);
    }

    /// Writes a record and publishes it.
    pub(crate) fn put(&mut self, header: Header, payload: &[u8]) {
        self.write(header, payload);
        self.publish();
    }

    /// Waits until the peer's word is `value`.
    #[track_caller]
    pub(crate) fn sees(&self, word: Word, value: u64) {
        super::guard::until("the peer's word moves", || {
            self.link.peer().load(word, Ordering::Acquire) == value
        });
    }

    /// Waits until an echo has answered all that was sent, and frees the room.
    pub(crate) fn take_answers(&self) {
        super::guard::until("the answers come", || {
            self.link.peer().load(Word::Tail, Ordering::Acquire) >= self.tail
        });
        self.set(Word::Head, self.link.peer().load(Word::Tail, Ordering::Acquire));
    }

    /// The kind, the status and the request of the answer at this place of the server's lane, which it has to come to.
    pub(crate) fn answer(&self, at: u64) -> (Kind, Status, u64) {
        super::guard::until("it is answered", || {
            self.link.peer().load(Word::Tail, Ordering::Acquire) > at
        });
        let mut header = [0; 16];
        self.link.peer().read(usize::try_from(at).unwrap(), &mut header);
        let id = u64::from_le_bytes(header[8..].try_into().unwrap());
        let status = u16::from_le_bytes([header[6], header[7]]);
        (Kind::parse(header[4]).unwrap(), Status::parse(status).unwrap(), id)
    }

    /// Sends on the control socket.
    pub(crate) fn send_control(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        pass::send(self.link.arrived(), bytes, fds).unwrap();
    }

    /// The next control message that is no ring.
    pub(crate) fn control(&self) -> (Message, Vec<OwnedFd>) {
        let socket = self.socket();
        loop {
            match socket.receive().expect("the peer is there") {
                (Message::Ring, _) => {}
                other => return other,
            }
        }
    }

    fn socket(&self) -> Rogue {
        let socket = self.link.arrived().try_clone_to_owned().unwrap();
        let service = service("any");
        Rogue { socket, service, hello: hello(service) }
    }

    /// Whether the client has sent so many requests without a payload.
    pub(crate) fn has_asked(&self, requests: u64) -> bool {
        self.link.peer().load(Word::Tail, Ordering::Acquire) >= requests * record_len(0)
    }

    /// Waits for this many requests without a payload, and stores Head behind them.
    pub(crate) fn wait_for_requests(&self, requests: u64) {
        super::guard::until("the client asks", || self.has_asked(requests));
        self.set(Word::Head, self.link.peer().load(Word::Tail, Ordering::Acquire));
    }

    /// The client closes this session: it has another or none.
    #[track_caller]
    pub(crate) fn is_left(&self) {
        super::guard::until("the client leaves", || self.link.peer_gone());
    }

    /// The peer closes this session because of this end's action, and closes its socket.
    #[track_caller]
    pub(crate) fn is_poisoned(&mut self) {
        let closed = PageState::Closed.word(Some(CloseReason::Poisoned));
        let tail = self.link.peer().load(Word::Tail, Ordering::Acquire);
        let park = Park { tail, head: None, until: Some(test_deadline()) };
        while self.link.peer().load(Word::State, Ordering::Acquire) != closed {
            let woken = self.link.park(park);
            assert_ne!(woken, Woken::Deadline, "the peer does not mind");
        }
        let socket = self.socket();
        while let Some((message, _)) = socket.receive() {
            // Its lane may have grown meanwhile.
            assert!(matches!(message, Message::Ring | Message::Lane(_)), "{message:?}");
        }
    }
}

/// A client that has always something to do for its server: a lane of 64 MiB full of records, and one more for each that
/// is taken.
pub(crate) struct EndlessClient {
    flood: JoinHandle<RogueSession>,
    over: Arc<AtomicBool>,
    full: u64,
}

impl EndlessClient {
    pub(crate) fn start(run_dir: &RunDir) -> Self {
        let mut rogue = Rogue::connect(run_dir, "echo").open();
        rogue.put(Header::new(Kind::Request, Status::Ok, 1, 0), &[]);
        rogue.take_answers();
        let epoch = Epoch { number: 2, size: Geometry::LARGE };
        rogue.link.offer(epoch).unwrap();
        rogue.write(Header::new(Kind::Switch, Status::Ok, epoch.to_wire(), 0), &[]);
        rogue.link.adopt(epoch);
        let base = rogue.tail;
        // Cancels requests that were answered long ago, again and again.
        let lap = Header::new(Kind::Cancel, Status::Ok, 1, 0).as_bytes().repeat(4096);
        for at in 0..1024 {
            rogue.link.own().write(at << 16, &lap);
        }
        let room = epoch.size.size() - 48;
        rogue.set(Word::Tail, base + room);
        let over = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&over);
        let flood = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let head = rogue.link.peer().load(Word::Head, Ordering::Acquire).max(base);
                rogue.link.own().store(Word::Tail, head + room, Ordering::Release);
            }
            rogue
        });
        Self { flood, over, full: base + room }
    }

    /// Whether the server has taken a whole lane of records.
    pub(crate) fn stop(self) -> bool {
        self.over.store(true, Ordering::Relaxed);
        let rogue = self.flood.join().unwrap();
        rogue.link.peer().load(Word::Head, Ordering::Acquire) >= self.full
    }
}

/// An end's memory, and the descriptors to send.
fn own_end(role: Role, session: u64, service: ServiceName) -> (OwnEnd, OwnedFd, OwnedFd) {
    let lane_size = u32::try_from(Geometry::DEFAULT.size()).unwrap();
    let header = PageHeader::new(role, session, std::process::id(), lane_size, 1, service);
    let page = OwnRegion::create("rogue-page", PAGE_SIZE, |page| page.write(0, header.as_bytes()));
    let (page, page_fd) = page.unwrap();
    let (lane, lane_fd) = OwnRegion::create("rogue-lane", lane_size as usize, |_| {}).unwrap();
    let own = OwnEnd { page, lane };
    Lanes::open(&own);
    (own, page_fd, lane_fd)
}

fn peer_end(fds: &mut impl Iterator<Item = OwnedFd>, lane: Geometry) -> PeerEnd {
    let page = PeerRegion::verify_and_map(fds.next().unwrap(), PAGE_SIZE).unwrap();
    let size = usize::try_from(lane.size()).unwrap();
    PeerEnd { page, lane: PeerRegion::verify_and_map(fds.next().unwrap(), size).unwrap() }
}
