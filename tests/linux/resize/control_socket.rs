//! A peer that does not read its control socket affects only its own session.

use std::thread;

use bellwire::{CallError, Client, ClientConfig, Executed, Resource, ServerConfig};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Header, Kind, Status, record_len};
use bellwire_core::{Geometry, OwnMemory, PeerMemory, Port, Word};
use zerocopy::FromBytes;

use crate::support::guard::until;
use crate::support::house::{Dir, House, patient};
use crate::support::rogue::{Rogue, RogueListener, RogueSession};
use crate::support::services::{Echo, Moody};

/// So many rings fill any socket.
const RINGS: u64 = 3000;

impl RogueSession {
    /// Arms its doorbell for the next record.
    fn wants_a_ring(&self) {
        let tail = self.link.peer().load(Word::Tail, Ordering::Acquire);
        self.link.own().store(Word::WantData, tail, Ordering::SeqCst);
    }

    /// How often the peer has rung, by its own count.
    fn rung(&self) -> u64 {
        self.link.peer().load(Word::Rings, Ordering::Acquire)
    }

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
fn a_client_that_does_not_read_is_told_so_and_holds_nobody_up() {
    let house = House::with(ServerConfig { stream_from: None, ..ServerConfig::default() });
    let mut good = house.client::<Echo>();
    let mut rogue = Rogue::connect(house.run_dir(), "moody").open();
    let mut head = 0;
    let answer = Moody::ANSWER.to_le_bytes();
    // Every answer rings, and no ring is heard.
    for id in 1..=RINGS {
        rogue.wants_a_ring();
        rogue.put(Header::new(Kind::Request, Status::Ok, id, 8), &answer);
        let header = rogue.take(&mut head);
        assert_eq!((header.kind, header.id.get()), (Kind::Response as u8, id));
    }
    assert!(rogue.rung() > RINGS / 2, "{}", rogue.rung());
    // This answer needs another lane, which cannot be passed.
    rogue.put(Header::new(Kind::Request, Status::Ok, RINGS + 1, 8), &Moody::RAMBLE.to_le_bytes());
    let header = rogue.take(&mut head);
    assert_eq!(
        (header.kind, header.id.get(), header.status.get()),
        (Kind::Response as u8, RINGS + 1, Status::Short as u16)
    );
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    // It is served all the same, and everything when it reads at last.
    rogue.put(Header::new(Kind::Request, Status::Ok, RINGS + 2, 8), &answer);
    assert_eq!(rogue.take(&mut head).status.get(), Status::Ok as u16);
    assert_eq!(good.call(&vec![2; 100_000]).unwrap(), [2; 100_000]);
    rogue.link.acknowledge();
    rogue.put(Header::new(Kind::Request, Status::Ok, RINGS + 3, 8), &Moody::RAMBLE.to_le_bytes());
    assert_eq!(rogue.take(&mut head).kind, Kind::Switch as u8);
    assert_eq!(good.call(&vec![3]).unwrap(), [3]);
    drop((rogue, good));
    let stats = house.close();
    assert_eq!((stats.poisoned, stats.accepted), (0, RINGS + 3 + 3), "{stats:?}");
}

#[test]
fn a_server_that_does_not_read_is_said_to_lack_room() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "echo");
    let config = ClientConfig { stream_from: None, ..patient() };
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    let mut rogue = thread::scope(|scope| {
        let rogue = scope.spawn(|| listener.open(1));
        client.connect().unwrap();
        rogue.join().unwrap()
    });
    let session = client.session().unwrap();
    let mut head = 0;
    for id in 1..=RINGS {
        rogue.wants_a_ring();
        session.submit(&vec![]).unwrap();
        assert_eq!(rogue.take(&mut head).id.get(), id);
        rogue.put(Header::new(Kind::Response, Status::Ok, id, 0), &[]);
        assert!(session.try_reply().unwrap().unwrap().1.unwrap().is_empty());
    }
    assert!(rogue.rung() > RINGS / 2, "{}", rogue.rung());
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
