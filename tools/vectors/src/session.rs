//! A whole session: what each end does, what it sends, and how that changes the memory of both.

use std::collections::BTreeMap;

use bellwire_core::batch::BatchBuilder;
use bellwire_core::call::{Outgoing, Ticket};
use bellwire_core::drive::CallDriver;
use bellwire_core::handshake::{ClientStep, ServerStep};
use bellwire_core::lane::{Growth, Lanes};
use bellwire_core::resize::Shortage;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Doorbell, LIFE_OFFSET, Message, Role, Status};
use bellwire_core::{OwnMemory, SpinPolicy, Word};
use bellwire_sim::{Serving, Sim, SimEnd, SimMemory, Taken};
use zerocopy::IntoBytes;

use crate::control::{bytes_of, handshake, hello, size};
use crate::memory;
use crate::text::{Case, hex};

/// The two ends; a lane and an attachment by the number of its message.
struct Session {
    ends: [SimEnd; 2],
    client: CallDriver<SimEnd>,
    server: Serving,
    /// The lanes of the client and of the server, by epoch from 1.
    lanes: [Vec<SimMemory>; 2],
    /// What was shown of each memory, by its name.
    memory: BTreeMap<String, Vec<u8>>,
    rung: [u64; 2],
    /// What is pending for each end that a step before has shown already.
    shown: [usize; 2],
    steps: Vec<Case>,
}

const NAMES: [&str; 2] = ["client", "server"];

pub fn steps() -> Vec<Case> {
    let mut session = Session::open();
    session.calls();
    session.one_way_and_batches();
    session.around_the_lanes_end();
    session.in_parts();
    session.larger_lanes();
    session.attachments();
    session.end();
    session.steps
}

impl Session {
    /// The handshake, by both of its machines.
    fn open() -> Self {
        let (mut client, mut server, terms) = handshake();
        let hello_bytes = bytes_of(&client.hello(), 0);
        let ServerStep::Admit(_) = server.on_message(&hello_bytes, 0).unwrap() else { panic!() };
        let welcome = server.welcome(terms).unwrap();
        let welcome_bytes = bytes_of(&Message::Welcome(welcome), 3);
        let ClientStep::Map(_) = client.on_message(&welcome_bytes, 3).unwrap() else { panic!() };
        let join_bytes = bytes_of(&client.join().unwrap(), 2);
        let ServerStep::Map(..) = server.on_message(&join_bytes, 2).unwrap() else { panic!() };
        let ready_bytes = bytes_of(&server.ready().unwrap(), 0);
        let ClientStep::Done(_) = client.on_message(&ready_bytes, 0).unwrap() else { panic!() };

        let lane = size(4096);
        let limits = Some([hello().limits, welcome.limits]);
        let ends = Sim { lane, peer_lane: lane, least: lane, limits, ..Sim::default() }.ends();
        let client = CallDriver::new(ends[0].clone(), ends[0].lanes(), SpinPolicy::NEVER);
        let server = Serving::new(&ends[1], 1024).attaching(4000);
        let lanes = ends.each_ref().map(|end| vec![end.own().lane()]);
        let mut session = Self {
            ends,
            client,
            server,
            lanes,
            memory: BTreeMap::new(),
            rung: [0; 2],
            shown: [0; 2],
            steps: Vec::new(),
        };
        for (name, of, fds, bytes) in [
            ("hello", 0, 0, &hello_bytes),
            ("welcome", 1, 3, &welcome_bytes),
            ("join", 0, 2, &join_bytes),
        ] {
            let step = Case::new(name).with("by", NAMES[of]);
            session.steps.push(step.with("sends", format_args!("{fds} {}", hex(bytes))));
        }
        // Each end writes its choice once it has mapped the other's memory.
        for end in &session.ends {
            end.own().store(Word::Doorbell, Doorbell::Futex as u64, Ordering::Release);
        }
        let sent = format!("0 {}", hex(&ready_bytes));
        session.step_that("ready", 1, |step| step.push("sends", sent));
        session
    }

    fn calls(&mut self) {
        self.client.submit(b"41").unwrap();
        self.step("request-1", 0);
        self.takes(1, b"41");
        self.step("request-1-is-taken", 1);
        self.answers(1, Status::Ok, b"42");
        self.step("response-1", 1);
        self.reply(1, Status::Ok, b"42");
        self.took("response-1-is-taken", 0);
        assert!(!self.client.arm(false).unwrap(), "it would sleep");
        self.step("client-parks", 0);
        self.server.park();
        self.step("server-parks", 1);
        self.client.submit(b"no number").unwrap();
        self.step("request-2-rings", 0);
        self.server.wake_up();
        self.takes(2, b"no number");
        self.answers(2, Status::Failed, b"not a number");
        self.step("response-2-rings", 1);
        self.reply(2, Status::Failed, b"not a number");
        Lanes::disarm(&self.ends[0].lanes(), self.ends[0].own());
        self.took("response-2-is-taken", 0);
        let ticket = self.client.submit(b"9").unwrap();
        assert!(self.client.abandon(ticket));
        self.step("request-3-and-cancel", 0);
        self.takes(3, b"9");
        assert_eq!(self.server.take().unwrap(), Some(Taken::Cancel { id: 3 }));
        self.answers(3, Status::Cancelled, b"");
        self.step("response-3-cancelled", 1);
        assert_eq!(self.client.try_reply(&mut Vec::new()).unwrap(), None, "nobody wants it");
        self.took("response-3-is-dropped", 0);
    }

    fn one_way_and_batches(&mut self) {
        for number in [b"5", b"6"] {
            let ticket = self.client.push(Outgoing::from(number).one_way()).unwrap();
            assert_eq!(ticket, Ticket::ONE_WAY);
        }
        self.took("two-one-way-requests", 0);
        self.takes(0, b"5");
        self.takes(0, b"6");
        self.answers(0, Status::Ok, b"");
        self.answers(0, Status::Ok, b"");
        self.step("two-one-way-requests-are-taken", 1);
        let batch = |items: [(Status, &[u8]); 2]| {
            let mut batch = BatchBuilder::new(100);
            for (status, item) in items {
                batch.push_with(status, |into| into.extend_from_slice(item)).unwrap();
            }
            batch.finish().to_vec()
        };
        let asked = batch([(Status::Ok, b"1"), (Status::Ok, b"one")]);
        self.client.submit(Outgoing::batch(&asked)).unwrap();
        self.step("request-4-batch", 0);
        self.takes(4, &asked);
        let answer = batch([(Status::Ok, b"2"), (Status::Failed, b"not a number")]);
        self.answers(4, Status::Ok, &answer);
        self.step("response-4-batch", 1);
        self.reply(4, Status::Ok, &answer);
        self.took("response-4-is-taken", 0);
    }

    /// Requests that come to the lane's end, where a pad is needed.
    fn around_the_lanes_end(&mut self) {
        for id in 5..8 {
            let request = [b'0' + id; 1500];
            self.client.submit(&request).unwrap();
            self.step(&format!("request-{id}-of-1500"), 0);
            self.takes(id.into(), &request);
            self.answers(id.into(), Status::Ok, b"");
            self.reply(id.into(), Status::Ok, b"");
            self.took(&format!("request-{id}-is-taken-and-answered"), 1);
        }
    }

    fn in_parts(&mut self) {
        self.client.end_mut().set_growth(Growth::Never);
        let request: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let mut nth = 0;
        loop {
            nth += 1;
            let sent = self.client.submit_in_parts(&request);
            self.step(&format!("request-8-in-parts-{nth}"), 0);
            let taken = self.server.take().unwrap();
            self.server.commit();
            self.step(&format!("parts-{nth}-are-taken"), 1);
            if let Ok(ticket) = sent {
                assert_eq!(ticket.id(), 8);
                let payload = request.clone();
                assert_eq!(taken, Some(Taken::Request { id: 8, payload, attached: false }));
                break;
            }
            assert_eq!(taken, None);
        }
        self.answers(8, Status::Ok, b"5000");
        self.reply(8, Status::Ok, b"5000");
        self.took("request-8-is-answered", 1);
        self.client.end_mut().set_growth(Growth::Often);
    }

    /// A request for which the lane grows, and its trim.
    fn larger_lanes(&mut self) {
        let request = [b'9'; 2500];
        self.client.submit(&request).unwrap();
        self.step("request-9-in-a-larger-lane", 0);
        self.takes(9, &request);
        self.answers(9, Status::Ok, b"");
        self.reply(9, Status::Ok, b"");
        self.took("request-9-is-taken-and-answered", 1);
        self.client.trim().unwrap();
        self.step("client-trims", 0);
        assert_eq!(self.server.take().unwrap(), None);
        self.server.commit();
        assert_eq!(self.client.try_reply(&mut Vec::new()).unwrap(), None);
        assert!(self.client.is_trimmed());
        self.took("server-trims", 1);
    }

    fn attachments(&mut self) {
        let request = [b'A'; 100];
        let pass = |end: &SimEnd, id| -> Result<(), Shortage> { end.pass(id, &request) };
        self.client.submit_attached(request.len() as u64, false, pass).unwrap();
        self.step("request-10-attached", 0);
        let payload = request.to_vec();
        assert_eq!(
            self.server.take().unwrap(),
            Some(Taken::Request { id: 10, payload, attached: true })
        );
        let answer = [b'B'; 4000];
        self.answers(10, Status::Ok, &answer);
        self.step("response-10-attached", 1);
        let reply = self.client.try_reply(&mut Vec::new()).unwrap().unwrap();
        assert!(reply.attached);
        assert_eq!(self.ends[0].take(10).unwrap(), answer);
        self.took("response-10-is-taken", 0);
    }

    fn end(&mut self) {
        self.client.close(CloseReason::Normal);
        self.step("client-closes", 0);
        assert_eq!(self.server.take().unwrap(), None);
        assert_eq!(self.server.closed(), Some(CloseReason::Normal));
        self.server.close(CloseReason::Normal);
        self.step("server-closes", 1);
    }

    /// The server takes this request.
    fn takes(&mut self, id: u64, payload: &[u8]) {
        let payload = payload.to_vec();
        let request = Taken::Request { id, payload, attached: false };
        assert_eq!(self.server.take().unwrap(), Some(request));
    }

    /// The server answers, and publishes that.
    fn answers(&mut self, id: u64, status: Status, payload: &[u8]) {
        self.server.respond(id, status, payload);
        self.server.commit();
    }

    /// The client takes this answer.
    fn reply(&mut self, id: u64, status: Status, payload: &[u8]) {
        let mut buffer = Vec::new();
        let reply = self.client.try_reply(&mut buffer).unwrap().unwrap();
        let found = (reply.ticket.id(), reply.status, &buffer[..reply.len]);
        assert_eq!(found, (id, status, payload));
    }

    /// Ends a step in which the client has taken something, which it publishes.
    fn took(&mut self, name: &str, by: usize) {
        self.client.commit();
        self.step(name, by);
    }

    fn step(&mut self, name: &str, by: usize) {
        self.step_that(name, by, |_| {});
    }

    /// Ends a step of an end: what it sent and whom it rang, and the memory of both ends.
    fn step_that(&mut self, name: &str, by: usize, more: impl FnOnce(&mut Case)) {
        let mut step = Case::new(name).with("by", NAMES[by]);
        more(&mut step);
        for to in [0, 1] {
            let unread = self.ends[to].unread();
            for (bytes, memory) in unread.iter().skip(self.shown[to]) {
                step.push("sends", format_args!("{} {}", memory.len(), hex(bytes)));
                match Message::parse(bytes, memory.len()).unwrap() {
                    Message::Lane(_) => self.lanes[1 - to].extend(memory.iter().cloned()),
                    Message::Attachment(of) => {
                        let bytes = memory[0].start(usize::try_from(of.len).unwrap());
                        step.memory("attachment", &bytes, &[]);
                    }
                    _ => {}
                }
            }
            self.shown[to] = unread.len();
            if self.ends[to].rung() != self.rung[to] {
                self.rung[to] = self.ends[to].rung();
                step.push("rings", NAMES[to]);
            }
        }
        for (of, role) in [Role::Client, Role::Server].into_iter().enumerate() {
            let seen = self.ends[1 - of].peer();
            let mut page = seen.page();
            page[..128].copy_from_slice(memory::page(role).as_bytes());
            // What follows is for observers and for tracers.
            self.show(&mut step, &format!("{}-page", NAMES[of]), &page[..LIFE_OFFSET]);
            // Those before the one that is read are gone.
            let read = [self.server.lane_stats()[1].epoch, self.client.lane_stats()[1].epoch][of];
            let lanes = self.lanes[of].clone().into_iter().zip(1..);
            for (lane, epoch) in lanes.filter(|(_, epoch)| *epoch >= read) {
                let bytes = lane.start(usize::try_from(lane.size()).unwrap());
                self.show(&mut step, &format!("{}-lane-{epoch}", NAMES[of]), &bytes);
            }
        }
        self.steps.push(step);
    }

    /// Shows what of a memory is not as the step before has left it.
    fn show(&mut self, step: &mut Case, what: &str, bytes: &[u8]) {
        let before = self.memory.insert(what.to_owned(), bytes.to_vec()).unwrap_or_default();
        step.memory(what, bytes, &before);
    }
}
