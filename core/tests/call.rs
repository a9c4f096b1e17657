//! The calling machine, against a peer that is written by hand.

use bellwire_core::call::{
    CallMachine, Incoming, MAX_WINDOW, Outgoing, Reply, SubmitError, Ticket,
};
use bellwire_core::lane::Lanes;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{Header, Kind, Status};
use bellwire_core::{Geometry, PeerFault, PeerMemory, Word};
use bellwire_sim::{Sim, SimEnd};
use proptest::prelude::*;

/// A caller, and the other end by hand.
struct Pair {
    ends: [SimEnd; 2],
    lanes: Lanes,
    calls: CallMachine,
    other: Lanes,
    buffer: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        Self::with(Sim::default())
    }

    fn with(sim: Sim) -> Self {
        let ends = sim.ends();
        let (lanes, other) = (ends[0].lanes(), ends[1].lanes());
        Self { ends, lanes, calls: CallMachine::default(), other, buffer: Vec::new() }
    }

    fn submit(&mut self, payload: &[u8]) -> Result<Ticket, SubmitError> {
        let end = &self.ends[0];
        self.calls.submit(&mut self.lanes, end.own(), end.peer(), payload)
    }

    fn commit(&mut self) {
        let _ = self.lanes.commit(self.ends[0].own(), self.ends[0].peer());
    }

    fn abandon(&mut self, ticket: Ticket) -> bool {
        let end = &self.ends[0];
        self.calls.abandon(&mut self.lanes, end.own(), end.peer(), ticket)
    }

    fn reply(&mut self) -> Result<Option<Reply>, PeerFault> {
        match self.incoming()? {
            None => Ok(None),
            Some(Incoming::Reply(reply)) => Ok(Some(reply)),
            Some(other) => panic!("an answer, not {other:?}"),
        }
    }

    fn incoming(&mut self) -> Result<Option<Incoming>, PeerFault> {
        let end = &self.ends[0];
        self.calls.next_reply(&mut self.lanes, end.own(), end.peer(), &mut self.buffer)
    }

    /// The other end writes a record.
    fn send(&mut self, kind: Kind, id: u64, payload: &[u8]) {
        let header = Header::new(kind, Status::Ok, id, payload.len() as u32);
        self.send_header(header, payload);
    }

    fn send_header(&mut self, header: Header, payload: &[u8]) {
        let end = &self.ends[1];
        self.other.push(end.own(), end.peer(), header, payload).unwrap();
        let _ = self.other.commit(end.own(), end.peer());
    }

    /// The other end takes a record: its kind and id.
    fn take(&mut self) -> Option<(Kind, u64)> {
        let end = &self.ends[1];
        let record = self.other.peek(end.peer()).unwrap()?;
        self.other.take_before_acting(end.own(), &record);
        Some((record.kind, record.id))
    }
}

proptest! {
    #[test]
    fn answers_are_taken_in_any_order(order in Just((1_u64..=20).collect::<Vec<_>>()).prop_shuffle()) {
        let mut pair = Pair::new();
        for id in 1..=20_u64 {
            let ticket = pair.submit(&id.to_le_bytes()).unwrap();
            prop_assert_eq!(ticket.id(), id);
        }
        pair.commit();
        for (answered, id) in order.iter().enumerate() {
            prop_assert_eq!(pair.calls.in_flight(), 20 - answered);
            pair.send(Kind::Response, *id, &id.to_be_bytes());
            let reply = pair.reply().unwrap().unwrap();
            prop_assert_eq!((reply.ticket.id(), reply.status, reply.len), (*id, Status::Ok, 8));
            prop_assert_eq!(&pair.buffer[..8], &id.to_be_bytes());
            prop_assert!(!pair.calls.is_waiting(reply.ticket));
        }
        prop_assert_eq!(pair.calls.in_flight(), 0);
        prop_assert_eq!(pair.reply(), Ok(None));
        for id in 0..=21 {
            let mut again = Pair { calls: std::mem::take(&mut pair.calls), ..Pair::new() };
            again.send(Kind::Response, id, &[]);
            prop_assert_eq!(again.reply(), Err(PeerFault::UnknownId { id }));
            pair.calls = again.calls;
        }
    }
}

#[test]
fn an_abandoned_request_is_cancelled_and_its_answer_dropped() {
    let mut pair = Pair::new();
    let first = pair.submit(b"a").unwrap();
    let second = pair.submit(b"b").unwrap();
    assert!(pair.abandon(first));
    assert!(!pair.abandon(first), "once");
    assert_eq!(pair.calls.in_flight(), 1);
    assert!(!pair.calls.is_waiting(first) && pair.calls.is_waiting(second));
    pair.commit();
    assert_eq!(pair.take(), Some((Kind::Request, 1)));
    assert_eq!(pair.take(), Some((Kind::Request, 2)));
    assert_eq!(pair.take(), Some((Kind::Cancel, 1)));
    pair.send(Kind::Response, 1, b"unwanted");
    pair.send(Kind::Response, 2, b"wanted");
    let reply = pair.reply().unwrap().unwrap();
    assert_eq!((reply.ticket, &pair.buffer[..reply.len]), (second, &b"wanted"[..]));
    assert_eq!(pair.reply(), Ok(None));
    assert!(!pair.abandon(second), "answered");
    pair.send(Kind::Response, 1, &[]);
    assert_eq!(
        pair.reply(),
        Err(PeerFault::UnknownId { id: 1 }),
        "an abandoned one is answered once"
    );
}

/// Its memfd still has to be taken off the socket.
#[test]
fn an_abandoned_attachment_is_still_handed_out() {
    let mut pair = Pair::new();
    let ticket = pair.submit(&[]).unwrap();
    assert!(pair.abandon(ticket));
    pair.send(Kind::Attach, 1, &[]);
    let reply = pair.reply().unwrap().unwrap();
    assert!(reply.attached && reply.ticket == ticket);
    assert_eq!(pair.calls.in_flight(), 0);
}

#[test]
fn a_cancel_that_finds_no_room_is_left_out() {
    let mut pair = Pair::new();
    let mut last = None;
    while let Ok(ticket) = pair.submit(&[]) {
        last = Some(ticket);
    }
    assert!(pair.abandon(last.unwrap()));
}

/// A switch stays where it is until it is followed; a record that reports released memory is taken.
#[test]
fn switches_and_trims_are_handed_out() {
    let mut pair = Pair::new();
    pair.send(Kind::Trim, 0, &[]);
    pair.send(Kind::Switch, 1, &[]);
    assert_eq!(pair.incoming(), Ok(Some(Incoming::Trimmed)));
    for _ in 0..2 {
        let Ok(Some(Incoming::Switch(switch))) = pair.incoming() else { panic!("a switch") };
        assert_eq!((switch.at(), switch.kind, switch.id), (16, Kind::Switch, 1));
    }
}

/// The window is counted from the oldest unanswered request: one that is never answered closes it.
#[test]
fn requests_stop_at_the_window() {
    let lane = Geometry::new(4 << 20).unwrap();
    let mut pair = Pair::with(Sim { lane, ..Sim::default() });
    for _ in 0..MAX_WINDOW {
        pair.submit(&[]).unwrap();
    }
    assert_eq!(pair.submit(&[]), Err(SubmitError::Window));
    pair.send(Kind::Response, 2, &[]);
    pair.reply().unwrap().unwrap();
    assert_eq!(pair.submit(&[]), Err(SubmitError::Window));
    pair.send(Kind::Response, 1, &[]);
    pair.reply().unwrap().unwrap();
    assert_eq!(pair.submit(&[]).unwrap().id(), MAX_WINDOW as u64 + 1);
}

#[test]
fn the_buffer_grows_to_the_largest_answer_and_never_shrinks() {
    let mut pair = Pair::new();
    for (id, len) in [(1, 10), (2, 100), (3, 5)] {
        pair.submit(&[]).unwrap();
        pair.send(Kind::Response, id, &vec![id as u8; len]);
        let reply = pair.reply().unwrap().unwrap();
        assert_eq!(reply.len, len);
        assert!(pair.buffer[..len].iter().all(|byte| *byte == id as u8));
    }
    assert_eq!(pair.buffer.len(), 100);
}

#[test]
fn one_way_requests_take_no_place_and_their_number_not_taken_is_exact() {
    let mut pair = Pair::new();
    pair.calls.set_window(1);
    let post = |pair: &mut Pair, payload: &[u8]| {
        let end = &pair.ends[0];
        let request = Outgoing::from(payload).one_way();
        let sent = pair.calls.submit(&mut pair.lanes, end.own(), end.peer(), request);
        assert_eq!(sent, Ok(Ticket::ONE_WAY));
    };
    let unconsumed = |pair: &mut Pair| {
        let end = &pair.ends[0];
        pair.calls.unconsumed(&mut pair.lanes, end.peer()).unwrap()
    };
    post(&mut pair, &[1; 10]);
    let asked = pair.submit(&[2]).unwrap();
    assert_eq!(pair.submit(&[3]), Err(SubmitError::Window));
    post(&mut pair, &[]);
    post(&mut pair, &[4; 40]);
    pair.commit();
    assert_eq!((pair.calls.in_flight(), asked.id()), (1, 1));
    let taken = [(Kind::Request, 0), (Kind::Request, 1), (Kind::Request, 0), (Kind::Request, 0)];
    for (record, left) in taken.into_iter().zip([2, 2, 1, 0]) {
        assert_eq!(pair.take(), Some(record));
        let head = pair.ends[0].peer().load(Word::Head, Ordering::Acquire);
        assert_eq!(pair.calls.unconsumed_after(head), left);
        assert_eq!(unconsumed(&mut pair), left);
        assert_eq!(pair.calls.last_post_end().is_some(), left > 0);
    }
    pair.send(Kind::Response, 0, &[]);
    assert_eq!(pair.reply(), Err(PeerFault::UnknownId { id: 0 }), "nobody answers them");
}

#[test]
fn a_one_way_request_that_breaks_off_uses_up_no_number() {
    let mut pair = Pair::new();
    let end = &pair.ends[0];
    let long = vec![7; 8_000];
    let part = pair.calls.submit_part(
        &mut pair.lanes,
        end.own(),
        end.peer(),
        Outgoing::from(&long).one_way(),
    );
    assert_eq!(part, Ok(None));
    pair.calls.abort_parts();
    let ticket = pair.submit(&[1]).unwrap();
    pair.commit();
    assert_eq!(ticket.id(), 1);
    assert_eq!(pair.take(), Some((Kind::Request, 0)));
    assert_eq!(pair.take(), Some((Kind::Cancel, 0)));
    assert_eq!(pair.take(), Some((Kind::Request, 1)));
    assert_eq!(pair.calls.last_post_end(), None, "it was never whole");
}
