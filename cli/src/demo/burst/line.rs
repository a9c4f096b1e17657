use std::collections::VecDeque;
use std::time::Duration;

use bellwire::{CallError, Client, ClientConfig, Payload, RunDir, Session, Shortage, Ticket};

use super::Step;
use super::arrivals::Sequences;
use super::figures::{Burst, LaneSpan, SessionFigures};
use super::lane::{Cause, Watch};
use super::message::{DemoBurst, Message, Stream};
use crate::exit::{Exit, Failure};
use crate::stop::Stop;

/// How long an answer, or room for a request, may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// One session of the burst: numbers the messages that it sends and checks the answers.
pub(super) struct Line {
    name: &'static str,
    client: Client<DemoBurst>,
    /// The last sequence number used in this session.
    sequence: u64,
    /// How many messages were sent, of all streams.
    sent: u64,
    sequences: Sequences,
    /// In the order sent.
    in_flight: VecDeque<(Ticket, Expected)>,
    watch: Watch,
}

/// The expected answer to a request. Its run is the request's place among all of the session.
type Expected = Message;

impl Line {
    /// Opens the session. It is the only one: nothing here reconnects.
    pub(super) fn connect(name: &'static str, run_dir: &RunDir) -> Result<Self, Failure> {
        let config = ClientConfig::default().timeout(CALL_TIMEOUT);
        let mut client = Client::with_config(run_dir, config);
        let watch = Watch::new(name, &client.connect()?.stats());
        let (sequences, in_flight) = (Sequences::default(), VecDeque::new());
        Ok(Self { name, client, sequence: 0, sent: 0, sequences, in_flight, watch })
    }

    pub(super) fn take(
        &mut self,
        step: Step,
        stop: &Stop,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        match step {
            Step::Calls(messages, len) => (0..messages).try_for_each(|_| {
                stop.check()?;
                let (request, expected) = self.request(len)?;
                self.call(&request, &expected, burst)
            }),
            Step::Ahead(messages, len) => self.send_ahead(messages, len, stop, burst),
        }
    }

    /// Creates a message in a memfd of its own, for several sessions.
    pub(super) fn attached(len: usize) -> Result<Payload, Failure> {
        let message = Message { stream: Stream::Attached, sequence: 1, answer: len, run: 0 };
        message.build(0, len).map_err(short)
    }

    /// Calls with such a message; the answer too arrives in a memfd of its own.
    pub(super) fn call_attached(
        &mut self,
        request: &Payload,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        burst.sent.attached += 1;
        let (stream, run) = (Stream::Attached, self.sent + 1);
        let expected = Message { stream, sequence: 1, answer: request.len(), run };
        self.call(request, &expected, burst)
    }

    /// Sends `requests` requests of `len` bytes, each as soon as there is room, and takes all answers.
    fn send_ahead(
        &mut self,
        requests: u64,
        len: usize,
        stop: &Stop,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        for _ in 0..requests {
            let (request, expected) = self.request(len)?;
            let ticket = loop {
                stop.check()?;
                match session(&mut self.client)?.submit(&request) {
                    // Taking answers, and the provider's progress, make room.
                    Err(CallError::WouldBlock) if self.in_flight.is_empty() => {
                        std::thread::yield_now();
                    }
                    Err(CallError::WouldBlock) => self.take_answer(len, burst)?,
                    submitted => break submitted?,
                }
            };
            self.count_sent(&request, burst);
            self.in_flight.push_back((ticket, expected));
            self.note_lanes(Cause::Submit(len), burst)?;
        }
        while !self.in_flight.is_empty() {
            stop.check()?;
            self.take_answer(len, burst)?;
        }
        Ok(())
    }

    /// Shrinks the lanes.
    pub(super) fn trim(&mut self, burst: &mut Burst) -> Result<(), Failure> {
        session(&mut self.client)?.trim()?;
        self.note_lanes(Cause::Trim, burst)
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = LaneSpan> {
        self.watch.spans()
    }

    pub(super) fn figures(&mut self) -> Option<SessionFigures> {
        let stats = self.client.session()?.stats();
        Some(SessionFigures::new(self.name, &stats))
    }

    /// Returns the next request and the expected answer.
    fn request(&mut self, len: usize) -> Result<(Payload, Expected), Failure> {
        self.sequence += 1;
        let (stream, sequence) = (Stream::Own, self.sequence);
        let request = Message { stream, sequence, answer: len, run: 0 };
        let expected = Message { run: self.sent + 1, ..request };
        Ok((request.build(usize::MAX, len).map_err(short)?, expected))
    }

    fn call(
        &mut self,
        request: &Payload,
        expected: &Expected,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        let answer = session(&mut self.client)?.call(request);
        self.count_sent(request, burst);
        self.check(expected, &answer?, burst);
        self.note_lanes(Cause::Call(request.len()), burst)
    }

    fn count_sent(&mut self, request: &Payload, burst: &mut Burst) {
        self.sent += 1;
        burst.sent.messages += 1;
        burst.sent.bytes += request.len() as u64;
        burst.sent.longest = burst.sent.longest.max(request.len());
    }

    /// Waits for an answer and checks it.
    fn take_answer(&mut self, len: usize, burst: &mut Burst) -> Result<(), Failure> {
        let (ticket, answer) = session(&mut self.client)?.wait_reply(CALL_TIMEOUT)?;
        let place = self.in_flight.iter().position(|(sent, _)| *sent == ticket);
        let expected = place.and_then(|place| self.in_flight.remove(place));
        let answer = answer?;
        match expected {
            Some((_, expected)) => self.check(&expected, &answer, burst),
            // Nothing waited for it, or it was answered before.
            None => burst.answers.count_again(answer.len()),
        }
        self.note_lanes(Cause::Answer(len), burst)
    }

    fn check(&mut self, expected: &Expected, answer: &Payload, burst: &mut Burst) {
        let parsed = Message::parse(answer);
        let right = parsed.filter(|message| {
            Message { run: expected.run, ..*message } == *expected
                && answer.len() == expected.answer
        });
        burst.answers.count(&mut self.sequences, answer.len(), right.as_ref());
        burst.out_of_turn += u64::from(right.is_some_and(|message| message.run != expected.run));
    }

    /// Notes which lanes have changed their size.
    fn note_lanes(&mut self, cause: Cause, burst: &mut Burst) -> Result<(), Failure> {
        let stats = session(&mut self.client)?.stats();
        burst.lane_changes.extend(self.watch.changes(&stats, cause));
        Ok(())
    }
}

/// Returns the session that was opened at the start.
fn session(client: &mut Client<DemoBurst>) -> Result<&mut Session<DemoBurst>, Failure> {
    client.session().ok_or_else(|| Failure::new(Exit::Failed, "the session is over"))
}

fn short(error: Shortage) -> Failure {
    Failure::of(Exit::Failed, "cannot make a message", &error)
}
