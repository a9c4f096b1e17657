use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Instant;

use bellwire::{Latency, ServiceName};
use bellwire_observe::{Counter, SeenEnd, SeenPage, SeenSession};
use serde::Serialize;

/// One session, and its activity since the last scan.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) seen: SeenSession,
    pub(super) calls: Option<f64>,
    pub(super) errors: Option<f64>,
    /// Latency of the calls since the last scan, or of all calls if the session is new; empty if the client is not visible.
    pub(super) latency: Latency,
    pub(super) in_flight: u64,
    pub(super) requests: Lane,
    pub(super) answers: Lane,
}

/// The used part of a lane.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Lane {
    /// 0 if its owner is not visible.
    pub(super) size: u64,
    pub(super) used: u64,
    pub(super) high_water: u64,
}

/// A service, summed over its sessions.
#[derive(Clone, Debug)]
pub(super) struct ServiceRow {
    pub(super) service: ServiceName,
    pub(super) sessions: usize,
    pub(super) calls: f64,
    pub(super) errors: f64,
    pub(super) latency: Latency,
    pub(super) in_flight: u64,
}

/// The sort key of the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Calls,
    P99,
    Errors,
    Use,
    Peer,
    Service,
}

/// The shown rows and their order.
#[derive(Debug)]
pub(super) struct Model {
    before: HashMap<Key, Before>,
    pub(super) rows: Vec<Row>,
    pub(super) services: Vec<ServiceRow>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    only: Option<ServiceName>,
    /// What could not be inspected, for the operator.
    pub(super) note: Option<String>,
}

/// A session's number is unique only in its server's process, and process ids are reused.
type Key = (ServiceName, u64, Option<u32>, u64);

#[derive(Clone, Copy, Debug)]
struct Before {
    at: Instant,
    calls: u64,
    errors: u64,
    latency: Latency,
}

impl Model {
    pub(super) fn new(only: Option<ServiceName>) -> Self {
        Self {
            before: HashMap::new(),
            rows: Vec::new(),
            services: Vec::new(),
            sort: Sort::Calls,
            is_reversed: false,
            only,
            note: None,
        }
    }

    /// Processes the scanned sessions.
    pub(super) fn update(&mut self, sessions: Vec<SeenSession>, now: Instant) {
        let mut after = HashMap::new();
        self.rows.clear();
        for seen in sessions {
            if self.only.is_some_and(|only| only != seen.service) {
                continue;
            }
            let (key, state) = (key(&seen), Before::of(&seen, now));
            self.rows.push(Row::of(seen, &state, self.before.get(&key)));
            after.insert(key, state);
        }
        self.before = after;
        self.services = services(&self.rows);
        self.order();
    }

    /// Sorts by this key: largest first, except for names.
    pub(super) fn sort_by(&mut self, sort: Sort) {
        (self.sort, self.is_reversed) = (sort, false);
        self.order();
    }

    pub(super) fn reverse(&mut self) {
        self.is_reversed = !self.is_reversed;
        self.order();
    }

    fn order(&mut self) {
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        let name = |row: &Row| (row.seen.service, row.server_pid(), row.seen.number);
        self.rows.sort_by(|one, other| {
            let order = match sort {
                Sort::Calls => largest(one.calls, other.calls),
                Sort::P99 => other.latency.quantile(990).cmp(&one.latency.quantile(990)),
                Sort::Errors => largest(one.errors, other.errors),
                Sort::Use => largest(Some(one.share()), Some(other.share())),
                Sort::Peer => one.client_pid().cmp(&other.client_pid()),
                Sort::Service => Ordering::Equal,
            };
            let order = order.then_with(|| name(one).cmp(&name(other)));
            if is_reversed { order.reverse() } else { order }
        });
    }

    /// Returns the calls per second of all sessions.
    pub(super) fn calls(&self) -> f64 {
        // The sum of no rows is -0.
        self.rows.iter().filter_map(|row| row.calls).fold(0.0, |sum, calls| sum + calls)
    }
}

impl Row {
    fn of(seen: SeenSession, now: &Before, before: Option<&Before>) -> Self {
        let (client, server) = (page(seen.client.as_ref()), page(seen.server.as_ref()));
        let rate = |of: fn(&Before) -> u64| {
            let before = before?;
            let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
            Some(of(now).checked_sub(of(before))?)
                .filter(|_| seconds > 0.0)
                .map(|came| whole(came) / seconds)
        };
        let in_flight = [client, server].into_iter().flatten().find_map(|page| page.counters);
        Self {
            calls: rate(|state| state.calls),
            errors: rate(|state| state.errors),
            latency: before.map_or(now.latency, |before| now.latency.since(&before.latency)),
            in_flight: in_flight.map_or(0, |counters| counters.in_flight()),
            requests: Lane::of(client, server),
            answers: Lane::of(server, client),
            seen,
        }
    }

    pub(super) fn client_pid(&self) -> Option<u32> {
        self.seen.client.as_ref().map(|end| end.pid)
    }

    pub(super) fn server_pid(&self) -> Option<u32> {
        self.seen.server.as_ref().map(|end| end.pid)
    }

    /// Returns the used share of the fuller lane: 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let share = |lane: &Lane| {
            if lane.size == 0 { 0.0 } else { whole(lane.used.min(lane.size)) / whole(lane.size) }
        };
        share(&self.requests).max(share(&self.answers))
    }
}

impl Lane {
    fn of(owner: Option<&SeenPage>, peer: Option<&SeenPage>) -> Self {
        let Some(page) = owner else { return Self::default() };
        let Some(counters) = &page.counters else { return Self::default() };
        // The reader sees each record; the writer checks only from time to time.
        let read = peer.and_then(|peer| peer.counters);
        let read = read.map_or(0, |counters| counters.of(Counter::PeerHighWater));
        Self {
            size: counters.lane_size(),
            used: peer.map_or(0, |peer| page.in_use(peer)),
            high_water: counters.of(Counter::HighWater).max(read),
        }
    }
}

impl Before {
    fn of(seen: &SeenSession, at: Instant) -> Self {
        let counters = |end: Option<&SeenEnd>| page(end).and_then(|page| page.counters);
        let (client, server) = (counters(seen.client.as_ref()), counters(seen.server.as_ref()));
        let errors = |counters: bellwire_observe::Counters, ended| {
            counters.of(Counter::Refused).wrapping_add(counters.of(ended))
        };
        match (client, server) {
            (Some(client), _) => Self {
                at,
                calls: client.of(Counter::Requests),
                errors: errors(client, Counter::Failed),
                latency: client.latency,
            },
            (None, Some(server)) => Self {
                at,
                calls: server.of(Counter::Requests),
                errors: errors(server, Counter::Errors),
                latency: Latency::default(),
            },
            (None, None) => Self { at, calls: 0, errors: 0, latency: Latency::default() },
        }
    }
}

fn page(end: Option<&SeenEnd>) -> Option<&SeenPage> {
    end.map(|end| &end.page)
}

fn key(seen: &SeenSession) -> Key {
    let first = [&seen.client, &seen.server].into_iter().flatten().next();
    let pid = seen.server.as_ref().map(|end| end.pid);
    (seen.service, seen.number, pid, first.map_or(0, |end| end.page.created))
}

fn services(rows: &[Row]) -> Vec<ServiceRow> {
    let mut services: Vec<ServiceRow> = Vec::new();
    let mut by_name: Vec<&Row> = rows.iter().collect();
    by_name.sort_by_key(|row| row.seen.service);
    for row in by_name {
        if services.last().is_none_or(|last| last.service != row.seen.service) {
            services.push(ServiceRow {
                service: row.seen.service,
                sessions: 0,
                calls: 0.0,
                errors: 0.0,
                latency: Latency::default(),
                in_flight: 0,
            });
        }
        if let Some(service) = services.last_mut() {
            service.sessions += 1;
            service.calls += row.calls.unwrap_or(0.0);
            service.errors += row.errors.unwrap_or(0.0);
            service.latency = service.latency.and(&row.latency);
            service.in_flight = service.in_flight.saturating_add(row.in_flight);
        }
    }
    services.sort_by(|one, other| largest(Some(one.calls), Some(other.calls)));
    services
}

fn largest(one: Option<f64>, other: Option<f64>) -> Ordering {
    other.partial_cmp(&one).unwrap_or(Ordering::Equal)
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn whole(number: u64) -> f64 {
    number as f64
}
