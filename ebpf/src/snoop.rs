//! `snoop`: each slow call, with its stages and who woke whom.

use serde::Serialize;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::args::SnoopArgs;
use crate::error::Error;
use crate::hist::tell_losses;
use crate::stop::Stop;
use crate::tracer;

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
struct Event {
    number: u64,
    created: u64,
    sequence: u64,
    service: [u8; 64],
    request: Way,
    reply: Way,
}

#[derive(Serialize)]
struct Call {
    service: String,
    session: u64,
    sequence: u64,
    /// When it was sent, in nanoseconds of the host's monotonic clock.
    sent_ns: u64,
    total_ns: u64,
    request: Direction,
    receive_ns: u64,
    reply: Direction,
}

/// One way.
#[derive(Serialize)]
struct Direction {
    send_ns: u64,
    publish_ns: u64,
    /// Nothing when the receiver was awake.
    wake_ns: Option<u64>,
    on_cpu_ns: Option<u64>,
    length: u64,
    receiver: String,
    receiver_pid: u32,
    receiver_tid: u32,
    waker: Option<String>,
    waker_tid: Option<u32>,
}

pub(crate) fn run(args: &SnoopArgs) -> Result<(), Error> {
    let stop = Stop::on_signals()?;
    tracer::trace(&args.scope, Some(args.over), |tracer| {
        if !args.scope.json {
            println!(
                "{:<24} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}  WAKERS",
                "SERVICE",
                "SESSION",
                "SEQUENCE",
                "TOTAL us",
                "SEND",
                "PUBLISH",
                "WAKE",
                "ON-CPU",
                "RECEIVE",
                "REPLY"
            );
        }
        let mut left = args.count;
        let mut failed = None;
        let tell = |bytes: &[u8]| {
            let Ok((event, _)) = Event::read_from_prefix(bytes) else { return true };
            if let Err(error) = print(&Call::of(&event), args.scope.json) {
                failed = Some(error);
                return false;
            }
            left = left.map(|left| left.saturating_sub(1));
            left != Some(0)
        };
        tracer.listen(tell, || stop.wait(Some(std::time::Duration::ZERO)))?;
        tell_losses(tracer.losses());
        failed.map_or(Ok(()), Err)
    })
}

fn print(call: &Call, json: bool) -> Result<(), Error> {
    if json {
        println!("{}", serde_json::to_string(call)?);
        return Ok(());
    }
    let micros = |nanos: u64| format!("{}.{}", nanos / 1000, nanos % 1000 / 100);
    let maybe = |nanos: Option<u64>| nanos.map_or_else(|| "-".to_owned(), micros);
    let reply = call.sent_ns + call.total_ns - call.reply_sent();
    let wakers = [&call.request, &call.reply].map(|way| match (&way.waker, way.waker_tid) {
        (Some(waker), Some(tid)) => format!("{waker}/{tid}"),
        _ => "-".to_owned(),
    });
    println!(
        "{:<24} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}  {}",
        call.service,
        call.session,
        call.sequence,
        micros(call.total_ns),
        micros(call.request.send_ns),
        micros(call.request.publish_ns),
        maybe(call.request.wake_ns),
        maybe(call.request.on_cpu_ns),
        micros(call.receive_ns),
        micros(reply),
        wakers.join(" ")
    );
    Ok(())
}

impl Call {
    fn of(event: &Event) -> Self {
        let Event { request, reply, .. } = event;
        Self {
            service: text(&event.service),
            session: event.number,
            sequence: event.sequence,
            sent_ns: request.sent,
            total_ns: reply.received.saturating_sub(request.sent),
            request: Direction::of(request),
            receive_ns: reply.sent.saturating_sub(request.received),
            reply: Direction::of(reply),
        }
    }

    /// When the answer was begun.
    fn reply_sent(&self) -> u64 {
        let Direction { send_ns, publish_ns, wake_ns, on_cpu_ns, .. } = &self.request;
        self.sent_ns
            + send_ns
            + publish_ns
            + wake_ns.unwrap_or(0)
            + on_cpu_ns.unwrap_or(0)
            + self.receive_ns
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
}

/// A text that ends at the first zero, without what would act on a terminal.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).replace(char::is_control, "?")
}
