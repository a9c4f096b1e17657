//! Many epochs: nothing is lost, duplicated or reordered, and no end that waits for room is forgotten.

use std::collections::VecDeque;

use bellwire_core::lane::{Armed, Epoch, PushError};
use bellwire_core::resize::ResizeError;
use bellwire_core::wire::Kind;
use bellwire_core::{Geometry, Limits};
use bellwire_sim::Sim;
use proptest::prelude::*;

use crate::pair::{Pair, growing, limited, payload, size};
use crate::resize::{Rng, driver_in, pipeline, shuffling};

/// Random sizes, random trims, many requests in flight, answers in any order.
#[test]
fn every_request_is_answered_once_over_a_thousand_epochs() {
    let mut driver = driver_in(growing(), shuffling(Rng(11), 10));
    let mut rng = Rng(12);
    while driver.lane_stats().iter().any(|lane| lane.epoch < 1000) {
        assert_eq!(pipeline(&mut driver, &mut rng, (500, 30, 30_000), (6, 8)), 0);
        assert_eq!((driver.in_flight(), driver.ended()), (0, None));
    }
    for lane in driver.lane_stats() {
        assert_eq!(u64::from(lane.epoch), 1 + lane.grows + lane.shrinks, "{lane:?}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    Attach(usize),
    Grow(u32),
    Shrink,
    Maintain,
    Publish,
    Take(usize),
    GiveBack,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0_usize..3000).prop_map(Op::Send),
        2 => (0_usize..40_000).prop_map(Op::Send),
        2 => (0_usize..9000).prop_map(Op::Attach),
        2 => (12_u32..17).prop_map(Op::Grow),
        2 => Just(Op::Shrink),
        2 => Just(Op::Maintain),
        4 => Just(Op::Publish),
        5 => (1_usize..6).prop_map(Op::Take),
        2 => Just(Op::GiveBack),
    ]
}

/// A lane in one direction, and the messages that were written and not taken: id, length, attached.
struct Direction {
    pair: Pair,
    model: VecDeque<(u64, usize, bool)>,
    /// How many of them were published.
    published: usize,
    next: u64,
    limits: Limits,
    /// The receiver rang for room.
    rung: bool,
}

impl Direction {
    fn new(lane: u64, shared: u64) -> Self {
        let limits = Limits {
            max_lane: size(65_536),
            max_shared_bytes_per_session: shared,
            ..Limits::default()
        };
        let lane = size(lane);
        let sim = Sim { lane, peer_lane: lane, ..limited(limits, Limits::default()) };
        let pair = Pair::new(sim);
        Self { pair, model: VecDeque::new(), published: 0, next: 1, limits, rung: false }
    }

    fn send(&mut self, len: usize) -> Result<(), ResizeError> {
        self.pair.send(0, self.next, len)?;
        self.model.push_back((self.next, len, false));
        self.next += 1;
        Ok(())
    }

    fn attach(&mut self, len: usize) -> Result<(), PushError> {
        self.pair.attach(0, self.next, len)?;
        self.model.push_back((self.next, len, true));
        self.next += 1;
        Ok(())
    }

    fn publish(&mut self) {
        let _ = self.pair.commit(0);
        self.published = self.model.len();
    }

    /// Takes the next message, and looks whether the sender waits only when that check is due.
    fn take(&mut self) -> bool {
        loop {
            let Some(record) = self.pair.peek(1).unwrap() else {
                assert_eq!(self.published, 0, "what was published is there");
                self.check_wakes_if_due();
                return false;
            };
            if record.kind == Kind::Switch {
                self.pair.follow(1, &record).unwrap();
                self.check_wakes_if_due();
                continue;
            }
            let (id, len, attached) = self.model.pop_front().expect("it was sent");
            self.published -= 1;
            assert_eq!((record.id, record.kind == Kind::Attach), (id, attached));
            if attached {
                assert_eq!(self.pair.ends[1].take(id).unwrap(), payload(id, len));
            } else {
                let mut bytes = vec![0; record.len as usize];
                self.pair.lanes[1].copy(self.pair.ends[1].peer(), &record, &mut bytes);
                assert_eq!(bytes, payload(id, len));
            }
            self.pair.lanes[1].take_before_acting(self.pair.ends[1].own(), &record);
            self.check_wakes_if_due();
            return true;
        }
    }

    fn check_wakes_if_due(&mut self) {
        if self.pair.lanes[1].wake_check_due() {
            self.rung |= self.pair.commit(1).space;
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Send(len) => drop(self.send(len)),
            Op::Attach(len) => drop(self.attach(len)),
            Op::Grow(bits) => {
                let _ = self.pair.grow(0, Geometry::new(1 << bits).unwrap());
            }
            Op::Shrink => drop(self.pair.shrink(0)),
            Op::Maintain => drop(self.pair.maintenance(0)),
            Op::Publish => self.publish(),
            Op::Take(count) => {
                for _ in 0..count {
                    self.take();
                }
            }
            Op::GiveBack => drop(self.pair.commit(1)),
        }
        let Epoch { size, .. } = self.pair.epoch(0);
        assert!(size <= self.limits.max_lane);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A lane is a queue, whatever its size does meanwhile.
    #[test]
    fn records_arrive_in_the_order_sent_across_epochs(
        ops in proptest::collection::vec(op(), 1..150),
        shared in prop_oneof![Just(1 << 28), 20_000_u64..300_000],
    ) {
        let mut direction = Direction::new(4096, shared);
        for op in &ops {
            direction.run(op);
        }
        direction.publish();
        while direction.take() {}
        prop_assert!(direction.model.is_empty());
    }

    /// An end that waits for room, in a lane, for an epoch or for shared memory, is rung while its peer takes what
    /// was published and checks the event index only when due; and finds what it waited for, or waits again.
    #[test]
    fn a_sender_that_waits_for_room_is_rung_in_any_sequence_of_epochs(
        lane in 12_u32..16,
        ops in proptest::collection::vec(op(), 1..80),
        len in 0_usize..30_000,
        attach in any::<bool>(),
        shared in prop_oneof![Just(1 << 28), 40_000_u64..300_000],
    ) {
        let mut direction = Direction::new(1 << lane, shared);
        for op in &ops {
            direction.run(op);
        }
        let again = |direction: &mut Direction| match attach {
            true => direction.attach(len).map_err(ResizeError::Push),
            false => direction.send(len),
        };
        // Until its lane is full.
        for _ in 0..200 {
            match again(&mut direction) {
                Ok(()) => {}
                Err(ResizeError::Push(PushError::Full { .. })) => break,
                Err(ResizeError::Push(PushError::TooLarge { .. } | PushError::Attach { .. })) => {
                    return Ok(());
                }
                Err(error) => panic!("{error}"),
            }
        }
        for wait in 0.. {
            prop_assert!(wait < 1000, "there is never room");
            match again(&mut direction) {
                Ok(())
                | Err(ResizeError::Push(PushError::TooLarge { .. } | PushError::Attach { .. })) => {
                    break;
                }
                Err(ResizeError::Push(PushError::Full { missing })) => prop_assert!(missing > 0),
                Err(error) => panic!("{error}"),
            }
            direction.published = direction.model.len();
            if direction.pair.arm(0, true) == Armed::Moved {
                continue;
            }
            prop_assert!(!direction.pair.has_room(0));
            direction.rung = false;
            while direction.take() {}
            prop_assert!(direction.rung, "all was taken, and who waited was not rung");
            prop_assert!(direction.pair.has_room(0));
        }
    }
}
