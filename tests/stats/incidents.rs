//! Which incidents are reported, when, and how they are counted.

use std::sync::mpsc::{Receiver, channel};
use std::time::SystemTime;

use bellwire::{
    Client, ClientConfig, ErrorKind, Incident, IncidentCause, IncidentKind, LaneConfig, Server,
    ServerConfig, StatsClient, Token, User,
};

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, client_config};

/// A server that reports incidents, and passes them on.
fn server(dir: &Dir, config: ServerConfig) -> (Server, Receiver<Incident>) {
    let (sender, incidents) = channel();
    // All tests of this process provide the same services: one must not learn from another.
    let lane = config.lane.clone().max_learned(config.lane.size);
    let config = config.lane(lane);
    let mut builder = Server::builder_with_config(&dir.run_dir, config);
    builder.serve::<Echo>(echo).unwrap();
    builder.on_incident(move |incident| sender.send(incident.clone()).unwrap());
    (builder.start().unwrap(), incidents)
}

fn with_token(token: u8) -> ClientConfig {
    client_config().token(Token::new([token; 16]))
}

fn is_refused(dir: &Dir, config: ClientConfig) {
    let error = Client::<Echo>::with_config(&dir.run_dir, config).connect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[test]
fn a_refusal_is_reported_at_once_with_its_time_and_counted_by_kind_and_user() {
    let dir = Dir::new();
    let before = SystemTime::now();
    let config = ServerConfig::default().token(Token::new([1; 16]));
    let (server, incidents) = server(&dir, config);
    is_refused(&dir, with_token(2));
    // While the server runs, and before any query.
    let incident = incidents.recv_timeout(TEST_TIMEOUT).expect("it is reported");
    assert!(incident.at >= before && incident.at <= SystemTime::now(), "{incident:?}");
    assert_eq!((incident.number, incident.suppressed), (0, 0));
    assert_eq!(incident.cause.kind(), IncidentKind::Refused);
    assert_eq!(incident.service, Client::<Echo>::SERVICE);
    let caller = incident.caller.as_ref().unwrap();
    assert_eq!((caller.user, caller.pid), (User::own(), Some(std::process::id())));
    let kept = server.incidents();
    assert_eq!(format!("{kept:?}"), format!("{:?}", [incident]));

    let mut stats_client =
        StatsClient::open(&dir.run_dir, Client::<Echo>::SERVICE, &with_token(1)).unwrap();
    let report = stats_client.fetch().unwrap();
    assert_eq!((report.total.clients_refused, report.total.handshakes_failed), (1, 1));
    let incidents = report.incidents.unwrap();
    let [row] = incidents[..] else { panic!("{incidents:?}") };
    assert_eq!((row.user, row.counts.total()), (Some(User::own()), 1));
    assert_eq!(row.counts.of(IncidentKind::Refused), 1);
    assert_eq!(server.incidents_by_user(), incidents);
    drop(stats_client);
    let stats = server.stop();
    assert_eq!(stats.accepted, stats.answered + stats.refused + stats.lost);
}

/// A client that retries endlessly does not flood the log; the number of attempts is reported in the end.
#[test]
fn a_flood_of_refusals_is_reported_in_part_and_counted_in_full() {
    let dir = Dir::new();
    let config = ServerConfig::default().token(Token::new([1; 16]));
    let (server, incidents) = server(&dir, config);
    for _ in 0..100 {
        is_refused(&dir, with_token(2));
    }
    until("all are counted", || server.stats().clients_refused == 100);
    let so_far = incidents.try_iter().count() as u64;
    assert!(so_far < 100, "all were reported");
    assert_eq!(server.incidents_by_user()[0].counts.of(IncidentKind::Refused), 100);
    server.stop();
    let rest: Vec<Incident> = incidents.iter().collect();
    let last = rest.last().expect("it is reported at the end");
    assert_eq!(last.number, 99);
    let suppressed: u64 = rest.iter().map(|incident| incident.suppressed).sum();
    assert_eq!(so_far + rest.len() as u64 + suppressed, 100);
}

/// The incident callback belongs to the embedding program: its panic does not end the reactor.
#[test]
fn a_listener_that_panics_ends_nothing() {
    let dir = Dir::new();
    let config = ServerConfig::default().token(Token::new([1; 16]));
    let mut builder = Server::builder_with_config(&dir.run_dir, config);
    builder.serve::<Echo>(echo).unwrap();
    builder.on_incident(|_| panic!("on purpose"));
    let server = builder.start().unwrap();
    is_refused(&dir, with_token(2));
    let mut good = Client::<Echo>::with_config(&dir.run_dir, with_token(1));
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    drop(good);
    assert_eq!(server.stop().clients_refused, 1);
}

#[test]
fn a_lane_that_has_grown_to_its_limit_is_reported_once() {
    let dir = Dir::new();
    let mut config = ServerConfig::default().lane(LaneConfig::default().stream_from(None));
    config.lane.limits.max_lane = bellwire::Geometry::new(64 * 1024).unwrap();
    let (server, incidents) = server(&dir, config);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let long = vec![7; 30_000];
    for _ in 0..3 {
        assert_eq!(client.call(&long).unwrap(), long);
    }
    let incident = incidents.recv_timeout(TEST_TIMEOUT).expect("it is reported");
    assert!(matches!(incident.cause, IncidentCause::AtLimit { bytes: 0x1_0000 }), "{incident}");
    drop(client);
    assert_eq!(server.stop().at_limit, 1);
    assert_eq!(incidents.iter().count(), 0);
}
