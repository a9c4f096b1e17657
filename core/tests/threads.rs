//! Both ends in threads of one process, over one map, whose bytes are no atomics: the case that ThreadSanitizer can
//! check.
//!
//! Between processes, and between two maps of one memfd, it sees nothing; the simulator takes turns. Here a record's
//! bytes that are not ordered by Tail and Head are a data race, and `ci/sanitizers` finds it.
#![allow(
    unsafe_code,
    reason = "the bytes of a lane are shared between threads as between processes"
)]

use std::cell::{RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

use bellwire_core::drive::{CallDriver, CallFailed};
use bellwire_core::lane::{Armed, Epoch, LaneTerms, Lanes, PushError};
use bellwire_core::resize::{self, FollowError, Shortage};
use bellwire_core::serve::{Flushed, Incoming, RespondError, ServeMachine};
use bellwire_core::sync::{AtomicU64, Ordering};
use bellwire_core::wire::{CloseReason, Status};
use bellwire_core::{
    Bell, Deadline, Geometry, Instant, Limits, OwnMemory, Park, PeerMemory, Port, SpinPolicy,
    Woken, Word,
};

use crate::pair::payload;

/// The memory of one epoch of a lane.
struct Bytes(Box<[UnsafeCell<u8>]>);

// SAFETY: only the protocol orders writes and reads: that is what is tested.
unsafe impl Sync for Bytes {}

/// What an end shares: its page's words, and the lanes that were passed and not followed yet.
struct Shared {
    words: Vec<AtomicU64>,
    first: Arc<Bytes>,
    passed: Mutex<VecDeque<(Epoch, Arc<Bytes>)>>,
}

/// One end's memory, or its peer's, as that end has it.
struct Side {
    shared: Arc<Shared>,
    lane: RefCell<Arc<Bytes>>,
}

struct End {
    own: Side,
    peer: Side,
}

impl Bytes {
    fn new(size: Geometry) -> Arc<Self> {
        Arc::new(Self((0..size.size()).map(|_| UnsafeCell::new(0)).collect()))
    }

    /// Where these bytes are: an access outside the lane panics.
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        UnsafeCell::raw_get(self.0[offset..offset + len].as_ptr())
    }
}

impl Shared {
    fn new(size: Geometry) -> Arc<Self> {
        let words = (0..512).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { words, first: Bytes::new(size), passed: Mutex::default() })
    }
}

impl Side {
    fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), lane: RefCell::new(Arc::clone(&shared.first)) }
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        &self.shared.words[word.offset() / 8]
    }
}

impl OwnMemory for Side {
    fn store(&self, word: Word, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let into = self.lane.borrow().at(offset, bytes.len());
        // SAFETY: it is in the lane, and the caller's bytes are not.
        unsafe { into.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl PeerMemory for Side {
    fn load(&self, word: Word, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.lane.borrow().at(offset, into.len());
        // SAFETY: it is in the lane, and the caller's bytes are not.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }
}

impl Port for End {
    type Own = Side;
    type Peer = Side;

    fn own(&self) -> &Side {
        &self.own
    }

    fn peer(&self) -> &Side {
        &self.peer
    }

    fn now(&self) -> Instant {
        Instant::default()
    }

    /// A parked end polls.
    fn ring(&self, _: Bell) {}

    fn park(&mut self, park: Park) -> Woken {
        // As a futex does: the words are compared, and order nothing.
        let is = |word, seen| self.peer.load(word, Ordering::Relaxed) == seen;
        while is(Word::Tail, park.tail) && park.head.is_none_or(|head| is(Word::Head, head)) {
            thread::yield_now();
        }
        Woken::Rung
    }

    fn offer(&mut self, epoch: Epoch) -> Result<(), Shortage> {
        let mut passed = self.own.shared.passed.lock().unwrap();
        passed.push_back((epoch, Bytes::new(epoch.size)));
        // It is adopted before another one is offered.
        let (_, lane) = passed.back().unwrap();
        OFFERED.with(|offered| *offered.borrow_mut() = Some(Arc::clone(lane)));
        Ok(())
    }

    fn adopt(&mut self, _: Epoch) {
        let lane = OFFERED.with(|offered| offered.borrow_mut().take());
        *self.own.lane.borrow_mut() = lane.expect("it was offered");
    }

    fn follow(&mut self, epoch: Epoch) -> Result<(), FollowError> {
        let passed = self.peer.shared.passed.lock().unwrap().pop_front();
        let (number, lane) = passed.expect("it was passed before the switch was published");
        assert_eq!(number, epoch);
        *self.peer.lane.borrow_mut() = lane;
        Ok(())
    }
}

thread_local! {
    /// This thread's end has one lane that it offered and does not use yet.
    static OFFERED: RefCell<Option<Arc<Bytes>>> = const { RefCell::new(None) };
}

/// Calls, of every size that the lane can hold as it is or when it has grown.
const CALLS: u64 = if cfg!(debug_assertions) { 600 } else { 6000 };

fn length(id: u64, most: Geometry) -> usize {
    let share = most.max_payload() as u64 / 100;
    (id * id % 97 * (1 + id % 7 * share / 7)) as usize
}

#[test]
fn tail_and_head_order_the_bytes_of_two_threads_over_one_map() {
    let size = Geometry::SMALLEST;
    for most in [size, Geometry::DEFAULT] {
        let limits = Limits { max_lane: most, ..Limits::default() };
        let terms = LaneTerms::agreed(size, size, &limits, &limits);
        let shared = [Shared::new(size), Shared::new(size)];
        thread::scope(|scope| {
            scope.spawn(|| serve(&shared, terms));
            call(&shared, terms);
        });
    }
}

fn end(shared: &[Arc<Shared>; 2], me: usize) -> End {
    let end = End { own: Side::new(&shared[me]), peer: Side::new(&shared[1 - me]) };
    Lanes::open(&end.own);
    end
}

fn call(shared: &[Arc<Shared>; 2], terms: LaneTerms) {
    let lanes = Lanes::with_terms(terms, terms);
    let mut driver = CallDriver::new(end(shared, 0), lanes, SpinPolicy::NEVER);
    let (mut buffer, mut until) = (Vec::new(), Deadline::NEVER);
    let (mut asked, mut answered) = (0, 0);
    while answered < CALLS {
        while asked < CALLS && asked - answered < 16 {
            match driver.submit(&payload(asked + 1, length(asked + 1, terms.most))) {
                Ok(ticket) => assert_eq!(ticket.id(), asked + 1),
                Err(CallFailed::Submit(_)) => break,
                Err(failed) => panic!("{failed}"),
            }
            asked += 1;
        }
        let reply = driver.wait_for_reply(&mut until, &mut buffer).unwrap();
        let id = reply.ticket.id();
        assert_eq!(buffer[..reply.len], payload(!id, length(id, terms.most)), "answer {id}");
        answered += 1;
    }
    driver.close(CloseReason::Normal);
}

fn serve(shared: &[Arc<Shared>; 2], terms: LaneTerms) {
    let mut end = end(shared, 1);
    let mut lanes = Lanes::with_terms(terms, terms);
    let mut serve = ServeMachine::new(64);
    let mut buffer = Vec::new();
    let mut is_closed = false;
    while !is_closed {
        let flushed = serve.flush(&mut lanes, &end.own, &end.peer, |_| Ok(()), |_, _| {}).unwrap();
        if let Flushed::Grow(to) = flushed {
            grow(&mut end, &mut lanes, to);
        }
        match serve.next(&mut lanes, &end.own, &end.peer, &mut buffer).unwrap() {
            Some(Incoming::Request { id, len, .. }) => {
                assert_eq!(buffer[..len], payload(id, length(id, terms.most)), "request {id}");
                let payload = payload(!id, length(id, terms.most));
                answer(&mut end, &mut lanes, &mut serve, id, &payload);
            }
            Some(Incoming::Switch(switch)) => {
                resize::follow(&mut end, &mut lanes, &switch).unwrap();
            }
            Some(Incoming::Closed(_)) => is_closed = true,
            Some(other) => panic!("nobody sent {other:?}"),
            None => {
                let space = serve.is_blocked();
                let (armed, _) = lanes.arm(&end.own, &end.peer, space).unwrap();
                if let Armed::Sleep { tail, head } = armed {
                    end.park(Park { tail, head, until: None });
                }
            }
        }
        let _ = lanes.commit(&end.own, &end.peer);
    }
}

fn answer(end: &mut End, lanes: &mut Lanes, serve: &mut ServeMachine, id: u64, payload: &[u8]) {
    loop {
        match serve.respond(lanes, &end.own, &end.peer, id, Status::Ok, payload) {
            Ok(()) => return,
            Err(RespondError::Grow(to)) => grow(end, lanes, to),
            Err(RespondError::Full { .. }) => return serve.respond_later(id, Status::Ok, payload),
            Err(error) => panic!("{error}"),
        }
    }
}

fn grow(end: &mut End, lanes: &mut Lanes, to: Geometry) {
    match resize::grow(end, lanes, to) {
        // The client follows later.
        Ok(()) | Err(resize::ResizeError::Push(PushError::Full { .. })) => thread::yield_now(),
        Err(error) => panic!("{error}"),
    }
}
