//! What any service publishes, once.

use std::io::Write;

use bellwire::{Contract, Dynamic, RunDir, ServiceName, SnapshotCache};
use serde_json::json;

use super::args::Get;
use super::{DEFAULT_TIMEOUT, nothing, wait_for_first};
use crate::args::Args;
use crate::call::proto;
use crate::config;
use crate::exit::{Exit, Failure};
use crate::out;

pub(super) fn snapshot(
    run_dir: &RunDir,
    service: ServiceName,
    args: &Get,
) -> Result<Exit, Failure> {
    let is_of_cgroups = args.filter.is_some() || !args.orchestrator.is_empty();
    if args.watch || is_of_cgroups || !args.keys.is_empty() {
        Args::refuse("a snapshot of any service is printed once and whole: see --hex and --proto");
    }
    let message = match (&args.proto, &args.message) {
        (Some(file), Some(name)) => Some(proto::message(file, name)?),
        _ => None,
    };
    let contract = Contract::new(service).version(args.service_version);
    let mut cache = SnapshotCache::<Dynamic>::with_contract(run_dir, contract, config::client());
    let timeout = args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    if !wait_for_first(&mut cache, timeout)? {
        return Err(nothing(cache.state(), service.as_str(), run_dir, timeout));
    }
    let Some(current) = cache.current() else { return Ok(Exit::Ok) };
    let (bytes, mut stdout) = (current.bytes(), out::stdout());
    let text = out::printable(bytes).filter(|_| !args.hex);
    match (message, text) {
        (Some(message), _) => writeln!(stdout, "{}", proto::json(&message, bytes, "snapshot")?)?,
        (None, text) if args.output.is_json() => {
            let (generation, hex) = (current.generation(), out::hex(bytes));
            let all =
                json!({ "generation": generation, "bytes": bytes.len(), "text": text, "hex": hex });
            writeln!(stdout, "{all}")?;
        }
        (None, Some(text)) => writeln!(stdout, "{text}")?,
        (None, None) => writeln!(stdout, "{}", out::hex(bytes))?,
    }
    stdout.flush()?;
    Ok(Exit::Ok)
}
