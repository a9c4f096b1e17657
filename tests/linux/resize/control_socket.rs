//! A peer that does not read its control socket affects only its own session.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use bellwire::{CallError, Client, Executed, LaneConfig, Resource, ServerConfig};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Header, Kind, Message, Status, record_len};
use bellwire_core::{Geometry, OwnMemory, PeerMemory, Port, Word};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrAny, SocketAddrUnix};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use zerocopy::FromBytes;

use crate::support::guard::until;
use crate::support::rogue::{Rogue, RogueListener, RogueSession, encode};
use crate::support::services::{AsRequested, Echo};
use crate::support::test_server::{Dir, TestServer, client_config};

/// Fills the sockets of this process of which `name` is the address: its own, or its peer's.
fn fill(name: impl Fn(&OwnedFd) -> Option<SocketAddrAny>, path: &Path) {
    let path = SocketAddrAny::from(SocketAddrUnix::new(path).unwrap());
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let mut filled = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let number = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let Ok(fd) = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) else { continue };
        if name(&fd).is_some_and(|name| name == path) {
            let ring = encode(&Message::Ring, 0);
            let send = || rustix::net::send(&fd, &ring, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            // A signal of another test is no sign that it is full.
            while let Ok(_) | Err(Errno::INTR) = send() {
                filled += 1;
            }
        }
    }
    assert!(filled > 50, "{filled}");
}

impl RogueSession {
    /// Takes the next record of the peer's lane, as long as that is the first one.
    fn take(&mut self, head: &mut u64) -> Header {
        until("a record comes", || self.link.peer().load(Word::Tail, Ordering::Acquire) > *head);
        let mut bytes = [0; 16];
        let size = Geometry::DEFAULT.size();
        self.link.peer().read((*head % size) as usize, &mut bytes);
        let header = Header::read_from_bytes(&bytes).unwrap();
        *head += record_len(header.len.get());
        self.link.own().store(Word::Head, *head, Ordering::Release);
        header
    }
}

#[test]
fn a_client_that_does_not_read_is_refused_an_answer_and_delays_no_other() {
    let fixture =
        TestServer::with(ServerConfig::default().lane(LaneConfig::default().stream_from(None)));
    let mut good = fixture.client::<Echo>();
    let mut rogue = Rogue::connect(fixture.run_dir(), "as-requested").open();
    let mut head = 0;
    let answer = AsRequested::ANSWER.to_le_bytes();
    fill(
        |fd| rustix::net::getsockname(fd).ok(),
        &fixture.run_dir().path().join("as-requested.sock"),
    );
    // This answer needs another lane, which cannot be passed.
    rogue.put(Header::new(Kind::Request, Status::Ok, 1, 8), &AsRequested::LARGE.to_le_bytes());
    let header = rogue.take(&mut head);
    assert_eq!(
        (header.kind, header.id.get(), header.status.get()),
        (Kind::Response as u8, 1, Status::Short as u16)
    );
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    // It is served all the same, and everything when it reads at last.
    rogue.put(Header::new(Kind::Request, Status::Ok, 2, 8), &answer);
    assert_eq!(rogue.take(&mut head).status.get(), Status::Ok as u16);
    assert_eq!(good.call(&vec![2; 100_000]).unwrap(), [2; 100_000]);
    rogue.link.acknowledge();
    rogue.put(Header::new(Kind::Request, Status::Ok, 3, 8), &AsRequested::LARGE.to_le_bytes());
    assert_eq!(rogue.take(&mut head).kind, Kind::Switch as u8);
    assert_eq!(good.call(&vec![3]).unwrap(), [3]);
    drop((rogue, good));
    let stats = fixture.close();
    assert_eq!((stats.poisoned, stats.accepted), (0, 3 + 3), "{stats:?}");
}

#[test]
fn a_server_that_does_not_read_is_reported_as_backpressure() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let config = client_config().lane(client_config().lane.stream_from(None));
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    let mut rogue = listener.meet(|| client.connect().map(|_| ()).unwrap());
    let session = client.session().unwrap();
    let mut head = 0;
    fill(|fd| rustix::net::getpeername(fd).ok().flatten(), &dir.run_dir.path().join("echo.sock"));
    let before = session.stats();
    for _ in 0..3 {
        let error = session.submit(&vec![0; 50_000]).unwrap_err();
        assert_eq!(error.executed(), Executed::No);
        let CallError::Short { shortage, .. } = error else { panic!("{error}") };
        assert_eq!(shortage.resource, Resource::ControlSocket);
    }
    assert_eq!(session.stats().requests.epoch, before.requests.epoch);
    // Small ones go on.
    session.submit(&vec![7; 100]).unwrap();
    assert_eq!(rogue.take(&mut head).len.get(), 100);
    rogue.link.acknowledge();
    session.submit(&vec![0; 50_000]).unwrap();
    assert_eq!(rogue.take(&mut head).kind, Kind::Switch as u8);
    assert_eq!(session.stats().requests.grows, 1);
}
