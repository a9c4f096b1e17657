//! Counters in the text format of OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

use bellwire::{Latency, ServerReport, ServerStats, ServiceName, UserIncidents};

use crate::stat::{Provider, QueryResult};

/// The counters and gauges of each service: kind, name in [`ServerStats::NAMES`], name of the family without the prefix and
/// without `_total`, help.
const FAMILIES: &str = "\
gauge   sessions           sessions Sessions open now.
gauge   socket_rung        sessions_socket_rung Of those, sessions rung through their socket.
counter admitted           sessions_admitted Clients that were let in.
counter handshakes_failed  handshakes_failed Clients that were refused, or did not finish the handshake.
counter accepted           requests_accepted Requests taken; a batch is one.
counter answered           requests_answered Requests that a handler answered, or failed.
counter refused            requests_refused Requests that were answered without a handler having run.
counter lost               requests_lost Requests whose client went away before the answer.
counter errors             request_errors Of those answered, requests that their handler failed, or whose answer could not be sent.
counter panics             handler_panics Handlers that panicked.
counter poisoned           sessions_poisoned Sessions whose client violated the protocol.
counter stalled            sessions_stalled Sessions whose client read nothing for too long.
counter rings              rings Times that a client was rung.
counter bytes_received     received_bytes Bytes of records taken.
counter bytes_sent         sent_bytes Bytes of records written.
counter attaches_received  attachments_received Messages received in memory of their own.
counter attaches_sent      attachments_sent Messages sent in memory of their own.
counter grows              lane_grows Times that a lane became larger.
counter shrinks            lane_shrinks Times that a lane became smaller.
counter lane_full          lane_full Answers that met a full lane.
gauge   backlog_peak       backlog_peak The most clients accepted in a row at the endpoint without emptying its backlog.
gauge   request_high_water request_high_water_bytes The most bytes of requests in one session's lane at one time.
gauge   answer_high_water  answer_high_water_bytes The most bytes of answers in one session's lane at one time.
gauge   clients_by_futex   sessions_client_by_futex Sessions open now whose client is rung by a futex.
gauge   clients_by_eventfd sessions_client_by_eventfd Sessions open now whose client is rung by an eventfd.
gauge   clients_by_socket  sessions_client_by_socket Sessions open now whose client is rung through its socket.
counter clients_refused    clients_refused Of the clients that were not admitted, those that were refused.
counter out_of_descriptors descriptor_shortages Times that the provider had no descriptor left for a client.
counter out_of_memory      memory_shortages Times that the provider had no memory or maps left for a client.
counter at_limit           lanes_at_limit Sessions whose lane of answers has reached its maximum size.
counter over_quota         over_quota Times that a client was refused memory above its user's quota.
counter displaced          endpoints_displaced Times that the service's files in the run dir were removed or replaced.
counter posted             posts One-way requests that were handled or refused.
counter post_errors        post_errors One-way requests that the handler failed, or that were refused without running it.
counter published          published Snapshots and events published.
gauge   netipc_sessions    sessions_netipc Of the sessions open now, those of clients that speak netipc.
counter netipc_admitted    sessions_netipc_admitted Clients that speak netipc and were let in.";

/// Splits a line of [`FAMILIES`].
fn family(line: &str) -> Option<[&str; 4]> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(word)
    };
    let [kind, field, name] = [word()?, word()?, word()?];
    Some([kind, field, name, rest])
}

/// Renders everything that these providers reported, and how long calls took.
pub(crate) fn render(providers: &[Provider], latencies: &BTreeMap<ServiceName, Latency>) -> String {
    let mut text = Text::default();
    text.family("up", "gauge", "Whether the provider of a service answers.");
    for provider in providers {
        text.sample(&service(provider), u8::from(matches!(provider.result, QueryResult::Open)));
    }
    text.family("provider", "gauge", "Always 1: which process provides a service.");
    for provider in providers {
        if let Some(pid) = provider.pid {
            text.sample(&format!("{},pid=\"{pid}\"", service(provider)), 1);
        }
    }
    let reported = || providers.iter().filter_map(|provider| Some((provider, provider.stats()?)));
    for [kind, field, name, help] in FAMILIES.lines().filter_map(family) {
        text.family(name, kind, help);
        for (provider, stats) in reported() {
            let named = ServerStats::NAMES.into_iter().zip(stats.values());
            let value = named.into_iter().find(|(name, _)| *name == field);
            text.sample(&service(provider), value.map_or(0, |(_, value)| value));
        }
    }
    text.family("requests_in_flight", "gauge", "Requests taken and not yet answered.");
    for (provider, stats) in reported() {
        text.sample(&service(provider), stats.in_flight());
    }
    servers(&mut text, providers);
    histograms(&mut text, latencies);
    text.lines.push_str("# EOF\n");
    text.lines
}

/// Renders the figures of a server as a whole, however many services it has.
fn servers(text: &mut Text, providers: &[Provider]) {
    let reports = providers.iter().filter_map(|provider| provider.report.as_ref());
    let servers: BTreeMap<u32, &ServerReport> =
        reports.map(|report| (report.pid, report)).collect();
    let mut each = |name, kind, help, value: fn(&ServerReport) -> String| {
        text.family(name, kind, help);
        for (pid, report) in &servers {
            text.sample(&format!("pid=\"{pid}\""), value(report));
        }
    };
    each("server_parks", "counter", "Times that the reactor slept.", |report| {
        report.total.parks.to_string()
    });
    let help = "When the server started, in seconds since 1970.";
    each("server_start_time_seconds", "gauge", help, |report| seconds(report.started).to_string());
    each("server_workers", "gauge", "Threads that run handlers.", |report| {
        report.workers.to_string()
    });
    let help = "Sessions that the server admits at once.";
    each("server_sessions_limit", "gauge", help, |report| report.max_sessions.to_string());
    let help = "What clients were not let in or closed for, and what the server lacked for them.";
    text.family("server_incidents", "counter", help);
    for (pid, report) in &servers {
        for UserIncidents { user, counts, .. } in report.incidents.iter().flatten() {
            let user = user.map_or_else(|| "others".to_owned(), |user| user.to_string());
            for (kind, count) in counts.iter() {
                text.sample(&format!("pid=\"{pid}\",user=\"{user}\",kind=\"{kind}\""), count);
            }
        }
    }
    text.family("server_backend", "gauge", "Always 1: what the reactor waits with.");
    for (pid, report) in &servers {
        if let Some(backend) = report.backend {
            let requested = report.backend_requested;
            text.sample(
                &format!("pid=\"{pid}\",backend=\"{backend}\",requested=\"{requested}\""),
                1,
            );
        }
    }
}

/// Renders the latencies, by powers of two. Their sum is not known.
fn histograms(text: &mut Text, latencies: &BTreeMap<ServiceName, Latency>) {
    /// The buckets of a page that make up one here: a doubling.
    const STEPS: usize = 4;
    let help = "How long the calls of clients took that could be inspected.";
    text.family("call_seconds", "histogram", help);
    for (service, latency) in latencies {
        let mut below = 0;
        for (at, buckets) in latency.0.chunks(STEPS).enumerate() {
            below += buckets.iter().sum::<u64>();
            let last = (at + 1) * STEPS - 1;
            let bound = match last + 1 < latency.0.len() {
                // All values are integers, so the bound is the last one below.
                true => {
                    format!("{:e}", Duration::from_nanos(Latency::upper(last) - 1).as_secs_f64())
                }
                false => "+Inf".to_owned(),
            };
            text.sample(&format!("service=\"{service}\",le=\"{bound}\""), below);
        }
    }
}

/// A service's name needs no escape: it is made of a-z, 0-9 and -.
fn service(provider: &Provider) -> String {
    format!("service=\"{}\"", provider.service)
}

/// Seconds since 1970.
pub(crate) fn seconds(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The output. A family without a sample is left out.
#[derive(Default)]
struct Text {
    lines: String,
    /// The head of the family, written with its first sample.
    head: String,
    /// What its samples are called.
    sample: String,
}

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // The name's last word, where that is a unit.
        let unit = name.rsplit('_').next().filter(|unit| ["bytes", "seconds"].contains(unit));
        let suffix = match kind {
            "counter" => "_total",
            "histogram" => "_bucket",
            _ => "",
        };
        self.sample = format!("bellwire_{name}{suffix}");
        // Writing into a string does not fail.
        self.head.clear();
        let _ = writeln!(self.head, "# TYPE bellwire_{name} {kind}");
        if let Some(unit) = unit.filter(|_| kind != "histogram") {
            let _ = writeln!(self.head, "# UNIT bellwire_{name} {unit}");
        }
        let _ = writeln!(self.head, "# HELP bellwire_{name} {help}");
    }

    fn sample(&mut self, labels: &str, value: impl std::fmt::Display) {
        self.lines.push_str(&std::mem::take(&mut self.head));
        let _ = writeln!(self.lines, "{}{{{labels}}} {value}", self.sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_a_service_has_a_family() {
        let fields = FAMILIES.lines().map(|line| family(line).unwrap()[1]);
        let mut exported: Vec<&str> = fields.collect();
        // The reactor sleeps for all services together.
        exported.push("parks");
        exported.sort_unstable();
        let mut names = ServerStats::NAMES;
        names.sort_unstable();
        assert_eq!(exported, names);
    }

    #[test]
    fn no_provider_is_exported_when_none_serves() {
        assert_eq!(render(&[], &BTreeMap::new()), "# EOF\n");
    }
}
