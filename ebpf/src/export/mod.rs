//! `export`: serves the counts as OpenMetrics over HTTP.

mod http;
mod metrics;

use std::net::TcpListener;

use serde_json::json;

use crate::args::ExportArgs;
use crate::error::Error;
use crate::hist::tell_losses;
use crate::out::outln;
use crate::signal::{Event, Waiter};
use crate::tracer::{self, Wanted};

pub(crate) fn run(args: &ExportArgs) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let listener = TcpListener::bind(args.listen)
        .map_err(|source| Error::Listen { address: args.listen, source })?;
    let address = listener.local_addr()?;
    let wanted = Wanted { by_session: args.by_session, ..Wanted::default() };
    tracer::trace(&args.scope, wanted, |tracer| {
        http::serve(listener, waiter.teller())?;
        if args.scope.json {
            outln!("{}", json!({ "listening": address.to_string() }));
        } else {
            outln!("listening on http://{address}/metrics");
        }
        while let Some(Event::Scrape(answer)) = waiter.next(None) {
            // The client may be gone.
            let _ = answer.send(metrics::text(&tracer.counted(), tracer.losses()));
        }
        tell_losses(tracer.losses());
        Ok(())
    })
}
