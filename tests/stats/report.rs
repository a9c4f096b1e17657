use bellwire::{
    CallError, Client, ClientConfig, ConnectError, Message, Observer, RefuseCode, ServerReport,
    Service, ServiceName,
};

use crate::support::guard::until;
use crate::support::house::{Dir, House, patient};
use crate::support::services::{Echo, Moody, Numbers};

const OBSERVERS: &str = "bellwire-stats";

fn observer(house: &House, service: ServiceName) -> Observer {
    Observer::open(house.run_dir(), service, &patient()).unwrap()
}

#[test]
fn any_endpoint_tells_the_counters_of_all_services() {
    let house = House::open();
    let mut client = house.client::<Echo>();
    for _ in 0..7 {
        client.call(&vec![1, 2]).unwrap();
    }
    // Whatever the endpoint serves, functions or snapshots.
    for service in [Client::<Echo>::SERVICE, Client::<Moody>::SERVICE, "numbers".parse().unwrap()] {
        let mut observer = observer(&house, service);
        until("all is told", || observer.look().unwrap().total.accepted >= 7);
        let report = observer.look().unwrap();
        assert_eq!((report.pid, report.workers), (std::process::id(), 0));
        assert_eq!(observer.provider_pid(), Some(report.pid));
        assert_eq!((report.max_sessions, report.max_in_flight), (16_384, 1024));
        assert!(report.started.elapsed().unwrap().as_secs() < 3600);
        let names: Vec<String> =
            report.services.iter().map(|row| row.service.to_string()).collect();
        assert_eq!(names, ["echo", "moody", "hold", "numbers", OBSERVERS]);
        let echo = report.services[0].stats;
        assert_eq!((echo.sessions, echo.accepted, echo.answered), (1, 7, 7));
        assert_eq!(
            report.services[1].stats.accepted, 0,
            "who asks for counters is not counted there"
        );
        // That of the observer before may not be over yet.
        until("one is left", || observer.look().unwrap().services[4].stats.sessions == 1);
    }
    // The sums are the rows'.
    drop(client);
    let (server, _dir) = house.into_server();
    let (rows, total) = (server.service_stats(), server.stop());
    assert_eq!(rows.len(), 5);
    let accepted: u64 = rows.iter().map(|row| row.stats.accepted).sum();
    assert!(total.accepted >= accepted && total.admitted == 4, "{total:?}");
    assert_eq!(total.accepted, total.answered + total.refused + total.lost);
}

#[test]
fn a_report_is_the_same_after_it_was_sent() {
    let house = House::open();
    let report = observer(&house, Client::<Echo>::SERVICE).look().unwrap();
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    assert_eq!(ServerReport::decode(&bytes).unwrap(), report);
    for len in 0..bytes.len() {
        assert!(ServerReport::decode(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        // Whatever it says: no panic, and nothing is made up.
        let _ = ServerReport::decode(&changed);
    }
    bytes.push(0);
    ServerReport::decode(&bytes).unwrap_err();
}

#[test]
fn a_report_with_more_counters_than_are_known_is_understood() {
    let house = House::open();
    let report = observer(&house, Client::<Echo>::SERVICE).look().unwrap();
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
    assert!(rows.is_empty());
    assert_eq!(ServerReport::decode(&newer).unwrap(), report);
}

#[test]
fn who_asks_for_a_method_that_nobody_serves_is_refused_as_ever() {
    struct Newer;
    impl Service for Newer {
        const NAME: &'static str = Echo::NAME;
        const METHOD: u32 = 7;
        type Request = ();
        type Response = ();
    }
    let house = House::open();
    let mut client = Client::<Newer>::with_config(house.run_dir(), patient());
    let refused = client.call(&()).unwrap_err();
    assert!(matches!(refused, CallError::Refused { code: RefuseCode::Service, .. }), "{refused}");
    until("it is counted", || house.service::<Echo>().turned_away == 1);
    assert_eq!(house.service::<Moody>().turned_away, 0);
}

#[test]
fn an_absent_service_has_no_counters() {
    let dir = Dir::new();
    let absent = Observer::open(&dir.run_dir, Client::<Echo>::SERVICE, &ClientConfig::default());
    assert!(matches!(absent, Err(ConnectError::Absent)));
    let _ = <Numbers as bellwire::Snapshot>::NAME;
}
