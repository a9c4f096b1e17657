//! Sessions are distinguished, and wakeups by every doorbell are seen.

use crate::support::process::{Process, pair};
use crate::support::tracer::{Tracer, number, stage};

#[test]
fn every_doorbell_shows_when_it_wakes() {
    for doorbell in ["futex", "eventfd", "socket"] {
        let dir = tempfile::tempdir().unwrap();
        let server = Process::start("server eventfd", dir.path());
        let mut client = Process::start(&format!("client {doorbell}"), dir.path());
        let Some(tracer) = Tracer::start_at(&client, &["breakdown"]) else { return };
        // Long enough for the client to stop spinning.
        client.ask("calls 20 20000");
        let tables = tracer.tables();
        let table = tables.first().unwrap();
        assert_eq!(table["server"], server.pid());
        let woken = stage(table, "reply-wake");
        assert!(number(woken, "count") > 10, "{doorbell}: {table:#}");
    }
}

#[test]
fn a_server_that_is_rung_by_the_socket_shows_when_it_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let _server = Process::start("server socket", dir.path());
    let mut client = Process::start("client", dir.path());
    let Some(tracer) = Tracer::start_at(&client, &["breakdown"]) else { return };
    client.ask("calls 20 20000");
    let tables = tracer.tables();
    assert!(number(stage(&tables[0], "call"), "count") == 20, "{tables:#?}");
}

#[test]
fn two_sessions_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start("server", dir.path());
    let mut clients = [Process::start("client", dir.path()), Process::start("client", dir.path())];
    let Some(tracer) = Tracer::start_at(&server, &["breakdown", "--by-session"]) else { return };
    clients[0].ask("calls 7 0");
    clients[1].ask("calls 11 0");
    let tables = tracer.tables();
    assert_eq!(tables.len(), 2, "{tables:#?}");
    for (client, calls) in clients.iter().zip([7, 11]) {
        let table = tables.iter().find(|table| table["client"] == client.pid()).unwrap();
        assert_eq!(table["calls"], calls, "{table:#}");
    }
}

#[test]
fn a_tracer_that_attaches_before_the_processes_start_sees_all_calls() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tracer) = Tracer::start(&["breakdown", "-s", "nap", "--by-session"]) else { return };
    let server = Process::start("server", dir.path());
    let mut client = Process::start("client", dir.path());
    client.ask("calls 9 0");
    let tables = tracer.tables();
    // Other tests run the same service concurrently.
    let table = tables.iter().find(|table| table["server"] == server.pid()).unwrap();
    assert_eq!(table["calls"], 9, "{table:#}");
}

#[test]
fn another_service_is_left_out() {
    let (_dir, _server, mut client) = pair();
    let Some(tracer) = Tracer::start(&["breakdown", "-s", "na"]) else { return };
    client.ask("calls 9 0");
    let (tables, status, messages) = tracer.finish_with_messages();
    // Never an empty table and success.
    assert!(tables.is_empty() && status.code() == Some(1), "{tables:#?}");
    assert!(messages.contains("no session of na is open; there are sessions of "), "{messages}");
}

#[test]
fn snoop_prints_only_slow_calls_and_names_the_wakers() {
    let (_dir, server, mut client) = pair();
    client.ask("calls 1 0");
    let Some(tracer) = Tracer::start_at(&server, &["snoop", "--min-duration", "200ms"]) else {
        return;
    };
    client.ask("calls 5 0");
    client.ask("calls 2 330000");
    let calls = tracer.tables();
    assert_eq!(calls.len(), 2, "{calls:#?}");
    for call in &calls {
        assert!(call["handler_ns"].as_u64().unwrap() >= 330_000_000, "{call:#}");
        assert_eq!(call["request"]["receiver_pid"], server.pid());
        assert_eq!(call["reply"]["receiver_pid"], client.pid());
        assert_eq!(call["request"]["length"], 1000);
    }
    // The client slept until the server's reactor woke it. In one of the calls a timer may have been first.
    let woken = |call: &&serde_json::Value| call["reply"]["waker"] == "bellwire-reacto";
    assert!(calls.iter().any(|call| woken(&call)), "{calls:#?}");
}
