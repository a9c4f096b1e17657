//! Messages prefixed by their lengths.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::ended;
use crate::Outcome;
use crate::contender::{Client, Counters, put};
use crate::handler::Handler;

/// The length before a message.
const HEAD: usize = 4;
/// What is read at once, at least. Shorter messages are copied after their length, to be sent by one plain write.
const CHUNK: usize = 64 << 10;

/// What was read and not taken yet.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Self {
        Self { bytes: vec![0; CHUNK], start: 0, end: 0 }
    }

    /// The length of the message at `at`, if it is there.
    #[inline]
    fn len_at(&self, at: usize) -> Option<usize> {
        let head = self.bytes.get(at..self.end)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*head)).ok()
    }

    /// The range of the message at `at`, if all of it is there.
    #[inline]
    fn whole_at(&self, at: usize) -> Option<std::ops::Range<usize>> {
        let from = at + HEAD;
        let to = from + self.len_at(at)?;
        (to <= self.end).then_some(from..to)
    }

    /// Reads more. 0 at the end of the stream.
    #[inline]
    fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        // Room for the message that has begun.
        let wanted = HEAD + self.len_at(self.start).unwrap_or(0);
        if self.start + wanted.max(CHUNK / 2) > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if wanted > self.bytes.len() || self.end == self.bytes.len() {
                self.bytes.resize(wanted.max(2 * self.bytes.len()), 0);
            }
        }
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        let read = loop {
            match from.read(room) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += read;
        Ok(read)
    }
}

/// Answers until the client has closed its end.
pub(super) fn answer(mut from: impl Read, mut to: impl Write, handler: Handler) -> io::Result<()> {
    let mut input = Input::new();
    while input.fill(&mut from)? > 0 {
        let mut at = input.start;
        while let Some(whole) = input.whole_at(at) {
            at = whole.end;
            handler.answer(input.bytes.get_mut(whole).unwrap_or_default());
        }
        to.write_all(input.bytes.get(input.start..at).unwrap_or_default())?;
        input.start = at;
    }
    Ok(())
}

/// Takes messages until the client has closed its end.
pub(super) fn take(mut from: impl Read, handler: Handler) -> io::Result<()> {
    let mut input = Input::new();
    while input.fill(&mut from)? > 0 {
        while let Some(whole) = input.whole_at(input.start) {
            input.start = whole.end;
            handler.take(input.bytes.get(whole).unwrap_or_default());
        }
    }
    Ok(())
}

/// The measuring end of a connection. Its reads and writes may be such that return where they would wait.
pub(in crate::contender) struct Frames<F, T> {
    from: F,
    to: T,
    input: Input,
    output: Vec<u8>,
    calls: u64,
}

impl<F: Read + AsFd, T: Write + AsFd> Frames<F, T> {
    pub(super) fn new(from: F, to: T) -> Self {
        let output = Vec::with_capacity(CHUNK);
        Self { from, to, input: Input::new(), output, calls: 0 }
    }

    /// Writes the rest of a frame from `sent` on: all, or as much as there is room for.
    #[inline]
    fn write(&mut self, head: [u8; HEAD], message: &[u8], sent: usize) -> io::Result<usize> {
        self.calls += 1;
        if HEAD + message.len() <= CHUNK {
            if sent == 0 {
                self.output.clear();
                self.output.extend_from_slice(&head);
                self.output.extend_from_slice(message);
            }
            return self.to.write(self.output.get(sent..).unwrap_or_default());
        }
        match head.get(sent..) {
            Some(head) => self.to.write_vectored(&[IoSlice::new(head), IoSlice::new(message)]),
            None => self.to.write(message.get(sent - HEAD..).unwrap_or_default()),
        }
    }

    /// Reads what has come, so that the other end can read on, or waits until there is room.
    #[cold]
    fn make_room(&mut self) -> Outcome<()> {
        let mut ends =
            [PollFd::new(&self.to, PollFlags::OUT), PollFd::new(&self.from, PollFlags::IN)];
        retry_on_intr(|| poll(&mut ends, None))?;
        let [_, from] = ends;
        if from.revents().is_empty() { Ok(()) } else { self.fill() }
    }

    #[inline]
    fn fill(&mut self) -> Outcome<()> {
        loop {
            self.calls += 1;
            match self.input.fill(&mut self.from) {
                Ok(0) => return Err(ended().into()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[cold]
    fn wait(&self) -> Outcome<()> {
        let mut ends = [PollFd::new(&self.from, PollFlags::IN)];
        retry_on_intr(|| poll(&mut ends, None))?;
        Ok(())
    }

    /// Takes the rest of a long message where it is wanted.
    #[cold]
    fn receive_long(&mut self, len: usize, answer: &mut [u8]) -> Outcome<usize> {
        let Input { bytes, start, end } = &mut self.input;
        let here = bytes.get(*start + HEAD..*end).unwrap_or_default();
        let (first, mut rest) = answer
            .get_mut(..len)
            .and_then(|answer| answer.split_at_mut_checked(here.len()))
            .ok_or("an answer that is too long")?;
        first.copy_from_slice(here);
        (*start, *end) = (0, 0);
        while !rest.is_empty() {
            self.calls += 1;
            match self.from.read(rest) {
                Ok(0) => return Err(ended().into()),
                Ok(read) => rest = rest.get_mut(read..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(len)
    }
}

impl<F: Read + AsFd, T: Write + AsFd> Client for Frames<F, T> {
    #[inline]
    fn submit(&mut self, message: &[u8]) -> Outcome<()> {
        let head = u32::try_from(message.len())?.to_le_bytes();
        let mut sent = 0;
        while sent < HEAD + message.len() {
            match self.write(head, message, sent) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.make_room()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        loop {
            let input = &mut self.input;
            if let Some(whole) = input.whole_at(input.start) {
                input.start = whole.end;
                return put(input.bytes.get(whole).unwrap_or_default(), answer);
            }
            match input.len_at(input.start) {
                Some(len) if len >= CHUNK / 2 => return self.receive_long(len, answer),
                _ => self.fill()?,
            }
        }
    }

    fn counters(&mut self) -> Counters {
        Counters::of_system_calls(self.calls)
    }
}
