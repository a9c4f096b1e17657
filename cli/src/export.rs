//! `bellwire export`: counters over HTTP.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bellwire::RunDir;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::args::positive_duration;
use crate::exit::{Exit, Failure};
use crate::latency::Latencies;
use crate::openmetrics;
use crate::stat::Asker;
use crate::stop::Stop;

/// Serve the counters of all providers over HTTP, for Prometheus and other scrapers
///
/// Each GET of /metrics queries the providers in the run dir, and responds in the text format of OpenMetrics 1.0. There is
/// no encryption and no authentication: listen on a loopback address.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bellwire export --listen 127.0.0.1:9464
  curl --silent http://127.0.0.1:9464/metrics")]
pub(crate) struct Export {
    /// The address to listen on; port 0 selects a free port, which is printed
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// How long to wait for each provider
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
}

/// Requests that are answered at once, each by a thread.
const MOST_ANSWERS: usize = 64;

pub(crate) fn run(run_dir: &RunDir, args: &Export) -> Result<Exit, Failure> {
    let stop = Stop::of_provider()?;
    let server = Server::http(args.listen).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot listen on {}: {error}", args.listen))
            .next("choose a free port of an address of this machine, with --listen")
    })?;
    let server = Arc::new(server);
    let theirs = Arc::clone(&server);
    stop.on_request(move || theirs.unblock());
    let address = server.server_addr();
    writeln!(anstream::stderr(), "listening on http://{address}/metrics")?;
    let (run_dir, timeout) = (run_dir.clone(), args.timeout);
    let latencies = Mutex::new(Latencies::default());
    let answer = Arc::new(move |request| {
        let asker = Asker { run_dir: &run_dir, timeout, method: None };
        // A client that went away does not end the server.
        let _ = answer(request, &asker, &latencies);
    });
    for request in server.incoming_requests() {
        // A client may read nothing, or announce a body that never comes: others do not wait for it.
        if Arc::strong_count(&answer) > MOST_ANSWERS {
            answer(request);
        } else {
            let answer = Arc::clone(&answer);
            thread::spawn(move || answer(request));
        }
        if stop.requested().is_some() {
            break;
        }
    }
    Ok(Exit::Ok)
}

fn answer(
    request: Request,
    asker: &Asker<'_>,
    latencies: &Mutex<Latencies>,
) -> std::io::Result<()> {
    let path = request.url().split('?').next().unwrap_or_default();
    if path != "/metrics" {
        return request.respond(text(404, "there is nothing but /metrics\n"));
    }
    if !matches!(request.method(), Method::Get | Method::Head) {
        return request.respond(text(405, "GET it\n"));
    }
    // A run dir that does not exist yet has no providers.
    let providers = asker.all().unwrap_or_default();
    let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner).update(&providers);
    let response = text(200, openmetrics::render(&providers, &latencies));
    request.respond(match Header::from_bytes("Content-Type", openmetrics::CONTENT_TYPE) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    })
}

fn text(status: u16, body: impl Into<String>) -> Response<std::io::Cursor<Vec<u8>>> {
    Response::from_string(body).with_status_code(status)
}
