//! `record`: a trace in the Trace Event Format, which <https://ui.perfetto.dev> and chrome://tracing open.
//!
//! A call is a nestable asynchronous slice of the client, which contains its stages; the server's work for it is a slice of
//! the server. Calls overlap, so slices of threads would not do. Full lanes, resizes, sessions that open and close and calls
//! that fail are instants of their thread.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::RecordArgs;
use crate::call::{Call, Direction, Note, Told};
use crate::error::Error;
use crate::hist::tell_losses;
use crate::out::outln;
use crate::processes;
use crate::signal::Waiter;
use crate::tracer::{self, Wanted};

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
    let wanted = Wanted { slow: Some(args.over), notes: true, ..Wanted::default() };
    let mut summary = Summary { file: path.display().to_string(), ..Summary::default() };
    tracer::trace(&args.scope, wanted, |tracer| {
        let end = args.seconds.map(|span| Instant::now() + span);
        let mut written = Ok(());
        let tell = |told| {
            written = match &told {
                Told::Call(call) => trace.call(call),
                Told::Note(note) => trace.note(note),
            };
            let counted =
                if matches!(told, Told::Call(_)) { &mut summary.calls } else { &mut summary.notes };
            *counted += 1;
            written.is_ok()
        };
        let is_over =
            || end.is_some_and(|end| Instant::now() >= end) || waiter.is_over(Some(Duration::ZERO));
        tracer.listen(tell, is_over)?;
        written.map_err(unwritten)?;
        summary.dropped = tracer.losses().dropped;
        tell_losses(tracer.losses());
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

/// A file of events, one a line. Perfetto reads a file whose end is missing too.
struct Trace<W: Write> {
    out: W,
    /// Processes and threads whose names were written.
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
            let there = trace.way(&track, call.sent_ns, &call.request, "")?;
            let answered = there + call.receive_ns;
            trace.stage(&track, "receive", there, answered, &json!({}))?;
            trace.way(&track, answered, &call.reply, "reply/").map(drop)
        })?;
        let there = call.sent_ns + call.request.total_ns();
        let track = Track { pid: server.receiver_pid, tid: server.receiver_tid, id: &id };
        let args = json!({ "session": call.session, "sequence": call.sequence, "client": client.receiver_pid });
        self.slice(&track, &call.service, there, there + call.receive_ns, &args, |_| Ok(()))
    }

    /// Writes the stages of one direction, which begins at `from`. Returns when it ends.
    fn way(
        &mut self,
        track: &Track<'_>,
        from: u64,
        way: &Direction,
        prefix: &str,
    ) -> io::Result<u64> {
        let waker = way.waker.as_ref().map_or_else(
            || json!({}),
            |waker| json!({ "waker": waker, "waker_tid": way.waker_tid }),
        );
        let stages = [
            ("send", Some(way.send_ns), json!({})),
            ("publish", Some(way.publish_ns), json!({})),
            ("wake", way.wake_ns, waker),
            ("on-CPU", way.on_cpu_ns, json!({})),
        ];
        let mut at = from;
        for (name, took, args) in stages {
            if let Some(took) = took {
                self.stage(track, &format!("{prefix}{name}"), at, at + took, &args)?;
                at += took;
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

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.name(note.pid, note.tid, &note.comm)?;
        let mut args: Map<String, Value> =
            note.args.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        args.insert("service".to_owned(), json!(note.service));
        args.insert("session".to_owned(), json!(note.session));
        self.event(&json!({
            "ph": "i", "s": "t", "cat": "session", "name": note.probe, "pid": note.pid, "tid": note.tid,
            "ts": micros(note.at), "args": args,
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

/// The track on which a slice is shown.
struct Track<'a> {
    pid: u32,
    tid: u32,
    id: &'a str,
}

/// Returns an id that no other call has: each server numbers its sessions.
fn identity(call: &Call) -> String {
    format!("{:x}-{:x}-{:x}", call.created, call.session, call.sequence)
}

/// The format counts in microseconds; the fraction keeps nanoseconds, for a hundred years.
#[expect(
    clippy::cast_precision_loss,
    reason = "the fraction's last digit may be off for what is up that long"
)]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
