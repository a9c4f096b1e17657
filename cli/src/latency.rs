//! How long calls take, by service: the histograms in the pages of those clients that this user may inspect.

use std::collections::{BTreeMap, HashMap};

use bellwire::{Latency, ServiceName};
use bellwire_observe::{Scanner, SeenSession};

use crate::stat::Provider;

/// A client's session: a number is unique only in its server's process.
type Key = (ServiceName, u64, u64, u32);

/// The latencies of all sessions that were seen. They only grow, although sessions end: what a session counted after it was
/// last seen is lost.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    scanner: Scanner,
    sessions: HashMap<Key, Latency>,
    services: BTreeMap<ServiceName, Latency>,
}

impl Latencies {
    /// Scans the sessions with these providers, and returns the latencies so far. There are none on a system where sessions
    /// cannot be observed.
    pub(crate) fn update(&mut self, providers: &[Provider]) -> BTreeMap<ServiceName, Latency> {
        let is_theirs = |seen: &SeenSession| {
            // The server of another run dir has another process; it is not seen if it is another user's.
            let server = seen.server.as_ref().map(|end| end.pid);
            let is_it = |provider: &Provider| {
                provider.service == seen.service && (server.is_none() || server == provider.pid)
            };
            providers.iter().any(is_it)
        };
        let mut sessions = self.scanner.scan().map(|scan| scan.sessions).unwrap_or_default();
        sessions.retain(is_theirs);
        self.add(&sessions);
        let is_there =
            |service: &ServiceName| providers.iter().any(|provider| provider.service == *service);
        let there = self.services.iter().filter(|(service, _)| is_there(service));
        there.map(|(service, latency)| (*service, *latency)).collect()
    }

    fn add(&mut self, sessions: &[SeenSession]) {
        let before = std::mem::take(&mut self.sessions);
        for seen in sessions {
            let Some(client) = &seen.client else { continue };
            // What it asks the providers itself.
            if client.pid == std::process::id() {
                continue;
            }
            let Some(counters) = client.page.counters else { continue };
            let key = (seen.service, seen.number, client.page.created, client.pid);
            let fresh = counters.latency.since(&before.get(&key).copied().unwrap_or_default());
            let sum = self.services.entry(seen.service).or_default();
            *sum = sum.and(&fresh);
            self.sessions.insert(key, counters.latency);
        }
    }
}
