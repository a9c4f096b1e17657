use std::collections::VecDeque;
use std::time::Duration;

use bellwire::{CallError, Client, ClientConfig, Payload, RunDir, Session, Ticket};

use super::arrivals::{Arrivals, Sequences};
use super::figures::{Burst, Sent, SessionFigures};
use super::lane::{Cause, Watch};
use super::message::{DemoBurst, Message, Stream};
use super::{Step, Trouble};
use crate::demo::protocol::FromConsumer;
use crate::exit::Failure;
use crate::out;

/// How long an answer, or room for a request, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One session of the burst: numbers the messages that it sends and checks the answers.
pub(super) struct Line {
    name: &'static str,
    client: Client<DemoBurst>,
    /// The last sequence number used in this session.
    sequence: u64,
    sent: Sent,
    answers: Arrivals,
    sequences: Sequences,
    out_of_turn: u64,
    /// In the order sent.
    in_flight: VecDeque<(Ticket, Expected)>,
    watch: Watch,
}

/// The expected answer to a request. Its run is the request's place among all of the session.
type Expected = Message;

impl Line {
    /// Opens the session. It is the only one: nothing here reconnects.
    pub(super) fn connect(name: &'static str, run_dir: &RunDir) -> Result<Self, Failure> {
        let config = ClientConfig::default().timeout(PATIENCE);
        let mut client = Client::with_config(run_dir, config);
        let watch = Watch::new(name, &client.connect()?.stats());
        Ok(Self {
            name,
            client,
            sequence: 0,
            sent: Sent::default(),
            answers: Arrivals::default(),
            sequences: Sequences::default(),
            out_of_turn: 0,
            in_flight: VecDeque::new(),
            watch,
        })
    }

    pub(super) fn take(&mut self, step: Step) -> Result<(), Trouble> {
        match step {
            Step::Calls(messages, len) => (0..messages).try_for_each(|_| self.call(len)),
            Step::Ahead(messages, len) => self.send_ahead(messages, len),
        }
    }

    /// Calls with a request and an answer of `len` bytes each.
    fn call(&mut self, len: usize) -> Result<(), Trouble> {
        let (request, expected) = self.request(len)?;
        self.call_with(&request, &expected)
    }

    /// Creates a message in a memfd of its own, for several sessions.
    pub(super) fn attached(len: usize) -> Result<Payload, Trouble> {
        let message = Message { stream: Stream::Attached, sequence: 1, answer: len, run: 0 };
        Ok(message.build(0, len)?)
    }

    /// Calls with such a message; the answer too arrives in a memfd of its own.
    pub(super) fn call_attached(&mut self, request: &Payload) -> Result<(), Trouble> {
        self.sent.attached += 1;
        let run = self.sent.messages + 1;
        let stream = Stream::Attached;
        let expected = Message { stream, sequence: 1, answer: request.len(), run };
        self.call_with(request, &expected)
    }

    /// Sends `requests` requests of `len` bytes, each as soon as there is room, and takes all answers.
    fn send_ahead(&mut self, requests: u64, len: usize) -> Result<(), Trouble> {
        for _ in 0..requests {
            let (request, expected) = self.request(len)?;
            let ticket = loop {
                match session(&mut self.client)?.submit(&request) {
                    Err(CallError::WouldBlock) => self.make_room(len)?,
                    submitted => break submitted?,
                }
            };
            self.count_sent(&request);
            self.in_flight.push_back((ticket, expected));
            self.tell_changes(Cause::Submit(len))?;
        }
        while !self.in_flight.is_empty() {
            self.take_answer(len)?;
        }
        Ok(())
    }

    /// Shrinks the lanes.
    pub(super) fn trim(&mut self) -> Result<(), Trouble> {
        session(&mut self.client)?.trim()?;
        self.tell_changes(Cause::Trim)
    }

    pub(super) fn add_to(&self, burst: &mut Burst) {
        burst.sent.messages += self.sent.messages;
        burst.sent.bytes += self.sent.bytes;
        burst.sent.longest = burst.sent.longest.max(self.sent.longest);
        burst.sent.attached += self.sent.attached;
        burst.answers.add(&self.answers);
        burst.out_of_turn += self.out_of_turn;
        burst.lanes.extend(self.watch.spans());
    }

    pub(super) fn figures(&mut self) -> Option<SessionFigures> {
        let stats = self.client.session()?.stats();
        Some(SessionFigures::new(self.name, &stats))
    }

    /// Returns the next request and the expected answer.
    fn request(&mut self, len: usize) -> Result<(Payload, Expected), Trouble> {
        self.sequence += 1;
        let (stream, sequence) = (Stream::Own, self.sequence);
        let request = Message { stream, sequence, answer: len, run: 0 };
        let expected = Message { run: self.sent.messages + 1, ..request };
        Ok((request.build(usize::MAX, len)?, expected))
    }

    fn call_with(&mut self, request: &Payload, expected: &Expected) -> Result<(), Trouble> {
        let answer = session(&mut self.client)?.call(request);
        self.count_sent(request);
        self.check(expected, &answer?);
        self.tell_changes(Cause::Call(request.len()))
    }

    fn count_sent(&mut self, request: &Payload) {
        self.sent.messages += 1;
        self.sent.bytes += request.len() as u64;
        self.sent.longest = self.sent.longest.max(request.len());
    }

    /// Waits when the lane is full: taking answers, and the provider's progress, make room.
    fn make_room(&mut self, len: usize) -> Result<(), Trouble> {
        if self.in_flight.is_empty() {
            std::thread::yield_now();
            return Ok(());
        }
        self.take_answer(len)
    }

    /// Waits for an answer and checks it.
    fn take_answer(&mut self, len: usize) -> Result<(), Trouble> {
        let (ticket, answer) = session(&mut self.client)?.wait_reply(PATIENCE)?;
        let place = self.in_flight.iter().position(|(sent, _)| *sent == ticket);
        let expected = place.and_then(|place| self.in_flight.remove(place));
        let answer = answer?;
        match expected {
            Some((_, expected)) => self.check(&expected, &answer),
            // Nothing waited for it, or it was answered before.
            None => self.answers.count_again(answer.len()),
        }
        self.tell_changes(Cause::Answer(len))
    }

    fn check(&mut self, expected: &Expected, answer: &Payload) {
        let parsed = Message::parse(answer);
        let right = parsed.filter(|message| {
            Message { run: expected.run, ..*message } == *expected
                && answer.len() == expected.answer
        });
        self.answers.count(&mut self.sequences, answer.len(), right.as_ref());
        self.out_of_turn += u64::from(right.is_some_and(|message| message.run != expected.run));
    }

    /// Reports which lanes have changed their size.
    fn tell_changes(&mut self, cause: Cause) -> Result<(), Trouble> {
        let stats = session(&mut self.client)?.stats();
        for change in self.watch.look(&stats, cause) {
            out::json_line(&FromConsumer::Lane(change))?;
        }
        Ok(())
    }
}

/// Returns the session that was opened at the start.
fn session(client: &mut Client<DemoBurst>) -> Result<&mut Session<DemoBurst>, Trouble> {
    client.session().ok_or_else(|| Trouble::Wrong("the session is over".into()))
}
