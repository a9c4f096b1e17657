//! Batches that no honest client sends.

use bellwire::ServerConfig;
use bellwire_core::batch::BatchBuilder;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{HEADER, Header, Kind, Status};
use bellwire_core::{PeerMemory, Port, Word};
use zerocopy::IntoBytes;

use crate::support::guard::until;
use crate::support::rogue::{Rogue, RogueSession};
use crate::support::services::Hold;
use crate::support::test_server::TestServer;

/// The answer at this place of the server's lane, and where the next one will be.
fn answer(rogue: &RogueSession, at: u64) -> (Header, Vec<u8>, u64) {
    let tail = || rogue.link.peer().load(Word::Tail, Ordering::Acquire);
    until("it is answered", || tail() > at);
    let mut header = Header::new(Kind::Pad, Status::Ok, 0, 0);
    rogue.link.peer().read(at as usize, header.as_mut_bytes());
    let mut bytes = vec![0; header.len.get() as usize];
    rogue.link.peer().read(at as usize + HEADER, &mut bytes);
    (header, bytes, tail())
}

#[test]
fn more_items_than_the_server_accepts_reach_no_handler_and_the_session_stays_open() {
    for workers in [0, 1] {
        let fixture = TestServer::with(ServerConfig::default().workers(workers).max_batch(3));
        fixture.release();
        let mut rogue = Rogue::connect(fixture.run_dir(), "hold").open();
        let mut at = 0;
        let mut send = |rogue: &mut RogueSession, id: u64, items: u64| {
            let mut batch = BatchBuilder::new(1000);
            for item in 0..items {
                batch.push(|into| into.extend_from_slice(item.as_bytes())).unwrap();
            }
            let bytes = batch.finish();
            let len = u32::try_from(bytes.len()).unwrap();
            rogue.put(Header::new(Kind::Request, Status::Ok, id, len).batch(), bytes);
            let (header, bytes, next) = answer(rogue, at);
            at = next;
            (header.status.get(), bytes)
        };
        let (status, reason) = send(&mut rogue, 1, 4);
        assert_eq!(status, Status::Malformed as u16);
        let reason = String::from_utf8(reason).unwrap();
        assert!(reason.contains("4 items") && reason.contains("limit of 3"), "{reason}");
        assert_eq!(fixture.arrivals.so_far(), [0; 0]);
        assert_eq!(send(&mut rogue, 2, 3).0, Status::Ok as u16);
        assert_eq!(fixture.arrivals.so_far(), [0, 1, 2]);
        let mut good = fixture.client::<Hold>();
        assert_eq!(good.call(&7).unwrap(), 7);
        drop((rogue, good));
        let stats = fixture.close();
        assert_eq!((stats.answered, stats.refused, stats.poisoned), (2, 1, 0));
    }
}
