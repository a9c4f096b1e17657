//! `export`: serves the counts as OpenMetrics over HTTP.

mod metrics;

use std::io;
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};

use bellwire_trace_core::Options;
use bellwire_trace_core::places::Places;
use serde_json::json;

use crate::args::ExportArgs;
use crate::error::Error;
use crate::hist::TICK;
use crate::out::outln;
use crate::signal::{Event, Waiter};
use crate::tracer::{self, report_losses};

pub(crate) fn run(args: &ExportArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let listener = TcpListener::bind(args.listen)
        .map_err(|source| Error::Listen { address: args.listen, source })?;
    let address = listener.local_addr()?;
    let options = Options { by_session: args.by_session, may_wait: true, ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        let events = waiter.sender();
        bellwire_scrape::serve(listener, move || request(&events))?;
        if args.scope.json {
            outln!("{}", json!({ "listening": address.to_string() }));
        } else {
            outln!("listening on http://{address}/metrics");
        }
        let mut places = Places::default();
        loop {
            match waiter.next(TICK) {
                // The client may be gone.
                Some(Event::Scrape(answer)) => {
                    let text = metrics::text(&tracer.counts(), &tracer.losses(), &mut places);
                    drop(answer.send(text));
                }
                Some(Event::Stop) => break,
                None => tracer.maintain(),
            }
        }
        report_losses(&tracer.losses());
        Ok(())
    })
}

/// Requests the metrics of the thread that has them.
fn request(events: &Sender<Event>) -> io::Result<String> {
    let (sender, receiver) = channel();
    events.send(Event::Scrape(sender)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
    receiver.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
}
