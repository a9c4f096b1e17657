use bellwire::{
    Backend, CallError, Client, ClientConfig, ConnectError, Message, RefuseCode, ServerReport,
    ServerStats, Service, ServiceName, StatsClient,
};

use crate::support::guard::until;
use crate::support::services::{AsRequested, Echo, Numbers};
use crate::support::test_server::{Dir, TestServer, client_config};

const STATS: &str = "bellwire-stats";

fn stats_client(fixture: &TestServer, service: ServiceName) -> StatsClient {
    StatsClient::open(fixture.run_dir(), service, &client_config()).unwrap()
}

#[test]
fn any_endpoint_reports_the_counters_of_all_services() {
    let fixture = TestServer::open();
    let mut client = fixture.client::<Echo>();
    for _ in 0..7 {
        client.call(&vec![1, 2]).unwrap();
    }
    // Whatever the endpoint serves, functions or snapshots.
    for service in
        [Client::<Echo>::SERVICE, Client::<AsRequested>::SERVICE, "numbers".parse().unwrap()]
    {
        let mut stats_client = stats_client(&fixture, service);
        until("all is counted", || stats_client.fetch().unwrap().total.accepted >= 7);
        let report = stats_client.fetch().unwrap();
        assert_eq!((report.pid, report.workers), (std::process::id(), 0));
        assert_eq!(stats_client.provider_pid(), Some(report.pid));
        // Less where the process has no maps for so many.
        assert!((1000..=16_384).contains(&report.max_sessions), "{}", report.max_sessions);
        assert_eq!(report.max_in_flight, 1024);
        assert!(report.started.elapsed().unwrap().as_secs() < 3600);
        let names: Vec<String> =
            report.services.iter().map(|row| row.service.to_string()).collect();
        assert_eq!(names, ["echo", "as-requested", "hold", "numbers", STATS]);
        let echo = report.services[0].stats;
        assert_eq!((echo.sessions, echo.accepted, echo.answered), (1, 7, 7));
        assert_eq!(
            report.services[1].stats.accepted, 0,
            "who asks for counters is not counted there"
        );
        // That of the client before may not be over yet.
        until("one is left", || stats_client.fetch().unwrap().services[4].stats.sessions == 1);
    }
    // The sums are the rows'.
    drop(client);
    let (server, _dir) = fixture.into_server();
    let (rows, total) = (server.service_stats(), server.stop());
    assert_eq!(rows.len(), 5);
    let accepted: u64 = rows.iter().map(|row| row.stats.accepted).sum();
    assert!(total.accepted >= accepted && total.admitted == 4, "{total:?}");
    assert_eq!(total.accepted, total.answered + total.refused + total.lost);
}

#[test]
fn a_report_is_the_same_after_it_was_sent() {
    let fixture = TestServer::open();
    let report = stats_client(&fixture, Client::<Echo>::SERVICE).fetch().unwrap();
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    assert_eq!(ServerReport::decode(&bytes).unwrap(), report);
    for len in 0..bytes.len() {
        assert!(ServerReport::decode(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        // For any input: no panic, and no invented values.
        let _ = ServerReport::decode(&changed);
    }
    bytes.push(0);
    ServerReport::decode(&bytes).unwrap_err();
}

#[test]
fn a_report_with_more_counters_than_are_known_is_understood() {
    let fixture = TestServer::open();
    let report = stats_client(&fixture, Client::<Echo>::SERVICE).fetch().unwrap();
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    let known = report.total.values().len();
    let (head, mut rows) = bytes.split_at(48);
    let mut newer = head.to_vec();
    newer[44..48].copy_from_slice(&(known as u32 + 1).to_le_bytes());
    for name in [0, 64, 64, 64, 64, 64] {
        let (row, rest) = rows.split_at(name + 8 * known);
        newer.extend_from_slice(row);
        newer.extend_from_slice(&99_u64.to_le_bytes());
        rows = rest;
    }
    // No user has done anything.
    assert_eq!(rows[..4], [0; 4]);
    newer.extend_from_slice(rows);
    assert_eq!(ServerReport::decode(&newer).unwrap(), report);
}

/// A report as a server wrote it before it included its backend, or users: 24 counters, and zeroes behind `workers`.
fn of_an_older_server(report: &ServerReport) -> Vec<u8> {
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    let known = report.total.values().len();
    let (head, mut rows) = bytes.split_at(48);
    let mut older = head.to_vec();
    older[..4].copy_from_slice(&1_u32.to_le_bytes());
    older[20..24].fill(0);
    older[44..48].copy_from_slice(&24_u32.to_le_bytes());
    for name in std::iter::once(0).chain(report.services.iter().map(|_| 64)) {
        let (row, rest) = rows.split_at(name + 8 * known);
        older.extend_from_slice(&row[..name + 8 * 24]);
        rows = rest;
    }
    older
}

#[test]
fn a_report_of_an_older_server_is_understood_and_missing_counters_stay_missing() {
    let fixture = TestServer::open();
    let client = fixture.client::<Echo>();
    let mut stats_client = stats_client(&fixture, Client::<Echo>::SERVICE);
    let by = |stats: &ServerStats| {
        stats.clients_by_futex + stats.clients_by_eventfd + stats.clients_by_socket
    };
    until("the rejection is counted", || by(&stats_client.fetch().unwrap().services[0].stats) == 1);
    let mut report = stats_client.fetch().unwrap();
    assert!(report.backend.is_some());
    let older = ServerReport::decode(&of_an_older_server(&report)).unwrap();
    assert_eq!((older.backend, older.backend_requested), (None, Backend::Auto));
    (report.backend, report.incidents) = (None, None);
    report.backend_requested = Backend::Auto;
    let rows = report.services.iter_mut().map(|row| &mut row.stats);
    for stats in rows.chain([&mut report.total]) {
        (stats.clients_by_futex, stats.clients_by_eventfd, stats.clients_by_socket) = (0, 0, 0);
    }
    assert_eq!(older, report);
    drop(client);
}

/// The reader of before: docs/wire.md as it was, with 24 counters known and four bytes that it passes over.
#[test]
fn a_reader_of_before_understands_a_report_of_now() {
    let fixture = TestServer::open();
    let mut client = fixture.client::<Echo>();
    client.call(&vec![1]).unwrap();
    // An empty request: it asks for no later layout.
    let mut report = stats_client(&fixture, Client::<Echo>::SERVICE).fetch().unwrap();
    assert_eq!(report.incidents, Some(vec![]));
    report.incidents = None;
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    let u32_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    assert_eq!((u32_at(0), u32_at(4), u32_at(16)), (1, report.pid, report.workers));
    assert_eq!((u64_at(24), u64_at(32)), (report.max_sessions, report.max_in_flight));
    let (rows, counters) = (u32_at(40) as usize, u32_at(44) as usize);
    assert!(rows == report.services.len() && counters >= 24);
    let first = |at: usize| (0..24).map(|nth| u64_at(at + 8 * nth)).collect::<Vec<_>>();
    assert_eq!(first(48), report.total.values()[..24]);
    let mut at = 48 + 8 * counters;
    for row in &report.services {
        let field = *bytes[at..].first_chunk().unwrap();
        assert_eq!(ServiceName::from_field(&field), Ok(row.service));
        assert_eq!(first(at + 64), row.stats.values()[..24]);
        at += 64 + 8 * counters;
    }
    assert_eq!(at, bytes.len(), "nothing follows");
    // Their positions are unchanged.
    let names =
        ["sessions", "socket_rung", "admitted", "handshakes_failed", "accepted", "answered"];
    assert_eq!(ServerStats::NAMES[..6], names);
    assert_eq!(
        ServerStats::NAMES[20..24],
        ["lane_full", "backlog_peak", "request_high_water", "answer_high_water"]
    );
}

#[test]
fn a_version_that_is_not_served_is_refused_as_ever() {
    struct Newer;
    impl Service for Newer {
        const NAME: &'static str = Echo::NAME;
        const VERSION: u32 = 7;
        type Request = ();
        type Response = ();
    }
    let fixture = TestServer::open();
    let mut client = Client::<Newer>::with_config(fixture.run_dir(), client_config());
    let refused = client.call(&()).unwrap_err();
    assert!(matches!(refused, CallError::Refused { code: RefuseCode::Service, .. }), "{refused}");
    until("it is counted", || fixture.service::<Echo>().handshakes_failed == 1);
    assert_eq!(fixture.service::<AsRequested>().handshakes_failed, 0);
}

#[test]
fn an_absent_service_has_no_counters() {
    let dir = Dir::new();
    let absent = StatsClient::open(&dir.run_dir, Client::<Echo>::SERVICE, &ClientConfig::default());
    assert!(matches!(absent, Err(ConnectError::Absent)));
    let _ = <Numbers as bellwire::Snapshot>::NAME;
}
