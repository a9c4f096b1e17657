//! `snoop`: prints each slow call, with its stages and the threads that woke the receivers.

use std::time::Duration;

use crate::args::SnoopArgs;
use crate::call::{Call, Direction, TraceEvent};
use crate::error::Error;
use crate::hist::report_losses;
use crate::out::outln;
use crate::signal::Waiter;
use crate::tracer::{self, Options};

pub(crate) fn run(args: &SnoopArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let options = Options { slow: Some(args.over), ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        if !args.scope.json {
            print_head()?;
        }
        let mut left = args.count;
        let mut failed = None;
        let on_event = |event| {
            let TraceEvent::Call(call) = event else { return true };
            if let Err(error) = print(&call, args.scope.json) {
                failed = Some(error);
                return false;
            }
            left = left.map(|left| left.saturating_sub(1));
            left != Some(0)
        };
        tracer.poll_events(on_event, || waiter.stops_within(Some(Duration::ZERO)))?;
        report_losses(tracer.losses());
        failed.map_or(Ok(()), Err)
    })
}

fn print_head() -> Result<(), Error> {
    outln!(
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
    Ok(())
}

fn print(call: &Call, json: bool) -> Result<(), Error> {
    if json {
        outln!("{}", serde_json::to_string(call)?);
        return Ok(());
    }
    let micros = |nanos: u64| format!("{}.{}", nanos / 1000, nanos % 1000 / 100);
    let optional = |nanos: Option<u64>| nanos.map_or_else(|| "-".to_owned(), micros);
    let waker = |direction: &Direction| match (&direction.waker, direction.waker_tid) {
        (Some(waker), Some(tid)) => format!("{waker}/{tid}"),
        _ => "-".to_owned(),
    };
    let wakers = [&call.request, &call.reply].map(waker);
    outln!(
        "{:<24} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}  {}",
        call.service,
        call.session,
        call.sequence,
        micros(call.total_ns),
        micros(call.request.send_ns),
        micros(call.request.publish_ns),
        optional(call.request.wake_ns),
        optional(call.request.on_cpu_ns),
        micros(call.receive_ns),
        micros(call.reply.total_ns()),
        wakers.join(" ")
    );
    Ok(())
}
