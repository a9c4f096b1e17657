//! Events that the kernel programs report: single calls, and what happens besides.

use serde::Serialize;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// `struct way` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Way {
    sent: u64,
    published: u64,
    waking: u64,
    on_cpu: u64,
    received: u64,
    length: u64,
    pid: u32,
    tid: u32,
    waker: u32,
    pad: u32,
    comm: [u8; 16],
    waker_comm: [u8; 16],
}

/// `struct call_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct CallEvent {
    kind: u64,
    number: u64,
    created: u64,
    sequence: u64,
    service: [u8; 64],
    request: Way,
    reply: Way,
}

/// `struct note_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct NoteEvent {
    kind: u64,
    at: u64,
    number: u64,
    created: u64,
    service: [u8; 64],
    role: u64,
    args: [u64; 3],
    pid: u32,
    tid: u32,
    comm: [u8; 16],
}

/// `A_CALL` of `bpf/trace.h`.
const A_CALL: u64 = 0;

/// Events besides calls: `enum kind` of `bpf/trace.h`, the probe, and its arguments after the session.
pub(crate) const NOTES: [(u64, &str, &[&str]); 5] = [
    (1, "lane_full", &["missing"]),
    (2, "lane_resized", &["whose", "epoch", "size"]),
    (3, "session_opened", &[]),
    (4, "session_closed", &["reason"]),
    (5, "call_failed", &["sequence", "kind"]),
];

/// An event.
pub(crate) enum Told {
    Call(Box<Call>),
    Note(Note),
}

/// A call and its stages.
#[derive(Debug, Serialize)]
pub(crate) struct Call {
    pub(crate) service: String,
    pub(crate) session: u64,
    pub(crate) sequence: u64,
    /// When the server created the session's page, in nanoseconds since 1970.
    pub(crate) created: u64,
    /// When it was sent, in nanoseconds of the host's monotonic clock.
    pub(crate) sent_ns: u64,
    pub(crate) total_ns: u64,
    pub(crate) request: Direction,
    pub(crate) receive_ns: u64,
    pub(crate) reply: Direction,
}

/// One direction of a call.
#[derive(Debug, Serialize)]
pub(crate) struct Direction {
    pub(crate) send_ns: u64,
    pub(crate) publish_ns: u64,
    /// `None` if the receiver was awake.
    pub(crate) wake_ns: Option<u64>,
    pub(crate) on_cpu_ns: Option<u64>,
    pub(crate) length: u64,
    pub(crate) receiver: String,
    pub(crate) receiver_pid: u32,
    pub(crate) receiver_tid: u32,
    pub(crate) waker: Option<String>,
    pub(crate) waker_tid: Option<u32>,
}

/// Something that happened to a session.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) probe: &'static str,
    /// The probe's arguments after the session, by name.
    pub(crate) args: Vec<(&'static str, u64)>,
    /// In nanoseconds of the host's monotonic clock.
    pub(crate) at: u64,
    pub(crate) service: String,
    pub(crate) session: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: String,
}

impl Told {
    /// Parses an event's bytes. Returns `None` if they are of another version of the programs.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, _) = u64::read_from_prefix(bytes).ok()?;
        if kind == A_CALL {
            let (event, _) = CallEvent::read_from_prefix(bytes).ok()?;
            return Some(Self::Call(Box::new(Call::of(&event))));
        }
        let (event, _) = NoteEvent::read_from_prefix(bytes).ok()?;
        let (_, probe, names) = NOTES.into_iter().find(|(number, ..)| *number == kind)?;
        Some(Self::Note(Note {
            probe,
            args: names.iter().copied().zip(event.args).collect(),
            at: event.at,
            service: text(&event.service),
            session: event.number,
            pid: event.pid,
            tid: event.tid,
            comm: text(&event.comm),
        }))
    }
}

impl Call {
    fn of(event: &CallEvent) -> Self {
        let CallEvent { request, reply, .. } = event;
        Self {
            service: text(&event.service),
            session: event.number,
            sequence: event.sequence,
            created: event.created,
            sent_ns: request.sent,
            total_ns: reply.received.saturating_sub(request.sent),
            request: Direction::of(request),
            receive_ns: reply.sent.saturating_sub(request.received),
            reply: Direction::of(reply),
        }
    }
}

impl Direction {
    fn of(way: &Way) -> Self {
        let slept = way.waking > 0;
        let noticed = if slept { way.waking } else { way.received };
        Self {
            send_ns: way.published.saturating_sub(way.sent),
            publish_ns: noticed.saturating_sub(way.published),
            wake_ns: slept.then(|| way.on_cpu.saturating_sub(way.waking)),
            on_cpu_ns: slept.then(|| way.received.saturating_sub(way.on_cpu)),
            length: way.length,
            receiver: text(&way.comm),
            receiver_pid: way.pid,
            receiver_tid: way.tid,
            waker: slept.then(|| text(&way.waker_comm)),
            waker_tid: slept.then_some(way.waker),
        }
    }

    /// Returns the total time.
    pub(crate) fn total_ns(&self) -> u64 {
        let slept = self.wake_ns.unwrap_or(0) + self.on_cpu_ns.unwrap_or(0);
        self.send_ns + self.publish_ns + slept
    }
}

/// Returns a text that ends at the first zero, without terminal control characters.
pub(crate) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    printable(bytes)
}

/// Returns a process's name without terminal control characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "?")
}
