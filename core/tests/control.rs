//! How messages of the control socket are handled, on any transport.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bellwire_core::control::{self, Control, ControlTransport, DrainOutcome, ReceiveOutcome};
use bellwire_core::lane::Epoch;
use bellwire_core::resize::{FollowError, Resource, Shortage};
use bellwire_core::wire::{Attachment, MAX_CONTROL, Message};
use bellwire_core::{Limits, PeerFault};

use crate::codec::encode;
use crate::pair::size;

const SHORT: Shortage = Shortage { resource: Resource::Descriptors, bytes: 0, code: 24 };
const FLOOD: usize = 100_000;

/// What became of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was closed here and now.
    Dropped(u64),
    /// It was closed where that may block.
    Closed(u64),
}

type Log = Rc<RefCell<Vec<Fate>>>;

/// A piece of memory, and where its end is noted if that was not done yet.
#[derive(Debug)]
struct Memory(u64, Option<Log>);

impl Memory {
    fn ends(&mut self, fate: fn(u64) -> Fate) {
        if let Some(log) = self.1.take() {
            log.borrow_mut().push(fate(self.0));
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.ends(Fate::Dropped);
    }
}

enum Step {
    Message(Vec<u8>, Vec<Memory>),
    TooLong,
    TooMany(usize),
    Fails(FollowError),
    /// Nothing, until a reader catches up.
    Late,
    End,
}

/// A control socket whose peer has a script.
#[derive(Default)]
struct Wire {
    script: RefCell<VecDeque<Step>>,
    log: Log,
    received: Cell<usize>,
    lost: Cell<Option<Shortage>>,
    sent: RefCell<Vec<(Vec<u8>, Option<u64>)>>,
    is_full: Cell<bool>,
}

impl Wire {
    fn add(&self, step: Step) {
        self.script.borrow_mut().push_back(step);
    }

    fn message(&self, message: &Message, memory: &[u64]) {
        let bytes = encode(message, memory.len());
        let memory = memory.iter().map(|id| Memory(*id, Some(Rc::clone(&self.log)))).collect();
        self.add(Step::Message(bytes, memory));
    }

    fn rings(&self, count: usize) {
        (0..count).for_each(|_| self.message(&Message::Ring, &[]));
    }

    fn lane(&self, number: u32, memory: u64) {
        self.message(&Message::Lane(epoch(number)), &[memory]);
    }

    fn attachment(&self, id: u64, memory: u64) {
        let attachment = Attachment { id, generation: 0, len: 10 };
        self.message(&Message::Attachment(attachment), &[memory]);
    }

    fn fates(&self) -> Vec<Fate> {
        self.log.take()
    }
}

impl ControlTransport for Wire {
    type Memory = Memory;
    type BorrowedMemory<'a> = u64;

    fn send(&self, message: &[u8], memory: Option<u64>) -> Result<(), Shortage> {
        if self.is_full.get() {
            return Err(SHORT);
        }
        self.sent.borrow_mut().push((message.to_vec(), memory));
        Ok(())
    }

    fn receive(&self, into: &mut [u8; MAX_CONTROL]) -> Result<ReceiveOutcome<Memory>, FollowError> {
        let mut script = self.script.borrow_mut();
        self.received.set(self.received.get() + 1);
        Ok(match script.pop_front() {
            None => ReceiveOutcome::Nothing,
            Some(Step::Message(bytes, memory)) => {
                into[..bytes.len()].copy_from_slice(&bytes);
                ReceiveOutcome::Message { len: bytes.len(), memory }
            }
            Some(Step::TooLong) => ReceiveOutcome::TooLong,
            Some(Step::TooMany(count)) => ReceiveOutcome::TooMany { count },
            Some(Step::Fails(error)) => return Err(error),
            Some(Step::Late) => {
                script.push_front(Step::Late);
                ReceiveOutcome::Nothing
            }
            Some(Step::End) => {
                script.push_front(Step::End);
                ReceiveOutcome::End
            }
        })
    }

    fn close(memory: Vec<Memory>) {
        for mut memory in memory {
            memory.ends(Fate::Closed);
        }
    }

    fn catch_up(&self) -> bool {
        let mut script = self.script.borrow_mut();
        let is_late = matches!(script.front(), Some(Step::Late));
        if is_late {
            script.pop_front();
        }
        is_late
    }

    fn lost(&self) -> Option<Shortage> {
        self.lost.get()
    }
}

fn start() -> (Wire, Control<Wire>) {
    (Wire::default(), Control::new(Limits::default()))
}

fn epoch(number: u32) -> Epoch {
    Epoch { number, size: size(8192) }
}

fn why(error: FollowError) -> &'static str {
    match error {
        FollowError::Peer(PeerFault::Control { why, .. } | PeerFault::Memory { why, .. }) => why,
        other => panic!("{other}"),
    }
}

fn follow(control: &mut Control<Wire>, wire: &Wire, number: u32) -> Result<u64, FollowError> {
    control.follow(wire, epoch(number), |memory| Ok(memory.0))
}

#[test]
fn a_flood_is_taken_in_turn_by_turn() {
    let (wire, mut control) = start();
    wire.rings(50);
    assert_eq!(control.receive_all(&wire), Ok(DrainOutcome::Flood));
    assert_eq!(control.receive_all(&wire), Ok(DrainOutcome::Nothing));
    wire.rings(1500);
    assert_eq!(
        control.drain_before_wait(&wire),
        DrainOutcome::More,
        "a wait takes in more, and not all"
    );
    assert_eq!(control.drain_before_wait(&wire), DrainOutcome::Nothing);
    wire.add(Step::End);
    assert_eq!(control.receive_all(&wire), Ok(DrainOutcome::End));
}

/// It would occupy a record's reader for as long as the peer wants.
#[test]
fn a_flood_in_front_of_a_lane_or_a_message_is_not_endless() {
    let (wire, mut control) = start();
    wire.rings(FLOOD);
    assert_eq!(why(follow(&mut control, &wire, 2).unwrap_err()), "its record came without it");
    let error = control.take_attachment(&wire, 1).unwrap_err();
    assert_eq!(why(error), "its record came without it");
    assert!(wire.received.get() < FLOOD / 10, "{}", wire.received.get());
}

#[test]
fn messages_beyond_the_limit_stay_in_the_socket_until_records_ask() {
    let (wire, mut control) = start();
    (1..=10).for_each(|id| wire.attachment(id, id));
    assert_eq!(control.receive_all(&wire), Ok(DrainOutcome::More));
    let left = wire.script.borrow().len();
    assert!((1..10).contains(&left), "{left}");
    for id in 1..=10 {
        let (attachment, memory) = control.take_attachment(&wire, id).unwrap();
        assert_eq!((attachment.id, memory.0), (id, id));
    }
    assert_eq!(control.receive_all(&wire), Ok(DrainOutcome::Nothing));
}

#[test]
fn unrequested_memory_is_closed_where_that_may_block() {
    let (wire, mut control) = start();
    wire.lane(2, 20);
    wire.attachment(1, 10);
    assert_eq!(control.receive_all(&wire), Ok(DrainOutcome::Nothing));
    assert_eq!(wire.fates(), []);
    drop(control);
    assert_eq!(wire.fates(), [Fate::Closed(20), Fate::Closed(10)]);
}

#[test]
fn memory_of_a_violation_is_closed_where_that_may_block() {
    let (wire, mut control) = start();
    wire.message(&Message::Ring, &[1, 2]);
    let error = control.receive_all(&wire).unwrap_err();
    assert_eq!(why(error), "an open session has no place for it");
    let mut fates = wire.fates();
    fates.sort_by_key(|fate| format!("{fate:?}"));
    assert_eq!(fates, [Fate::Closed(1), Fate::Closed(2)]);
    wire.add(Step::TooLong);
    assert_eq!(why(control.receive_all(&wire).unwrap_err()), "longer than any message");
    wire.add(Step::TooMany(17));
    let error = control.receive_all(&wire).unwrap_err();
    assert!(matches!(error, FollowError::Peer(PeerFault::Control { fds: 17, .. })), "{error}");
}

#[test]
fn a_lane_that_was_mapped_is_closed_at_once() {
    let (wire, mut control) = start();
    wire.rings(3);
    wire.lane(2, 20);
    assert_eq!(follow(&mut control, &wire, 2), Ok(20));
    assert_eq!(wire.fates(), [Fate::Dropped(20)]);
}

#[test]
fn a_lane_that_cannot_be_mapped_now_is_kept() {
    let (wire, mut control) = start();
    wire.lane(2, 20);
    wire.lane(3, 30);
    let short = control.follow(&wire, epoch(2), |_| Err::<(), _>(SHORT.into()));
    assert_eq!(short, Err(SHORT.into()));
    assert_eq!(wire.fates(), []);
    assert_eq!(follow(&mut control, &wire, 2), Ok(20));
    assert_eq!(follow(&mut control, &wire, 3), Ok(30));
}

#[test]
fn a_lane_that_is_none_is_closed_where_that_may_block() {
    let (wire, mut control) = start();
    wire.lane(2, 20);
    let violation = PeerFault::Memory { what: "a lane", why: "a seal is missing" };
    let found = control.follow(&wire, epoch(2), |_| Err::<(), _>(violation.into()));
    assert_eq!(found, Err(violation.into()));
    assert_eq!(wire.fates(), [Fate::Closed(20)]);
}

/// The message is lost, and the next one is not mistaken for it.
#[test]
fn memory_refused_for_a_shortage_is_closed_when_it_arrives_later() {
    let (wire, mut control) = start();
    wire.add(Step::Fails(SHORT.into()));
    assert_eq!(control.take_attachment(&wire, 1).unwrap_err(), SHORT.into());
    wire.attachment(1, 10);
    wire.attachment(2, 20);
    assert_eq!(control.take_attachment(&wire, 2).unwrap().1.0, 20);
    assert_eq!(wire.fates(), [Fate::Closed(10), Fate::Dropped(20)]);
}

#[test]
fn memory_that_went_with_its_peer_is_no_violation() {
    let (wire, mut control) = start();
    let gone = Shortage { resource: Resource::Other, bytes: 0, code: 109 };
    wire.add(Step::End);
    assert_eq!(why(follow(&mut control, &wire, 2).unwrap_err()), "its record came without it");
    wire.lost.set(Some(gone));
    let lost = Shortage { bytes: 8192, ..gone };
    assert_eq!(follow(&mut control, &wire, 2), Err(lost.into()));
    assert_eq!(control.take_attachment(&wire, 1).unwrap_err(), gone.into());
}

#[test]
fn the_first_message_is_found_after_catching_up() {
    let (wire, mut control) = start();
    wire.add(Step::Late);
    wire.lane(2, 20);
    assert_eq!(control.receive_all(&wire), Ok(DrainOutcome::Nothing), "a look does not catch up");
    assert_eq!(follow(&mut control, &wire, 2), Ok(20));
    wire.add(Step::Late);
    wire.attachment(1, 10);
    assert_eq!(control.take_attachment(&wire, 1).unwrap().1.0, 10);
}

#[test]
fn the_first_fault_that_a_wait_finds_stays() {
    let (wire, mut control) = start();
    wire.add(Step::TooLong);
    wire.add(Step::TooMany(17));
    assert_eq!(
        (control.drain_before_wait(&wire), control.fault().is_some()),
        (DrainOutcome::End, true)
    );
    let first = control.fault();
    assert_eq!(control.drain_before_wait(&wire), DrainOutcome::End);
    assert_eq!(control.fault(), first);
    wire.add(Step::Fails(SHORT.into()));
    assert_eq!(
        control.drain_before_wait(&wire),
        DrainOutcome::More,
        "what cannot be taken in now is still there"
    );
}

#[test]
fn the_peer_parses_each_message_as_it_was_sent() {
    let wire = Wire::default();
    let attachment = Attachment { id: 5, generation: 7, len: 300 };
    control::ring(&wire);
    control::pass_lane(&wire, epoch(2), 20).unwrap();
    control::pass_attachment(&wire, attachment, 30).unwrap();
    let sent = wire.sent.take();
    let parsed: Vec<_> = sent
        .iter()
        .map(|(bytes, memory)| (Message::parse(bytes, memory.iter().len()).unwrap(), *memory))
        .collect();
    assert_eq!(
        parsed,
        [
            (Message::Ring, None),
            (Message::Lane(epoch(2)), Some(20)),
            (Message::Attachment(attachment), Some(30)),
        ]
    );
    wire.is_full.set(true);
    control::ring(&wire);
    let short = |bytes| Err(Shortage { bytes, ..SHORT });
    assert_eq!(control::pass_lane(&wire, epoch(3), 20), short(8192));
    assert_eq!(control::pass_attachment(&wire, attachment, 30), short(300));
}
