//! `export`: serves the counts as OpenMetrics over HTTP.

mod http;
mod metrics;

use std::net::TcpListener;

use serde_json::json;

use crate::args::ExportArgs;
use crate::error::Error;
use crate::hist::report_losses;
use crate::out::outln;
use crate::signal::{Event, Waiter};
use crate::tracer::{self, Options};

pub(crate) fn run(args: &ExportArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let listener = TcpListener::bind(args.listen)
        .map_err(|source| Error::Listen { address: args.listen, source })?;
    let address = listener.local_addr()?;
    let options = Options { by_session: args.by_session, ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        http::serve(listener, waiter.sender())?;
        if args.scope.json {
            outln!("{}", json!({ "listening": address.to_string() }));
        } else {
            outln!("listening on http://{address}/metrics");
        }
        while let Some(Event::Scrape(answer)) = waiter.next(None) {
            // The client may be gone.
            let _ = answer.send(metrics::text(&tracer.counts(), tracer.losses()));
        }
        report_losses(tracer.losses());
        Ok(())
    })
}
