//! The events that the kernel programs report: single calls, and what happens to sessions.

use serde::Serialize;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::Pattern;
use crate::raw::{
    RawCallEvent, RawDeliveryEvent, RawDirection, RawOffEvent, RawSessionEvent, RawSlowEvent,
};

/// How long a handler's thread was off the CPU, in nanoseconds: `struct off_cpu` of `bpf/trace.h`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Serialize)]
#[repr(C)]
pub struct OffCpu {
    /// It could have run.
    pub runnable: u64,
    /// It slept.
    pub sleeping: u64,
    /// A signal or a debugger had stopped it.
    pub stopped: u64,
}

/// `POST` of `bpf/trace.h`.
pub(crate) const POST: u64 = 1 << 63;

/// `SLOW_CALL` and the like of `bpf/trace.h`.
const SLOW_CALL: u64 = 6;
const OFF_CPU: u64 = 7;
const POST_EVENT: u64 = 9;
const DELIVERY: u64 = 10;

/// `CALL_EVENT` of `bpf/trace.h`.
const CALL_EVENT: u64 = 0;

/// The events of sessions: the value in `enum event_kind` of `bpf/trace.h`, the probe, and its arguments after the
/// session.
pub(crate) const SESSION_PROBES: [(u64, &str, &[&str]); 6] = [
    (1, "lane_full", &["missing"]),
    (2, "lane_resized", &["whose", "epoch", "size"]),
    (3, "session_opened", &[]),
    (4, "session_closed", &["reason"]),
    (5, "call_failed", &["sequence", "kind"]),
    (8, "missed", &["sequence", "events"]),
];

/// An event that the kernel programs report.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceEvent {
    /// A call or a one-way request that was sampled.
    Call(Box<Call>),
    /// A snapshot or event that was sampled, as one reader took it.
    Delivery(Box<Delivery>),
    /// Something happened to a session.
    Session(SessionEvent),
    /// A call was slow, sampled or not.
    Slow(SlowCall),
    /// A thread of either end was off its CPU.
    OffCpu(OffTime),
}

/// A call that was slow, as its client saw it.
#[derive(Clone, Debug)]
pub struct SlowCall {
    /// The service's name.
    pub service: String,
    /// The session's number, unique in its server's process.
    pub session: u64,
    /// When the server created the session's page, in nanoseconds since the Unix epoch.
    pub created: u64,
    /// Its number in its session.
    pub sequence: u64,
    /// In nanoseconds of the host's monotonic clock.
    pub began: u64,
    /// The same, at the end.
    pub ended: u64,
    /// Of the answer.
    pub length: u64,
    /// The server, as the client's pid namespace sees it.
    pub peer: u32,
    /// The number of its cgroup: [`crate::processes::cgroup`].
    pub cgroup: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub thread: Thread,
}

/// A time during which a thread was off its CPU.
#[derive(Clone, Debug)]
pub struct OffTime {
    /// In nanoseconds of the host's monotonic clock.
    pub left: u64,
    /// When it could run again.
    pub runnable: u64,
    /// When it ran again.
    pub entered: u64,
    /// The number of its cgroup: [`crate::processes::cgroup`].
    pub cgroup: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub thread: Thread,
    /// Why it left.
    pub state: &'static str,
    /// Whether it has taken a sampled message, or was slow.
    pub takes_messages: bool,
    /// `None` if it was preempted.
    pub waker: Option<Thread>,
    /// The thread that got its CPU.
    pub next: Thread,
    /// Where it left in the kernel, the innermost function first.
    pub kernel_stack: Vec<u64>,
    /// Where it left in the program: [`crate::Tracer::stack`].
    pub user_stack: Option<u32>,
}

/// A thread and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for Thread {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Thread 0 runs when no other wants the CPU.
        let name = if self.tid == 0 { "idle" } else { &self.name };
        write!(out, "{name}/{}", self.tid)
    }
}

impl SlowCall {
    fn of(event: &RawSlowEvent) -> Self {
        Self {
            service: text(&event.head.service),
            session: event.head.number,
            created: event.head.created,
            sequence: event.head.sequence,
            began: event.began,
            ended: event.ended,
            length: event.length,
            peer: u32::try_from(event.peer).unwrap_or(0),
            cgroup: event.cgroup,
            pid: event.pid,
            thread: Thread { tid: event.tid, name: text(&event.comm) },
        }
    }
}

impl OffTime {
    fn of(event: &RawOffEvent) -> Self {
        let state = match event.state {
            2 => "sleeping",
            3 => "stopped",
            _ => "preempted",
        };
        let waker = Thread { tid: event.waker, name: text(&event.waker_comm) };
        Self {
            left: event.left,
            runnable: event.runnable,
            entered: event.entered,
            cgroup: event.cgroup,
            pid: event.pid,
            thread: Thread { tid: event.tid, name: text(&event.comm) },
            state,
            takes_messages: event.takes_messages != 0,
            waker: (event.runnable > event.left).then_some(waker),
            next: Thread { tid: event.next, name: text(&event.next_comm) },
            kernel_stack: event.kernel_stack.into_iter().take_while(|at| *at > 0).collect(),
            user_stack: u32::try_from(event.user_stack).ok(),
        }
    }
}

/// A call and its stages.
#[derive(Debug, Serialize)]
pub struct Call {
    /// A call or a one-way request.
    pub pattern: Pattern,
    /// The service's name.
    pub service: String,
    /// The session's number, unique in its server's process.
    pub session: u64,
    /// Its number in its session.
    pub sequence: u64,
    /// When the server created the session's page, in nanoseconds since the Unix epoch.
    pub created: u64,
    /// When the request was sent, in nanoseconds of the host's monotonic clock.
    pub sent_ns: u64,
    /// The sum of all stages; without the time of the tracer's own probes.
    pub total_ns: u64,
    /// How many calls this one stands for.
    pub weight: u64,
    /// The way there.
    pub request: Direction,
    /// The sum of the next three.
    pub receive_ns: u64,
    /// For a worker, and for the reactor.
    pub queue_ns: u64,
    /// To decode the request.
    pub decode_ns: u64,
    /// The handler, and encoding the answer.
    pub handler_ns: u64,
    /// When the handler's thread had the request, in nanoseconds of the host's monotonic clock, and that thread; `None` if
    /// not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handled: Option<Handled>,
    /// When the answer was sent, in nanoseconds of the host's monotonic clock.
    pub replied_ns: u64,
    /// The way back; of a one-way request empty.
    pub reply: Direction,
}

/// A snapshot or an event, as one reader took it.
#[derive(Debug, Serialize)]
pub struct Delivery {
    /// The service's name.
    pub service: String,
    /// The number of the reader's session, unique in its server's process.
    pub session: u64,
    /// When the server created the session's page, in nanoseconds since the Unix epoch.
    pub created: u64,
    /// The snapshot's generation, or the event's number.
    pub sequence: u64,
    /// How many this one stands for.
    pub weight: u64,
    /// When it was begun to be published, in nanoseconds of the host's monotonic clock.
    pub sent_ns: u64,
    /// The sum of all stages.
    pub total_ns: u64,
    /// From there until the reader noticed it.
    pub notice: Direction,
    /// Whether the reader mapped it, or else copied it.
    pub is_mapped: bool,
    /// To copy or map it.
    pub take_ns: u64,
    /// To validate or decode it.
    pub validate_ns: u64,
    /// The publishing process.
    pub publisher_pid: u32,
    /// The publishing thread.
    pub publisher_tid: u32,
    /// The publishing thread's name.
    pub publisher: String,
}

impl Delivery {
    fn of(event: &RawDeliveryEvent) -> Self {
        let notice = Direction::of(&event.direction);
        let take_ns = event.taken.saturating_sub(event.direction.received);
        let validate_ns = event.validated.saturating_sub(event.taken);
        Self {
            service: text(&event.head.service),
            session: event.head.number,
            created: event.head.created,
            sequence: event.head.sequence,
            weight: event.weight,
            sent_ns: event.direction.sent,
            total_ns: notice.total_ns() + take_ns + validate_ns,
            notice,
            is_mapped: event.is_mapped != 0,
            take_ns,
            validate_ns,
            publisher_pid: event.publisher_pid,
            publisher_tid: event.publisher_tid,
            publisher: text(&event.publisher_comm),
        }
    }
}

/// The thread that handled a call.
#[derive(Debug, Serialize)]
pub struct Handled {
    /// When it began.
    pub begun_ns: u64,
    /// When it was done.
    pub ended_ns: u64,
    /// How long it was off the CPU meanwhile, in nanoseconds; `None` if not all of it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_cpu: Option<OffCpu>,
    /// The thread.
    pub tid: u32,
    /// The thread.
    pub thread: String,
}

/// One direction of a call.
#[derive(Debug, Serialize)]
pub struct Direction {
    /// [`crate::Stage::Send`].
    pub send_ns: u64,
    /// [`crate::Stage::Publish`].
    pub publish_ns: u64,
    /// `None` if the receiver was awake.
    pub wake_ns: Option<u64>,
    /// [`crate::Stage::OnCpu`].
    pub on_cpu_ns: Option<u64>,
    /// Of the payload, in bytes; 0 when it is attached.
    pub length: u64,
    /// The receiving thread's name.
    pub receiver: String,
    /// The receiving process.
    pub receiver_pid: u32,
    /// The receiving thread.
    pub receiver_tid: u32,
    /// The name of the thread that woke it.
    pub waker: Option<String>,
    /// The thread that woke it.
    pub waker_tid: Option<u32>,
}

/// Something that happened to a session.
#[derive(Debug)]
pub struct SessionEvent {
    /// The name of the probe.
    pub probe: &'static str,
    /// The probe's arguments after the session, by name.
    pub args: Vec<(&'static str, u64)>,
    /// When it happened, in nanoseconds of the host's monotonic clock.
    pub at: u64,
    /// The service's name.
    pub service: String,
    /// The session's number, unique in its server's process.
    pub session: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
}

impl TraceEvent {
    /// Parses the bytes of an event. Returns `None` if they are from another version of the programs.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, _) = u64::read_from_prefix(bytes).ok()?;
        Some(match kind {
            DELIVERY => Self::Delivery(Box::new(Delivery::of(&read(bytes)?))),
            CALL_EVENT | POST_EVENT => Self::Call(Box::new(Call::of(&read(bytes)?))),
            SLOW_CALL => Self::Slow(SlowCall::of(&read(bytes)?)),
            OFF_CPU => Self::OffCpu(OffTime::of(&read(bytes)?)),
            _ => Self::Session(SessionEvent::of(&read(bytes)?)?),
        })
    }
}

fn read<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    Some(T::read_from_prefix(bytes).ok()?.0)
}

impl SessionEvent {
    fn of(event: &RawSessionEvent) -> Option<Self> {
        let is_it = |(number, ..): &(u64, &str, &[&str])| *number == event.kind;
        let (_, probe, names) = SESSION_PROBES.into_iter().find(is_it)?;
        Some(Self {
            probe,
            args: names.iter().copied().zip(event.args).collect(),
            at: event.at,
            service: text(&event.service),
            session: event.number,
            pid: event.pid,
            tid: event.tid,
            comm: text(&event.comm),
        })
    }
}

impl Call {
    fn of(event: &RawCallEvent) -> Self {
        let RawCallEvent { request, work, receive, reply, .. } = event;
        let receive_ns = receive.queue + receive.decode + receive.handler;
        let (request, replied_ns) = (Direction::of(request), reply.sent);
        let handled = (work.ended > 0).then(|| Handled {
            begun_ns: work.begun,
            ended_ns: work.ended,
            off_cpu: (work.lacks_return == 0).then_some(work.off_cpu),
            tid: work.tid,
            thread: text(&work.comm),
        });
        let reply = Direction::of(reply);
        let is_post = event.head.kind == POST_EVENT;
        Self {
            pattern: if is_post { Pattern::Post } else { Pattern::Call },
            service: text(&event.head.service),
            session: event.head.number,
            sequence: event.head.sequence & !POST,
            created: event.head.created,
            sent_ns: event.request.sent,
            total_ns: request.total_ns() + receive_ns + reply.total_ns(),
            weight: event.weight,
            request,
            receive_ns,
            queue_ns: receive.queue,
            decode_ns: receive.decode,
            handler_ns: receive.handler,
            handled,
            replied_ns,
            reply,
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
    pub fn total_ns(&self) -> u64 {
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
