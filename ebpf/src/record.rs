//! `record`: a trace in the Trace Event Format, which <https://ui.perfetto.dev> and chrome://tracing open.
//!
//! A call is a nestable asynchronous slice of the client, which contains its stages; the server's work for it is a slice
//! of the server. Calls overlap, so they cannot be slices of threads. What a thread does for a call alone is: sending,
//! handling and receiving, which arrows connect. Beside each thread, another track has the time from its wakeup until it ran.
//! Full lanes, resizes, sessions that open and close, and calls that fail are instants of their thread.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use bellwire_trace_core::call::{Call, Delivery, Direction, SessionEvent, TraceEvent};
use bellwire_trace_core::{Options, Pattern, processes};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::RecordArgs;
use crate::error::Error;
use crate::out::outln;
use crate::signal::Waiter;
use crate::tracer;

/// Counts of what was written.
#[derive(Debug, Default, Serialize)]
struct Summary {
    file: String,
    calls: u64,
    deliveries: u64,
    notes: u64,
    dropped: u64,
}

pub(crate) fn run(args: &RecordArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let path = &args.output;
    let unwritten = |source| Error::Write { path: path.clone(), source };
    let is_new = !path.exists();
    let file = File::options().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(unwritten)?;
    let is_file = file.metadata().is_ok_and(|stat| stat.is_file());
    let mut trace = Trace::new(BufWriter::new(file));
    let options = Options {
        min_duration: Some(args.min_duration),
        session_events: true,
        ..Options::default()
    };
    let mut has_begun = false;
    let mut summary = Summary { file: path.display().to_string(), ..Summary::default() };
    let traced = tracer::trace(&args.scope, options, |tracer| {
        // An earlier trace stays until this one begins.
        if is_file {
            trace.out.get_ref().set_len(0).map_err(unwritten)?;
        }
        has_begun = true;
        let end = args.seconds.map(|span| Instant::now() + span);
        let mut written = Ok(());
        let write_event = |event| {
            let (result, count) = match &event {
                TraceEvent::Call(call) if call.pattern == Pattern::Post => {
                    (trace.post(call), &mut summary.calls)
                }
                TraceEvent::Call(call) => (trace.call(call), &mut summary.calls),
                TraceEvent::Delivery(delivery) => {
                    (trace.delivery(delivery), &mut summary.deliveries)
                }
                TraceEvent::Session(event) => (trace.session_event(event), &mut summary.notes),
                // Only for `snoop --all-slower-than`.
                _ => return true,
            };
            *count += 1;
            written = result;
            written.is_ok()
        };
        let should_stop =
            || end.is_some_and(|end| Instant::now() >= end) || waiter.stops_within(Duration::ZERO);
        tracer.poll_events(write_event, should_stop)?;
        written.map_err(unwritten)?;
        summary.dropped = tracer.losses().dropped;
        Ok(tracer::finish(tracer))
    });
    if !has_begun && is_new {
        let _ = fs::remove_file(path);
    }
    let seen = traced?;
    trace.finish().map_err(unwritten)?;
    if args.scope.json {
        outln!("{}", serde_json::to_string(&summary)?);
    } else {
        let Summary { file, calls, deliveries, notes, .. } = &summary;
        outln!(
            "{calls} calls and posts, {deliveries} snapshots and events, {notes} other events in {file}: open it at \
             https://ui.perfetto.dev"
        );
    }
    seen
}

/// A file of events, one per line. Perfetto also reads a truncated file.
struct Trace<W: Write> {
    out: W,
    /// The processes and threads whose names were written.
    named: BTreeSet<(u32, Option<u32>)>,
    /// The publications that were written, by their thread and their begin.
    published: BTreeSet<(u32, u64)>,
    /// How many lines of arrows were written: the number of the last one. Perfetto drops arrows whose id is no number.
    arrows: u64,
    has_events: bool,
}

impl<W: Write> Trace<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            named: BTreeSet::new(),
            published: BTreeSet::new(),
            arrows: 0,
            has_events: false,
        }
    }

    /// Returns the id of a new line of arrows.
    fn new_arrow(&mut self) -> u64 {
        self.arrows += 1;
        self.arrows
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        let (server, client) = (&call.request, &call.reply);
        self.name(server.receiver_pid, server.receiver_tid, &server.receiver)?;
        self.name(client.receiver_pid, client.receiver_tid, &client.receiver)?;
        let args = json!({
            "session": call.session, "sequence": call.sequence,
            "request_bytes": call.request.length, "answer_bytes": call.reply.length,
            "server": server.receiver_pid,
        });
        let id = identity(call, "call");
        let track = Track { pid: client.receiver_pid, tid: client.receiver_tid, id: &id };
        let end = call.replied_ns + call.reply.total_ns();
        self.slice(&track, &call.service, call.sent_ns, end, &args, |trace| {
            let received = trace.direction(&track, call.sent_ns, &call.request, "")?;
            let args = json!({
                "queue_ns": call.queue_ns, "decode_ns": call.decode_ns, "handler_ns": call.handler_ns,
            });
            trace.stage(&track, "receive", received, call.replied_ns, &args)?;
            trace.direction(&track, call.replied_ns, &call.reply, "reply/").map(drop)
        })?;
        let received = call.sent_ns + call.request.total_ns();
        let track = Track { pid: server.receiver_pid, tid: server.receiver_tid, id: &id };
        let args = json!({ "session": call.session, "sequence": call.sequence, "client": client.receiver_pid });
        self.slice(&track, &call.service, received, call.replied_ns, &args, |_| Ok(()))?;
        self.threads(call)
    }

    /// Writes a one-way request: of its client nothing but the process is known.
    fn post(&mut self, post: &Call) -> io::Result<()> {
        let server = &post.request;
        self.name(server.receiver_pid, server.receiver_tid, &server.receiver)?;
        let id = identity(post, "post");
        let track = Track { pid: server.receiver_pid, tid: server.receiver_tid, id: &id };
        let args = json!({
            "session": post.session, "sequence": post.sequence, "request_bytes": server.length,
            "client": post.reply.receiver_pid,
        });
        let name = format!("post {}", post.service);
        self.slice(&track, &name, post.sent_ns, post.replied_ns, &args, |trace| {
            let received = trace.direction(&track, post.sent_ns, server, "")?;
            let args = json!({
                "queue_ns": post.queue_ns, "decode_ns": post.decode_ns, "handler_ns": post.handler_ns,
            });
            trace.stage(&track, "receive", received, post.replied_ns, &args)
        })?;
        self.handled(post)?;
        self.scheduled(server, post.sent_ns + server.total_ns())
    }

    /// Writes a snapshot or an event on its way to one reader, and an arrow from its publisher.
    fn delivery(&mut self, of: &Delivery) -> io::Result<()> {
        let reader = &of.notice;
        self.name(of.publisher_pid, of.publisher_tid, &of.publisher)?;
        self.name(reader.receiver_pid, reader.receiver_tid, &reader.receiver)?;
        let id = format!("{:x}-{:x}-delivery-{:x}", of.created, of.session, of.sequence);
        let track = Track { pid: reader.receiver_pid, tid: reader.receiver_tid, id: &id };
        let args = json!({
            "session": of.session, "sequence": of.sequence, "bytes": reader.length,
            "publisher": of.publisher_pid,
        });
        let (noticed, end) = (of.sent_ns + reader.total_ns(), of.sent_ns + of.total_ns);
        let (taken, how) = (noticed + of.take_ns, if of.is_mapped { "map" } else { "copy" });
        self.slice(&track, &of.service, of.sent_ns, end, &args, |trace| {
            trace.direction(&track, of.sent_ns, reader, "")?;
            trace.stage(&track, how, noticed, taken, &json!({}))?;
            trace.stage(&track, "validate", taken, end, &json!({}))
        })?;
        let thread = (of.publisher_pid, of.publisher_tid);
        let publishes = Part { thread, from: of.sent_ns, span: reader.send_ns };
        // It is published once for all readers.
        if self.published.insert((of.publisher_tid, of.sent_ns)) {
            self.part(
                &format!("publish {}", of.service),
                &publishes,
                &json!({ "sequence": of.sequence }),
            )?;
        }
        let arrow = self.new_arrow();
        self.arrow("s", arrow, &publishes)?;
        // Until it is mapped, the reader does other things.
        let from = if of.is_mapped { taken } else { noticed };
        let thread = (reader.receiver_pid, reader.receiver_tid);
        let takes = Part { thread, from, span: end - from };
        self.part(&format!("take {}", of.service), &takes, &args)?;
        self.arrow("f", arrow, &takes)?;
        self.scheduled(reader, noticed)
    }

    /// Writes what the threads of both ends did for this call alone, and the arrows between.
    fn threads(&mut self, call: &Call) -> io::Result<()> {
        let (server, client) = (&call.request, &call.reply);
        let here = (client.receiver_pid, client.receiver_tid);
        let received = call.replied_ns + client.total_ns();
        let woken = client.on_cpu_ns.unwrap_or(0);
        let sends = Part { thread: here, from: call.sent_ns, span: server.send_ns };
        let receives = Part { thread: here, from: received - woken, span: woken };
        self.part(&format!("send {}", call.service), &sends, &json!({}))?;
        let arrow = self.new_arrow();
        self.arrow("s", arrow, &sends)?;
        if let Some(handles) = self.handled(call)? {
            self.arrow("t", arrow, &handles)?;
        }
        self.part(&format!("receive {}", call.service), &receives, &json!({}))?;
        self.arrow("f", arrow, &receives)?;
        self.scheduled(server, call.sent_ns + server.total_ns())?;
        self.scheduled(client, received)
    }

    /// Writes what the handler's thread did, if that is known.
    fn handled(&mut self, call: &Call) -> io::Result<Option<Part>> {
        let Some(handled) = &call.handled else { return Ok(None) };
        let thread = (call.request.receiver_pid, handled.tid);
        self.name(thread.0, thread.1, &handled.thread)?;
        let span = handled.ended_ns - handled.begun_ns;
        let handles = Part { thread, from: handled.begun_ns, span };
        let args = json!({ "off_cpu_ns": handled.off_cpu });
        self.part(&format!("handle {}", call.service), &handles, &args)?;
        Ok(Some(handles))
    }

    /// Writes from when until when the thread that received a message was runnable, and since when it ran.
    fn scheduled(&mut self, direction: &Direction, received: u64) -> io::Result<()> {
        let (Some(wake), Some(on_cpu)) = (direction.wake_ns, direction.on_cpu_ns) else {
            return Ok(());
        };
        let (pid, tid) = (direction.receiver_pid, direction.receiver_tid);
        let track = tid | SCHEDULER;
        self.name(pid, track, &format!("{} (scheduler)", direction.receiver))?;
        let args = json!({ "woken_by": direction.waker, "waker_tid": direction.waker_tid });
        let ran = received - on_cpu;
        let waits = Part { thread: (pid, track), from: ran - wake, span: wake };
        self.part("runnable", &waits, &args)?;
        let runs = Part { thread: (pid, track), from: ran, span: on_cpu };
        self.part("running", &runs, &json!({}))
    }

    /// Writes a slice of a thread.
    fn part(&mut self, name: &str, part: &Part, args: &Value) -> io::Result<()> {
        let Part { thread: (pid, tid), from, span } = *part;
        self.event(&json!({
            "ph": "X", "cat": "thread", "name": name, "pid": pid, "tid": tid, "ts": micros(from),
            "dur": micros(span.max(1)), "args": args,
        }))
    }

    /// Writes the start, a step or the end of the arrows of a call, bound to a slice of a thread.
    fn arrow(&mut self, ph: &str, id: u64, at: &Part) -> io::Result<()> {
        let Part { thread: (pid, tid), from, .. } = *at;
        self.event(&json!({
            "ph": ph, "bp": "e", "cat": "call", "name": "call", "id": id, "pid": pid, "tid": tid,
            "ts": micros(from),
        }))
    }

    /// Writes the stages of one direction, which begins at `from`. Returns the time at which it ends.
    fn direction(
        &mut self,
        track: &Track<'_>,
        from: u64,
        direction: &Direction,
        prefix: &str,
    ) -> io::Result<u64> {
        let waker = direction.waker.as_ref().map_or_else(
            || json!({}),
            |waker| json!({ "waker": waker, "waker_tid": direction.waker_tid }),
        );
        let stages = [
            ("send", Some(direction.send_ns), json!({})),
            ("publish", Some(direction.publish_ns), json!({})),
            ("wake", direction.wake_ns, waker),
            ("on-CPU", direction.on_cpu_ns, json!({})),
        ];
        let mut at = from;
        for (name, duration, args) in stages {
            if let Some(duration) = duration {
                self.stage(track, &format!("{prefix}{name}"), at, at + duration, &args)?;
                at += duration;
            }
        }
        Ok(at)
    }

    fn stage(
        &mut self,
        track: &Track<'_>,
        name: &str,
        from: u64,
        to: u64,
        args: &Value,
    ) -> io::Result<()> {
        self.slice(track, name, from, to, args, |_| Ok(()))
    }

    fn slice(
        &mut self,
        track: &Track<'_>,
        name: &str,
        from: u64,
        to: u64,
        args: &Value,
        inside: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let Track { pid, tid, id } = track;
        // Local to the process: a plain `id` is one track of both ends, on which their slices do not nest.
        let event = |ph: &str, at: u64| json!({ "ph": ph, "cat": "call", "id2": { "local": id }, "name": name, "pid": pid, "tid": tid, "ts": micros(at) });
        let mut begin = event("b", from);
        if let Some(fields) = begin.as_object_mut() {
            fields.insert("args".to_owned(), args.clone());
        }
        self.event(&begin)?;
        inside(self)?;
        self.event(&event("e", to))
    }

    fn session_event(&mut self, event: &SessionEvent) -> io::Result<()> {
        self.name(event.pid, event.tid, &event.comm)?;
        let mut args: Map<String, Value> = event
            .args
            .iter()
            .map(|(name, value)| ((*name).to_owned(), named(name, *value)))
            .collect();
        args.insert("service".to_owned(), json!(event.service));
        args.insert("session".to_owned(), json!(event.session));
        self.event(&json!({
            "ph": "i", "s": "t", "cat": "session", "name": event.probe, "pid": event.pid, "tid": event.tid,
            "ts": micros(event.at), "args": args,
        }))
    }

    /// Writes the names of a process and its thread, once.
    fn name(&mut self, pid: u32, tid: u32, thread: &str) -> io::Result<()> {
        if self.named.insert((pid, None)) {
            let command = processes::command(pid);
            let process = if command.is_empty() { thread } else { &command };
            self.event(&json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": process } }))?;
        }
        if self.named.insert((pid, Some(tid))) {
            let args = json!({ "name": thread });
            self.event(
                &json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args }),
            )?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if self.has_events { b",\n" } else { b"[\n" })?;
        self.has_events = true;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.write_all(if self.has_events { b"\n]\n" } else { b"[]\n" })?;
        self.out.flush()
    }
}

/// What one thread does for one call.
struct Part {
    thread: (u32, u32),
    /// In nanoseconds of the host's monotonic clock.
    from: u64,
    span: u64,
}

/// The names of `bellwire::ErrorKind`, by number.
const ERROR_KINDS: [&str; 16] = [
    "",
    "absent",
    "refused",
    "incompatible",
    "too large",
    "would block",
    "deadline",
    "cancelled",
    "peer gone",
    "protocol violation",
    "handler",
    "malformed",
    "system",
    "stopping",
    "stalled",
    "forked",
];

/// Makes a thread's number that of the track beside it; no thread has such a number.
const SCHEDULER: u32 = 1 << 30;

/// The track that shows a slice.
struct Track<'a> {
    pid: u32,
    tid: u32,
    id: &'a str,
}

/// Returns the name that docs/tracing.md has for an argument's value, or the number.
fn named(argument: &str, value: u64) -> Value {
    let names: &[&str] = match argument {
        "whose" => &["", "own", "peer"],
        "reason" => &["peer gone", "normal", "poisoned", "stopping"],
        "kind" => &ERROR_KINDS,
        _ => &[],
    };
    let name = usize::try_from(value).ok().and_then(|at| names.get(at));
    name.filter(|name| !name.is_empty()).map_or(json!(value), |name| json!(name))
}

/// Returns an id that is unique among all calls: session numbers are unique only per server.
fn identity(call: &Call, what: &str) -> String {
    format!("{:x}-{:x}-{what}-{:x}", call.created, call.session, call.sequence)
}

/// Converts to the microseconds of the format. The fraction keeps nanoseconds for an uptime of up to a hundred years.
#[expect(
    clippy::cast_precision_loss,
    reason = "the last digit of the fraction may be off after such an uptime"
)]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_name() {
        use bellwire::ErrorKind;
        for kind in [ErrorKind::Deadline, ErrorKind::Stalled, ErrorKind::Forked] {
            let name = format!("{kind:?}").to_lowercase();
            assert_eq!(named("kind", kind.code().into()), json!(name));
        }
        assert_eq!(named("reason", 2), json!("poisoned"));
        assert_eq!(named("whose", 3), json!(3));
        assert_eq!(named("size", 2), json!(2));
    }
}
