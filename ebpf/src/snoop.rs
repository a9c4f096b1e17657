//! `snoop`: prints each slow call with its stages and who woke whom.

use std::time::Duration;

use crate::args::SnoopArgs;
use crate::call::{Call, Told};
use crate::error::Error;
use crate::hist::tell_losses;
use crate::out::outln;
use crate::signal::Waiter;
use crate::tracer::{self, Wanted};

pub(crate) fn run(args: &SnoopArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let wanted = Wanted { slow: Some(args.over), ..Wanted::default() };
    tracer::trace(&args.scope, wanted, |tracer| {
        if !args.scope.json {
            print_head()?;
        }
        let mut left = args.count;
        let mut failed = None;
        let tell = |told| {
            let Told::Call(call) = told else { return true };
            if let Err(error) = print(&call, args.scope.json) {
                failed = Some(error);
                return false;
            }
            left = left.map(|left| left.saturating_sub(1));
            left != Some(0)
        };
        tracer.listen(tell, || waiter.is_over(Some(Duration::ZERO)))?;
        tell_losses(tracer.losses());
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
    let maybe = |nanos: Option<u64>| nanos.map_or_else(|| "-".to_owned(), micros);
    let wakers = [&call.request, &call.reply].map(|way| match (&way.waker, way.waker_tid) {
        (Some(waker), Some(tid)) => format!("{waker}/{tid}"),
        _ => "-".to_owned(),
    });
    outln!(
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
        micros(call.reply.total_ns()),
        wakers.join(" ")
    );
    Ok(())
}
