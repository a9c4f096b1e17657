//! Lanes against a model: a queue.

use std::collections::VecDeque;

use bellwire_core::lane::{Armed, Lanes, PushError};
use bellwire_core::wire::{CloseReason, Header, Kind, SWITCH_RESERVE, Status, record_len};
use bellwire_core::{Geometry, LimitOwner};
use bellwire_sim::{Sim, SimEnd};
use proptest::prelude::*;

pub(crate) struct Ends {
    pub(crate) ends: [SimEnd; 2],
    pub(crate) sender: Lanes,
    pub(crate) receiver: Lanes,
}

impl Ends {
    pub(crate) fn new(lane: u64) -> Self {
        let lane = Geometry::new(lane).unwrap();
        let ends = Sim { lane, ..Sim::default() }.ends();
        let (sender, receiver) = (ends[0].lanes(), ends[1].lanes());
        Self { ends, sender, receiver }
    }

    pub(crate) fn push(&mut self, id: u64, payload: &[u8]) -> Result<(), PushError> {
        let header = Header::new(Kind::Request, Status::Ok, id, payload.len() as u32);
        let end = &self.ends[0];
        self.sender.push(end.own(), end.peer(), header, payload)
    }

    /// Takes the next record: its id and payload.
    pub(crate) fn take(&mut self) -> Option<(u64, Vec<u8>)> {
        let peer = self.ends[1].peer();
        let record = self.receiver.peek(peer).unwrap()?;
        assert_eq!(self.receiver.peek(peer).unwrap(), Some(record), "a peek takes nothing");
        let mut payload = vec![0; record.len as usize];
        self.receiver.copy(peer, &record, &mut payload);
        self.receiver.take(&record);
        Some((record.id, payload))
    }

    pub(crate) fn publish(&mut self) -> bool {
        let end = &self.ends[0];
        self.sender.commit(end.own(), end.peer()).data
    }

    pub(crate) fn give_back(&mut self) -> bool {
        let end = &self.ends[1];
        self.receiver.commit(end.own(), end.peer()).space
    }
}

/// The lane as `docs/wire.md` has it, counted independently.
struct Model {
    size: u64,
    written: u64,
    /// Where each record that was not taken ends.
    ends: VecDeque<u64>,
    records: VecDeque<(u64, Vec<u8>)>,
    published: usize,
    taken: u64,
    given_back: u64,
}

impl Model {
    /// Whether a record is written now; a pad may be, even when the record has to wait.
    fn push(&mut self, id: u64, payload: &[u8]) -> bool {
        let len = record_len(payload.len() as u32);
        let to_end = self.size - self.written % self.size;
        if len > to_end {
            if !self.fits(to_end) {
                return false;
            }
            self.written += to_end;
        }
        if !self.fits(len) {
            return false;
        }
        self.written += len;
        self.ends.push_back(self.written);
        self.records.push_back((id, payload.to_vec()));
        true
    }

    fn fits(&self, len: u64) -> bool {
        self.written + len + SWITCH_RESERVE - self.given_back <= self.size
    }

    fn take(&mut self) -> Option<(u64, Vec<u8>)> {
        if self.published == 0 {
            return None;
        }
        self.published -= 1;
        self.taken = self.ends.pop_front().unwrap();
        self.records.pop_front()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Publish,
    Take,
    GiveBack,
    Prefetch,
}

fn op(max: usize) -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..=max).prop_map(Op::Push),
        3 => (0..64_usize).prop_map(Op::Push),
        1 => Just(Op::Push(max)),
        3 => Just(Op::Publish),
        6 => Just(Op::Take),
        4 => Just(Op::GiveBack),
        4 => Just(Op::Prefetch),
    ]
}

fn size_and_ops() -> impl Strategy<Value = (u64, Vec<Op>)> {
    (0_u32..4).prop_flat_map(|shift| {
        let size = u64::from(Geometry::MIN) << shift;
        let max = Geometry::new(size).unwrap().max_payload();
        (Just(size), proptest::collection::vec(op(max), 1..200))
    })
}

fn payload(id: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (id.wrapping_mul(31) as usize + at) as u8).collect()
}

proptest! {
    #[test]
    fn a_lane_is_a_queue((size, ops) in size_and_ops()) {
        let mut ends = Ends::new(size);
        let mut model = Model {
            size,
            written: 0,
            ends: VecDeque::new(),
            records: VecDeque::new(),
            published: 0,
            taken: 0,
            given_back: 0,
        };
        let mut id = 0;
        for op in ops {
            match op {
                Op::Push(len) => {
                    id += 1;
                    let payload = payload(id, len);
                    let fits = model.push(id, &payload);
                    match ends.push(id, &payload) {
                        Ok(()) => prop_assert!(fits),
                        Err(PushError::Full { missing }) => {
                            prop_assert!(!fits);
                            prop_assert!(missing > 0 && missing <= size / 2);
                        }
                        Err(error) => panic!("{error}"),
                    }
                    prop_assert_eq!(ends.sender.position(), model.written);
                }
                Op::Publish => {
                    let _ = ends.publish();
                    model.published = model.records.len();
                }
                Op::Take => {
                    let expected = model.take();
                    prop_assert_eq!(ends.take(), expected);
                }
                // No unread record is written to.
                Op::Prefetch => (0..size / 64).for_each(|_| ends.sender.prefetch(ends.ends[0].own())),
                Op::GiveBack => {
                    let _ = ends.give_back();
                    let end = &ends.ends[0];
                    model.given_back = ends.sender.taken(end.peer()).unwrap();
                    prop_assert!(model.given_back >= model.taken && model.given_back <= model.written);
                }
            }
        }
        let _ = ends.publish();
        model.published = model.records.len();
        while let Some(expected) = model.take() {
            prop_assert_eq!(ends.take(), Some(expected));
        }
        prop_assert_eq!(ends.take(), None);
    }

    /// The quarter rule: a sender that parks for space is rung while its peer takes what was published,
    /// however the releases fall, and finds the room that it parked for.
    #[test]
    fn an_end_parked_for_space_is_rung_once_and_finds_room(
        shift in 0_u32..3,
        warm_up in 0_usize..40,
        warm_len in 0_usize..300,
        fill in 0_usize..700,
        last in 0_usize..5000,
        every in 1_usize..60,
    ) {
        let size = u64::from(Geometry::MIN) << shift;
        let mut ends = Ends::new(size);
        let max = ends.sender.max_payload();
        for id in 0..warm_up as u64 {
            ends.push(id, &payload(id, warm_len)).unwrap();
            let _ = ends.publish();
            ends.take().unwrap();
            let _ = ends.give_back();
        }
        while ends.push(1, &payload(1, fill.min(max))).is_ok() {}
        let last = payload(9, last.min(max));
        if ends.push(9, &last).is_ok() {
            return Ok(());
        }
        let (own, peer) = (ends.ends[0].own(), ends.ends[0].peer());
        let (armed, _) = ends.sender.arm(own, peer, true).unwrap();
        if armed == Armed::Moved {
            prop_assert!(ends.push(9, &last).is_ok());
            return Ok(());
        }
        let (mut rings, mut taken) = (0, 0);
        while ends.take().is_some() {
            taken += 1;
            if taken % every == 0 {
                rings += usize::from(ends.give_back());
            }
        }
        rings += usize::from(ends.give_back());
        prop_assert_eq!(rings, 1);
        prop_assert!(ends.push(9, &last).is_ok());
    }

    /// A sender that finds the lane full learns exactly when to try again, and how much is missing.
    #[test]
    fn there_is_room_exactly_when_the_record_that_did_not_fit_would(
        fill in 0_usize..700, last in 0_usize..2000, positions in 0_usize..300,
    ) {
        let mut ends = Ends::new(4096);
        for _ in 0..positions {
            ends.push(0, &[]).unwrap();
            let _ = ends.publish();
            ends.take().unwrap();
            let _ = ends.give_back();
        }
        while ends.push(1, &payload(1, fill)).is_ok() {}
        let _ = ends.publish();
        let last = payload(2, last);
        loop {
            let before = ends.sender.taken(ends.ends[0].peer()).unwrap();
            // A pad may go first: then it is the record itself that is waited for.
            let Err(error) = ends.push(2, &last) else { break };
            let PushError::Full { missing } = error else { panic!("{error}") };
            let _ = ends.publish();
            prop_assert!(!ends.sender.has_room(ends.ends[0].peer()).unwrap());
            loop {
                let taken = ends.take().is_some();
                let _ = ends.give_back();
                let now = ends.sender.taken(ends.ends[0].peer()).unwrap();
                let room = ends.sender.has_room(ends.ends[0].peer()).unwrap();
                prop_assert_eq!(room, now - before >= missing);
                if room {
                    break;
                }
                prop_assert!(taken, "all was taken, and there is no room");
            }
        }
        let _ = ends.publish();
        while let Some((id, payload)) = ends.take() {
            if id == 2 {
                prop_assert_eq!(&payload, &last);
            }
        }
    }

    /// An end that parks for data is rung by the next publication, once.
    #[test]
    fn an_end_parked_for_data_is_rung_once(before in 0_usize..10, batches in 1_usize..5, len in 0_usize..200) {
        let mut ends = Ends::new(4096);
        for id in 0..before as u64 {
            ends.push(id, &payload(id, len)).unwrap();
            prop_assert!(!ends.publish(), "nobody parks");
            ends.take().unwrap();
            let _ = ends.give_back();
        }
        let (own, peer) = (ends.ends[1].own(), ends.ends[1].peer());
        let (armed, _) = ends.receiver.arm(own, peer, false).unwrap();
        let asleep = matches!(armed, Armed::Sleep { head: None, .. });
        prop_assert!(asleep);
        for batch in 0..batches {
            for id in 0..3 {
                ends.push(id, &payload(id, len)).unwrap();
            }
            prop_assert_eq!(ends.publish(), batch == 0);
        }
    }

    #[test]
    fn no_payload_above_the_limit_is_written(shift in 0_u32..4, above in 1_usize..100_000) {
        let size = u64::from(Geometry::MIN) << shift;
        let mut ends = Ends::new(size);
        let limit = ends.sender.max_payload();
        let len = limit + above;
        prop_assert_eq!(
            ends.push(1, &vec![0; len]),
            Err(PushError::TooLarge { len: len as u64, limit: limit as u64, owner: LimitOwner::Own })
        );
        prop_assert_eq!(ends.sender.position(), 0);
    }

    /// What the limit promises: at every position of an empty lane, the largest record fits.
    #[test]
    fn the_largest_record_fits_an_empty_lane_at_every_position(shift in 0_u32..3, at in 0_u64..1024) {
        let size = u64::from(Geometry::MIN) << shift;
        let mut ends = Ends::new(size);
        let max = ends.sender.max_payload();
        while ends.sender.position() % size != at * 16 % size {
            ends.push(0, &[]).unwrap();
            let _ = ends.publish();
            ends.take().unwrap();
            let _ = ends.give_back();
        }
        let largest = payload(7, max);
        if let Err(error) = ends.push(7, &largest) {
            // A pad came first, and is freed when it was taken.
            let full = matches!(error, PushError::Full { .. });
            prop_assert!(full, "{}", error);
            let _ = ends.publish();
            prop_assert_eq!(ends.take(), None);
            let _ = ends.give_back();
            ends.push(7, &largest).unwrap();
        }
        let _ = ends.publish();
        prop_assert_eq!(ends.take(), Some((7, largest)));
    }
}

#[test]
fn an_empty_push_and_an_empty_commit_publish_and_ring_nothing() {
    let mut ends = Ends::new(4096);
    assert!(!ends.publish());
    assert!(!ends.give_back());
    assert_eq!(ends.take(), None);
}

#[test]
fn uncommitted_records_are_not_seen() {
    let mut ends = Ends::new(4096);
    ends.push(1, b"x").unwrap();
    assert_eq!(ends.take(), None);
    let _ = ends.publish();
    assert_eq!(ends.take(), Some((1, b"x".to_vec())));
}

#[test]
fn the_close_fits_a_full_lane_and_nothing_follows_it() {
    let mut ends = Ends::new(4096);
    let mut sent = 0;
    while ends.push(sent, &[0; 5]).is_ok() {
        sent += 1;
    }
    for _ in 0..2 {
        ends.sender.push_close(ends.ends[0].own(), CloseReason::Stopping);
    }
    let _ = ends.publish();
    assert_eq!(ends.push(9, &[]), Err(PushError::Closed));
    for id in 0..sent {
        assert_eq!(ends.take().unwrap().0, id);
    }
    let peer = ends.ends[1].peer();
    let close = ends.receiver.peek(peer).unwrap().unwrap();
    assert_eq!((close.kind, close.status), (Kind::Close, CloseReason::Stopping as u16));
    ends.receiver.take(&close);
    assert_eq!(ends.receiver.peek(peer).unwrap(), None, "the close was written once");
}

#[test]
fn a_short_buffer_takes_the_start_of_a_payload_and_a_long_one_no_more_than_it() {
    let mut ends = Ends::new(4096);
    ends.push(1, b"0123456789").unwrap();
    let _ = ends.publish();
    let peer = ends.ends[1].peer();
    let record = ends.receiver.peek(peer).unwrap().unwrap();
    let mut short = [0; 4];
    ends.receiver.copy(peer, &record, &mut short);
    assert_eq!(&short, b"0123");
    let mut long = [b'.'; 12];
    ends.receiver.copy(peer, &record, &mut long);
    assert_eq!(&long, b"0123456789..");
}
