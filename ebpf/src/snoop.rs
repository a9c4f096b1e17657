//! `snoop`: prints each slow call, with its stages and the threads that woke the receivers.

use std::time::Duration;

use bellwire_trace_core::call::{Call, Direction, TraceEvent};
use bellwire_trace_core::{Options, Pattern};

use crate::args::SnoopArgs;
use crate::error::Error;
use crate::out::outln;
use crate::signal::Waiter;
use crate::slow;
use crate::tracer;

pub(crate) fn run(args: &SnoopArgs) -> Result<(), Error> {
    if let Some(least) = args.all_slower_than {
        return slow::run(args, least);
    }
    let waiter = Waiter::on_signals()?;
    let options = Options { min_duration: Some(args.min_duration), ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        if !args.scope.json {
            print_head()?;
        }
        let mut left = args.count;
        let mut failed = None;
        let on_event = |event| {
            let TraceEvent::Call(call) = event else { return true };
            if call.pattern != Pattern::Call {
                return true;
            }
            if let Err(error) = print(&call, args.scope.json) {
                failed = Some(error);
                return false;
            }
            left = left.map(|left| left.saturating_sub(1));
            left != Some(0)
        };
        tracer.poll_events(on_event, || waiter.stops_within(Duration::ZERO))?;
        failed.map_or_else(|| tracer::finish(tracer), Err)
    })
}

/// The columns of times, in the order of a call.
const STAGES: [&str; 12] = [
    "TOTAL us",
    "SEND",
    "PUBLISH",
    "WAKE",
    "ON-CPU",
    "QUEUE",
    "DECODE",
    "HANDLER",
    "R/SEND",
    "R/PUBLISH",
    "R/WAKE",
    "R/ON-CPU",
];

fn print_head() -> Result<(), Error> {
    outln!(
        "{:<20} {:>7} {:>9} {:>7} {:>7}{}  WAKERS",
        "SERVICE",
        "SESSION",
        "SEQUENCE",
        "CLIENT",
        "SERVER",
        STAGES.map(|stage| format!(" {stage:>9}")).concat()
    );
    Ok(())
}

fn print(call: &Call, json: bool) -> Result<(), Error> {
    if json {
        outln!("{}", serde_json::to_string(call)?);
        return Ok(());
    }
    let micros = |nanos: Option<u64>| match nanos {
        Some(nanos) => format!(" {:>9}", format!("{}.{}", nanos / 1000, nanos % 1000 / 100)),
        None => format!(" {:>9}", "-"),
    };
    let waker = |direction: &Direction| match (&direction.waker, direction.waker_tid) {
        (Some(waker), Some(tid)) => format!("{waker}/{tid}"),
        _ => "-".to_owned(),
    };
    let times = |way: &Direction| {
        [Some(way.send_ns), Some(way.publish_ns), way.wake_ns, way.on_cpu_ns].map(micros).concat()
    };
    let server = [call.queue_ns, call.decode_ns, call.handler_ns].map(Some).map(micros).concat();
    outln!(
        "{:<20} {:>7} {:>9} {:>7} {:>7}{}{}{server}{}  {} {}",
        call.service,
        call.session,
        call.sequence,
        call.reply.receiver_pid,
        call.request.receiver_pid,
        micros(Some(call.total_ns)),
        times(&call.request),
        times(&call.reply),
        waker(&call.request),
        waker(&call.reply)
    );
    Ok(())
}
