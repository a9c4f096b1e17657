//! A record through a lane: pushed and published, then taken and its room freed.

use std::hint::black_box;

use bellwire_core::Geometry;
use bellwire_core::lane::Lanes;
use bellwire_core::wire::{Header, Kind, Status};

use crate::count_between;
use crate::memory::Side;

const LANE: u64 = 16 << 10;
const PAYLOAD: usize = 64;
/// As many as go through the lane some laps.
const RECORDS: u64 = 1_000;

pub fn count_all() {
    let mut ends = Ends::new();
    count_between("lane-push", RECORDS, &mut ends, Ends::push, Ends::pop);
    ends.push();
    count_between("lane-pop", RECORDS, &mut ends, Ends::pop, Ends::push);
    count_between("lane-take", RECORDS, &mut ends, Ends::take, Ends::push);
}

/// Both ends of a session.
struct Ends {
    sides: [Side; 2],
    sender: Lanes,
    receiver: Lanes,
    sent: u64,
}

impl Ends {
    fn new() -> Ends {
        let lane = Geometry::new(LANE).unwrap();
        let sides = [Side::new(LANE as usize), Side::new(LANE as usize)];
        sides.iter().for_each(Lanes::open);
        Ends { sides, sender: Lanes::new(lane, lane), receiver: Lanes::new(lane, lane), sent: 0 }
    }

    #[inline(never)]
    fn push(&mut self) {
        let [own, peer] = &self.sides;
        let header = Header::new(Kind::Request, Status::Ok, self.sent, PAYLOAD as u32);
        self.sent += 1;
        self.sender.push(own, peer, header, black_box(&[7; PAYLOAD])).unwrap();
        assert!(!self.sender.commit(own, peer).data);
    }

    #[inline(never)]
    fn pop(&mut self) {
        let [peer, own] = &self.sides;
        let record = self.receiver.peek(peer).unwrap().unwrap();
        let mut payload = [0; PAYLOAD];
        self.receiver.copy(peer, &record, &mut payload);
        self.receiver.take(&record);
        assert!(!self.receiver.commit(own, peer).space);
        black_box(&payload);
    }

    /// The fast path of the same.
    #[inline(never)]
    fn take(&mut self) {
        let [peer, own] = &self.sides;
        // Once a lap, there is a pad before it.
        let Some(plain) = self.receiver.peek_plain(peer, Kind::Request) else { return self.pop() };
        let mut payload = [0; PAYLOAD];
        let len = plain.len();
        self.receiver.take_plain(own, peer, plain, &mut payload[..len]);
        assert!(!self.receiver.commit(own, peer).space);
        black_box(&payload);
    }
}
