//! `bellwire export`: counters over HTTP.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwire::RunDir;

use crate::args::positive_duration;
use crate::exit::{Exit, Failure};
use crate::latency::Latencies;
use crate::openmetrics;
use crate::stat::StatsQuery;
use crate::stop::Stop;

/// Serve the counters of all providers over HTTP, for Prometheus and other scrapers
///
/// Each GET of /metrics queries the providers in the run dir, and responds in the text format of OpenMetrics 1.0. There is
/// no encryption and no authentication: listen on a loopback address.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bellwire export --listen 127.0.0.1:9465
  curl --silent http://127.0.0.1:9465/metrics")]
pub(crate) struct Export {
    /// The address to listen on; port 0 selects a free port, which is printed
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// How long to wait for each provider
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
}

pub(crate) fn run(run_dir: &RunDir, args: &Export) -> Result<Exit, Failure> {
    let stop = Stop::of_provider()?;
    let listener = TcpListener::bind(args.listen).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot listen on {}: {error}", args.listen))
            .next("choose a free port of an address of this machine, with --listen")
    })?;
    let address = listener.local_addr()?;
    let (run_dir, timeout) = (run_dir.clone(), args.timeout);
    let latencies = Arc::new(Mutex::new(Latencies::default()));
    bellwire_scrape::serve(listener, move || {
        let asker = StatsQuery { run_dir: &run_dir, timeout, version: None };
        // A run dir that does not exist yet has no providers.
        let providers = asker.all().unwrap_or_default();
        let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner).update(&providers);
        Ok(openmetrics::render(&providers, &latencies))
    })?;
    writeln!(anstream::stderr(), "listening on http://{address}/metrics")?;
    stop.sleep();
    Ok(Exit::Ok)
}
