//! The events that the kernel programs report: single calls, and what happens to sessions.

use serde::Serialize;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// `struct direction` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawDirection {
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
struct RawCallEvent {
    kind: u64,
    number: u64,
    created: u64,
    sequence: u64,
    service: [u8; 64],
    request: RawDirection,
    reply: RawDirection,
}

/// `struct session_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawSessionEvent {
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

/// `CALL_EVENT` of `bpf/trace.h`.
const CALL_EVENT: u64 = 0;

/// The events of sessions: the value in `enum event_kind` of `bpf/trace.h`, the probe, and its arguments after the
/// session.
pub(crate) const SESSION_PROBES: [(u64, &str, &[&str]); 5] = [
    (1, "lane_full", &["missing"]),
    (2, "lane_resized", &["whose", "epoch", "size"]),
    (3, "session_opened", &[]),
    (4, "session_closed", &["reason"]),
    (5, "call_failed", &["sequence", "kind"]),
];

/// An event that the kernel programs report.
pub(crate) enum TraceEvent {
    Call(Box<Call>),
    Session(SessionEvent),
}

/// A call and its stages.
#[derive(Debug, Serialize)]
pub(crate) struct Call {
    pub(crate) service: String,
    pub(crate) session: u64,
    pub(crate) sequence: u64,
    /// When the server created the session's page, in nanoseconds since the Unix epoch.
    pub(crate) created: u64,
    /// When the request was sent, in nanoseconds of the host's monotonic clock.
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
pub(crate) struct SessionEvent {
    pub(crate) probe: &'static str,
    /// The probe's arguments after the session, by name.
    pub(crate) args: Vec<(&'static str, u64)>,
    /// When it happened, in nanoseconds of the host's monotonic clock.
    pub(crate) at: u64,
    pub(crate) service: String,
    pub(crate) session: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: String,
}

impl TraceEvent {
    /// Parses the bytes of an event. Returns `None` if they are from another version of the programs.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, _) = u64::read_from_prefix(bytes).ok()?;
        if kind == CALL_EVENT {
            let (event, _) = RawCallEvent::read_from_prefix(bytes).ok()?;
            return Some(Self::Call(Box::new(Call::of(&event))));
        }
        let (event, _) = RawSessionEvent::read_from_prefix(bytes).ok()?;
        let (_, probe, names) = SESSION_PROBES.into_iter().find(|(number, ..)| *number == kind)?;
        Some(Self::Session(SessionEvent {
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
    fn of(event: &RawCallEvent) -> Self {
        let RawCallEvent { request, reply, .. } = event;
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
    fn of(raw: &RawDirection) -> Self {
        let slept = raw.waking > 0;
        let detected = if slept { raw.waking } else { raw.received };
        Self {
            send_ns: raw.published.saturating_sub(raw.sent),
            publish_ns: detected.saturating_sub(raw.published),
            wake_ns: slept.then(|| raw.on_cpu.saturating_sub(raw.waking)),
            on_cpu_ns: slept.then(|| raw.received.saturating_sub(raw.on_cpu)),
            length: raw.length,
            receiver: text(&raw.comm),
            receiver_pid: raw.pid,
            receiver_tid: raw.tid,
            waker: slept.then(|| text(&raw.waker_comm)),
            waker_tid: slept.then_some(raw.waker),
        }
    }

    /// Returns the total time of this direction.
    pub(crate) fn total_ns(&self) -> u64 {
        let asleep = self.wake_ns.unwrap_or(0) + self.on_cpu_ns.unwrap_or(0);
        self.send_ns + self.publish_ns + asleep
    }
}

/// Returns the text up to the first NUL, without terminal control characters.
pub(crate) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    printable(bytes)
}

/// Returns a process's name without terminal control characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "?")
}
