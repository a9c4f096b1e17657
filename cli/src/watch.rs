//! `bellwire watch`: prints the events of a service.

use std::io::Write;
use std::time::{Duration, Instant};

use bellwire::{
    CallError, Contract, Delivery, ProviderState, RunDir, ServiceName, StartAt, SubscribeError,
    Subscriber,
};
use serde_json::json;

use crate::args::{Output, duration};
use crate::config;
use crate::exit::{Exit, Failure};
use crate::out::{self, FAINT, WARN};
use crate::stop::Stop;

/// Print the events of a service as they come
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints an event that is printable UTF-8 as text, any other as hexadecimal digits, each behind its number; and how many were missed.

Exit codes: 3 no provider, 4 refused, 5 no event in time.

Examples:
  bellwire watch temperature
  bellwire watch temperature --oldest --json | jq .sequence
  bellwire watch temperature --count 1 --timeout 5s")]
pub(crate) struct Watch {
    /// The service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// Start with the oldest event that the provider keeps, not with the next one
    #[arg(long)]
    pub(crate) oldest: bool,
    /// Stop after N events
    #[arg(long, short, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How long to watch [default: until SIGINT]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Print each event as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    /// The version of the service
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) service_version: u32,
}

/// The time after which the reason for a missing session is printed.
const REASON_DELAY: Duration = Duration::from_millis(100);

pub(crate) fn run(run_dir: &RunDir, args: &Watch) -> Result<Exit, Failure> {
    let stop = Stop::on_signals()?;
    let start = if args.oldest { StartAt::Oldest } else { StartAt::Now };
    let contract = Contract::new(args.service).version(args.service_version);
    let mut subscriber = Subscriber::with_contract(run_dir, contract, start, config::client());
    let canceller = subscriber
        .canceller()
        .map_err(|error| Failure::of(Exit::Failed, "cannot create a canceller", &error))?;
    stop.on_request(move || canceller.cancel());
    let limit = args.timeout.map(|timeout| Instant::now() + timeout);
    let (mut printed, mut has_reported) = (0, false);
    while stop.requested().is_none() && args.count.is_none_or(|count| printed < count) {
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        let delay = left.map_or(REASON_DELAY, |left| left.min(REASON_DELAY));
        match subscriber.next(if has_reported { left } else { Some(delay) }) {
            Ok(Some(delivery)) => {
                printed += u64::from(matches!(delivery, Delivery::Event { .. }));
                print(&delivery, args)?;
            }
            Ok(None) if !has_reported && left != Some(delay) => {
                let state = subscriber.state();
                // A handshake may take longer, and be refused then.
                has_reported = state != ProviderState::Connecting;
                let why = match state {
                    ProviderState::Refused { reason, .. }
                    | ProviderState::Failed { reason, .. } => reason.into(),
                    ProviderState::Absent => format!("waiting for a provider of {}", args.service),
                    _ => continue,
                };
                writeln!(anstream::stderr(), "{WARN}{why}{WARN:#}")?;
            }
            Ok(None) => return Err(nothing(run_dir, args, &subscriber.state())),
            Err(SubscribeError::Call(CallError::Cancelled { .. })) => {}
            Err(SubscribeError::Call(error)) => return Err(error.into()),
            Err(error) => return Err(Failure::new(Exit::Provider, error.to_string())),
        }
    }
    Ok(Exit::Ok)
}

fn print(delivery: &Delivery<Vec<u8>>, args: &Watch) -> Result<(), Failure> {
    let is_json = args.output.is_json();
    let line = match delivery {
        Delivery::Event { sequence, event } => {
            let text = out::printable(event).filter(|_| !args.hex);
            match text.ok_or_else(|| out::hex(event)) {
                Ok(text) if is_json => json!({ "sequence": sequence, "text": text }).to_string(),
                Err(hex) if is_json => json!({ "sequence": sequence, "hex": hex }).to_string(),
                Ok(text) => format!("{FAINT}{sequence}{FAINT:#}  {text}"),
                Err(hex) => format!("{FAINT}{sequence}{FAINT:#}  {hex}"),
            }
        }
        Delivery::Missed { events } if is_json => json!({ "missed": events }).to_string(),
        Delivery::Missed { events } => format!("{WARN}{events} missed{WARN:#}"),
        Delivery::Restarted if is_json => json!({ "restarted": true }).to_string(),
        Delivery::Restarted => format!("{WARN}the provider was restarted{WARN:#}"),
    };
    let mut stdout = out::stdout();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

/// Why there was no event in time.
fn nothing(run_dir: &RunDir, args: &Watch, state: &ProviderState) -> Failure {
    let (service, dir) = (args.service, run_dir.path().display());
    match state {
        ProviderState::Ready => {
            Failure::new(Exit::Deadline, format!("no event of {service} in time"))
        }
        ProviderState::Refused { reason, .. } => {
            Failure::new(Exit::Refused, format!("the provider of {service} refused: {reason}"))
        }
        ProviderState::Incompatible { .. } => {
            Failure::new(Exit::Refused, "no common protocol version".to_owned())
        }
        ProviderState::Failed { kind, reason } => {
            Failure::of_kind(*kind, format!("no session with the provider of {service}: {reason}"))
        }
        _ => Failure::new(Exit::Absent, format!("nobody provides {service} in {dir}"))
            .next("list the providers with `bellwire ls`, or name another --run-dir"),
    }
}
