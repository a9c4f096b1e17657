//! Sessions observed from outside, through their pages.

use std::time::Duration;

use bellwire::{CallError, Client, Doorbell, Service, Session};
use bellwire_observe::{Counter, Counters, Scanner, SeenSession};

use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::services::{AsRequested, Echo, Hold};
use crate::support::test_server::{Dir, client_config};

/// The sessions of a service with this server.
fn seen<S: Service>(scanner: &mut Scanner, server: &Process) -> Vec<SeenSession> {
    let found = scanner.scan().unwrap().sessions.into_iter();
    let is_ours = |session: &SeenSession| {
        let pid = session.server.as_ref().map(|end| end.pid);
        session.service == Client::<S>::SERVICE && pid == Some(server.pid())
    };
    found.filter(is_ours).collect()
}

fn pages<S: Service>(scanner: &mut Scanner, server: &Process) -> [bellwire_observe::SeenPage; 2] {
    // A scan of a process whose maps change meanwhile may miss one.
    let mut pages = None;
    until("both ends are seen", || {
        let [session] = seen::<S>(scanner, server).try_into().expect("there is one session");
        pages = session.client.zip(session.server);
        pages.is_some()
    });
    let (client, server) = pages.unwrap();
    [client.page, server.page]
}

/// The client's page agrees with the session.
fn assert_page_has_stats<S: Service>(counters: &Counters, session: &Session<S>) {
    let stats = session.stats();
    let counted = |counter| counters.of(counter);
    assert_eq!(counted(Counter::Requests), stats.made);
    assert_eq!(counted(Counter::Answered), stats.answered);
    assert_eq!(counted(Counter::Refused), stats.refused);
    assert_eq!(counted(Counter::Failed), stats.failed);
    assert_eq!(counted(Counter::Errors), stats.errors);
    assert_eq!(counted(Counter::Late), stats.late);
    assert_eq!(counted(Counter::Dropped), stats.dropped);
    assert_eq!(counted(Counter::Unsent), stats.unsent);
    assert_eq!(counters.in_flight(), stats.in_flight);
    assert_eq!(counters.latency, session.latency());
}

#[test]
fn both_pages_of_a_session_show_the_counters_of_both_ends() {
    let dir = Dir::new();
    let server = Process::start("server 1", &dir.run_dir);
    let mut client = Client::<AsRequested>::with_config(&dir.run_dir, client_config());
    for outcome in [AsRequested::ANSWER, AsRequested::ANSWER, AsRequested::FAIL, AsRequested::PANIC]
    {
        let _ = client.call(&outcome);
    }
    let session = client.session().unwrap();
    let mut scanner = Scanner::default();
    until("the server sleeps", || pages::<AsRequested>(&mut scanner, &server)[1].sleeps);
    let [here, there] = pages::<AsRequested>(&mut scanner, &server);
    assert_eq!((here.pid, there.pid), (std::process::id(), server.pid()));
    let (mine, theirs) = (here.counters.unwrap(), there.counters.unwrap());
    assert_page_has_stats(&mine, session);
    assert_eq!((mine.of(Counter::Answered), mine.of(Counter::Errors)), (2, 2));
    assert_eq!((theirs.of(Counter::Requests), theirs.of(Counter::Answered)), (4, 4));
    assert_eq!((theirs.of(Counter::Errors), theirs.of(Counter::Panics)), (2, 1));
    // Bytes are the positions, and all was taken.
    let stats = session.stats();
    assert_eq!((here.tail, here.head), (stats.requests.bytes, stats.answers.bytes));
    assert_eq!((here.in_use(&there), there.in_use(&here)), (0, 0));
    assert_eq!((here.doorbell, there.doorbell), (Some(Doorbell::Futex), Some(Doorbell::Eventfd)));
    assert_eq!((here.rings, here.parks), (stats.rings, stats.parks));
    assert_eq!(theirs.lane_size(), 16 << 10);
    assert!(theirs.latency.count() == 0 && mine.latency.count() > 0);
}

#[test]
fn waits_and_failed_ends_are_visible_while_they_last() {
    let dir = Dir::new();
    let mut server = Process::start("server 1", &dir.run_dir);
    let mut client = Client::<Hold>::with_config(&dir.run_dir, client_config());
    let session = client.connect().unwrap();
    for at in 0..3 {
        session.submit(&at).unwrap();
    }
    assert_eq!(server.next_line(), "came 0");
    let late = session.call_within(&9, Duration::ZERO).unwrap_err();
    assert!(matches!(late, CallError::Deadline { .. }), "{late}");
    let mut scanner = Scanner::default();
    let [here, _] = pages::<Hold>(&mut scanner, &server);
    let counters = here.counters.unwrap();
    assert_page_has_stats(&counters, session);
    assert_eq!((counters.in_flight(), counters.of(Counter::Late)), (3, 1));
    until("all are taken", || {
        let [_, there] = pages::<Hold>(&mut scanner, &server);
        there.counters.unwrap().of(Counter::Requests) == 4
    });
    server.send_line("open");
    for _ in 0..3 {
        session.wait_reply(Duration::from_secs(60)).unwrap().1.unwrap();
    }
    until("the late answer is dropped", || {
        assert!(session.try_reply().unwrap().is_none());
        session.stats().dropped == 1
    });
    let [here, _] = pages::<Hold>(&mut scanner, &server);
    assert_page_has_stats(&here.counters.unwrap(), session);
    drop(client);
    until("it is over", || seen::<Hold>(&mut scanner, &server).is_empty());
}

#[test]
fn lanes_that_grow_and_fill_are_seen() {
    let dir = Dir::new();
    let server = Process::start("server 0", &dir.run_dir);
    let config = client_config().lane(client_config().lane.stream_from(None));
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    for len in [10, 100_000, 10] {
        assert_eq!(client.call(&vec![3; len]).unwrap().len(), len);
    }
    let mut scanner = Scanner::default();
    until("it slept since", || {
        client.call(&vec![1]).unwrap();
        let [here, _] = pages::<Echo>(&mut scanner, &server);
        here.counters.unwrap().lane_size() > 16 << 10
    });
    let stats = client.session().unwrap().stats();
    let [here, there] = pages::<Echo>(&mut scanner, &server);
    let counters = here.counters.unwrap();
    assert_eq!(counters.of(Counter::Grows), stats.requests.grows);
    assert_eq!(counters.lane_size(), stats.requests.size);
    assert!(counters.of(Counter::HighWater) <= stats.requests.high_water);
    assert!(there.counters.unwrap().of(Counter::Grows) >= 1);
}

/// A busy session is timed rarely, and each timed call counts for those that were not.
#[test]
fn the_timed_calls_stand_for_all() {
    let dir = Dir::new();
    let _server = Process::start("server 0", &dir.run_dir);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    for _ in 0..20_000 {
        client.call(&vec![1; 8]).unwrap();
    }
    let session = client.session().unwrap();
    let (stats, latency) = (session.stats(), session.latency());
    let counted = latency.count();
    assert!((10_000..=40_000).contains(&counted), "{counted} of 20 000, {stats:?}");
    let (half, most) = (latency.quantile(500).unwrap(), latency.quantile(990).unwrap());
    assert!(half > 64 && half <= most, "{half} ns, {most} ns");
}
