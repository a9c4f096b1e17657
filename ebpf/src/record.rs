//! `record`: a trace in the Trace Event Format, which <https://ui.perfetto.dev> and chrome://tracing open.
//!
//! A call is a nestable asynchronous slice of the client, which contains its stages; the server's work for it is a slice
//! of the server. Calls overlap, so they cannot be slices of threads. Full lanes, resizes, sessions that open and close,
//! and calls that fail are instants of their thread.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::RecordArgs;
use crate::call::{Call, Direction, SessionEvent, TraceEvent};
use crate::error::Error;
use crate::hist::report_losses;
use crate::out::outln;
use crate::processes;
use crate::signal::Waiter;
use crate::tracer::{self, Options};

/// Counts of what was written.
#[derive(Debug, Default, Serialize)]
struct Summary {
    file: String,
    calls: u64,
    notes: u64,
    dropped: u64,
}

pub(crate) fn run(args: &RecordArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let path = &args.output;
    let unwritten = |source| Error::Write { path: path.clone(), source };
    let mut trace = Trace::new(BufWriter::new(File::create(path).map_err(unwritten)?));
    let options = Options { slow: Some(args.over), session_events: true, ..Options::default() };
    let mut summary = Summary { file: path.display().to_string(), ..Summary::default() };
    tracer::trace(&args.scope, options, |tracer| {
        let end = args.seconds.map(|span| Instant::now() + span);
        let mut written = Ok(());
        let write_event = |event| {
            let (result, count) = match &event {
                TraceEvent::Call(call) => (trace.call(call), &mut summary.calls),
                TraceEvent::Session(event) => (trace.session_event(event), &mut summary.notes),
            };
            *count += 1;
            written = result;
            written.is_ok()
        };
        let should_stop = || {
            end.is_some_and(|end| Instant::now() >= end)
                || waiter.stops_within(Some(Duration::ZERO))
        };
        tracer.poll_events(write_event, should_stop)?;
        written.map_err(unwritten)?;
        summary.dropped = tracer.losses().dropped;
        report_losses(tracer.losses());
        Ok(())
    })?;
    trace.finish().map_err(unwritten)?;
    if args.scope.json {
        outln!("{}", serde_json::to_string(&summary)?);
    } else {
        let Summary { file, calls, notes, .. } = &summary;
        outln!(
            "{calls} calls and {notes} other events in {file}: open it at https://ui.perfetto.dev"
        );
    }
    Ok(())
}

/// A file of events, one per line. Perfetto also reads a truncated file.
struct Trace<W: Write> {
    out: W,
    /// The processes and threads whose names were written.
    named: BTreeSet<(u32, Option<u32>)>,
    has_events: bool,
}

impl<W: Write> Trace<W> {
    fn new(out: W) -> Self {
        Self { out, named: BTreeSet::new(), has_events: false }
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
        let id = identity(call);
        let track = Track { pid: client.receiver_pid, tid: client.receiver_tid, id: &id };
        let end = call.sent_ns + call.total_ns;
        self.slice(&track, &call.service, call.sent_ns, end, &args, |trace| {
            let received = trace.direction(&track, call.sent_ns, &call.request, "")?;
            let replied = received + call.receive_ns;
            trace.stage(&track, "receive", received, replied, &json!({}))?;
            trace.direction(&track, replied, &call.reply, "reply/").map(drop)
        })?;
        let received = call.sent_ns + call.request.total_ns();
        let track = Track { pid: server.receiver_pid, tid: server.receiver_tid, id: &id };
        let args = json!({ "session": call.session, "sequence": call.sequence, "client": client.receiver_pid });
        self.slice(&track, &call.service, received, received + call.receive_ns, &args, |_| Ok(()))
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
        let mut args: Map<String, Value> =
            event.args.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
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

/// The track that shows a slice.
struct Track<'a> {
    pid: u32,
    tid: u32,
    id: &'a str,
}

/// Returns an id that is unique among all calls: session numbers are unique only per server.
fn identity(call: &Call) -> String {
    format!("{:x}-{:x}-{:x}", call.created, call.session, call.sequence)
}

/// Converts to the microseconds of the format. The fraction keeps nanoseconds for an uptime of up to a hundred years.
#[expect(
    clippy::cast_precision_loss,
    reason = "the last digit of the fraction may be off after such an uptime"
)]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
