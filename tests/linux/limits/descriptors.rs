//! No descriptor more can be had (`RLIMIT_NOFILE`), or only so many.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use bellwire::{
    CallError, Client, Doorbell, ErrorKind, Geometry, LaneConfig, RunDir, ServerConfig,
    SnapshotCache,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::child::{Parent, Process};
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::kernel;
use crate::support::limiter::drop_limit_capabilities;
use crate::support::services::{Echo, Numbers, echo, numbers};
use crate::support::test_server::{Dir, Reconciled, TestServer, client_config, provide_with};

/// More than a session takes on either side.
const ENOUGH: usize = 12;

/// Serves, or calls, with the given number of free descriptors.
pub(super) fn play(mut parent: Parent) {
    drop_limit_capabilities();
    let run_dir = RunDir::from_environment();
    #[cfg(feature = "tokio")]
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let before = getrlimit(Resource::Nofile);
    let mut server = None;
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        let words: Vec<_> = line.split(' ').collect();
        let reply = match words[..] {
            ["serve", doorbell] => {
                let doorbell = match doorbell {
                    "socket" => Doorbell::Socket,
                    _ => Doorbell::Eventfd,
                };
                let config = ServerConfig::default().doorbell(doorbell);
                server = Some(provide_with::<Echo>(&run_dir, config, echo));
                "serving".to_owned()
            }
            ["leave", free] => {
                leave(free.parse().unwrap(), before);
                "left".to_owned()
            }
            ["exhaust"] => {
                setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
                "exhausted".to_owned()
            }
            ["incidents"] => {
                let server: &Reconciled = server.as_ref().unwrap();
                let latest = server.incidents().pop().map_or(String::new(), |one| one.to_string());
                format!("{} {latest}", server.stats().out_of_descriptors)
            }
            ["restore"] => {
                setrlimit(Resource::Nofile, before).unwrap();
                "restored".to_owned()
            }
            ["connect"] => {
                let mut client = Client::<Echo>::with_config(&run_dir, client_config());
                match client.call(&vec![1]) {
                    Ok(answer) => format!("answered {answer:?}"),
                    Err(error) => format!("{:?} {error}", error.kind()),
                }
            }
            #[cfg(feature = "tokio")]
            ["task"] => {
                let client = bellwire::AsyncClient::<Echo>::with_config(&run_dir, client_config());
                let called = runtime.block_on(client.call(&vec![1]));
                drop(client);
                // What the session leaves to its task.
                runtime.block_on(tokio::task::yield_now());
                match called {
                    Ok(answer) => format!("answered {answer:?}"),
                    Err(error) => format!("{:?} {error}", error.kind()),
                }
            }
            ["poll"] => {
                let config = client_config().doorbell(Doorbell::Eventfd);
                let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, config);
                cache.refresh_within(TEST_TIMEOUT).unwrap();
                leave(0, before);
                let none = cache.pollable().err().map(|error| error.to_string());
                setrlimit(Resource::Nofile, before).unwrap();
                none.unwrap_or_default()
            }
            ref words => panic!("what is {words:?}?"),
        };
        parent.send_line(&reply);
    }
    drop(server);
}

/// Lowers the limit so that exactly so many descriptors can be had.
fn leave(free: usize, before: Rlimit) {
    setrlimit(Resource::Nofile, before).unwrap();
    let fds: Vec<OwnedFd> =
        (0..=free).map(|_| std::io::stdin().as_fd().try_clone_to_owned().unwrap()).collect();
    let limit = u64::try_from(fds[free].as_raw_fd()).unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
}

/// A new connection is refused with a reason, or waits until its own deadline; open sessions continue; and when there
/// are descriptors again every client is admitted.
#[track_caller]
fn a_server_with_few_descriptors(doorbell: &str) {
    let dir = Dir::new();
    let mut server = Process::start("limits descriptors", &dir.run_dir);
    server.ask(&format!("serve {doorbell}"));
    let mut good = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    let held = kernel::fds(server.pid());
    let mut refused = 0;
    for free in 0..ENOUGH {
        server.ask(&format!("leave {free}"));
        let config = client_config().connect_timeout(Duration::from_millis(100));
        let mut late = Client::<Echo>::with_config(&dir.run_dir, config);
        if let Err(error) = late.connect() {
            refused += 1;
            let kind = error.kind();
            let is_typed =
                matches!(kind, ErrorKind::Deadline | ErrorKind::Refused | ErrorKind::PeerGone);
            assert!(is_typed, "{free} descriptors: {error}");
            if let CallError::Refused { code, reason, .. } = &error {
                assert_eq!(*code, bellwire::RefuseCode::Resources, "{free}: {reason}");
                assert!(reason.contains("the provider"), "{free}: {reason}");
            }
        }
        assert_eq!(good.call(&vec![free as u8]).unwrap(), [free as u8], "{free} descriptors");
        drop(late);
        server.ask("restore");
        let mut later = Client::<Echo>::with_config(&dir.run_dir, client_config());
        until("it is let in", || later.call(&vec![2]).is_ok_and(|answer| answer == [2]));
    }
    assert!(refused > 0, "there were descriptors all the time");
    // A server that sleeps checks memory that a client has kept four times in 12 s, and later whenever it is awake.
    until("nothing is left behind", || {
        assert_eq!(good.call(&vec![3]).unwrap(), [3]);
        kernel::fds(server.pid()) <= held + 1
    });
}

#[test]
fn a_server_with_few_descriptors_refuses_newcomers_and_keeps_its_sessions() {
    a_server_with_few_descriptors("eventfd");
}

#[test]
fn a_server_with_few_descriptors_that_is_rung_by_sockets_does_too() {
    a_server_with_few_descriptors("socket");
}

/// It cannot follow the lane, and does not wait for descriptors to do so: those of the session are some.
#[test]
fn a_server_without_descriptors_ends_the_session_of_a_client_that_leaves_with_a_larger_lane() {
    let dir = Dir::new();
    let mut server = Process::start("limits descriptors", &dir.run_dir);
    server.ask("serve eventfd");
    let free = kernel::fds(server.pid());
    let lane = LaneConfig::default().size(Geometry::SMALLEST);
    let config = client_config().lane(lane).doorbell(Doorbell::Eventfd);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    assert!(kernel::fds(server.pid()) > free);
    server.ask("exhaust");
    let session = client.session().unwrap();
    session.submit(&vec![2; 8 << 10]).unwrap();
    until("it is short", || server.ask("incidents").contains("short of descriptors"));
    drop(client);
    until("the session is over", || kernel::fds(server.pid()) <= free + 1);
}

/// No connection is accepted, so none is refused either: the operator is still informed, once for as long as it
/// lasts.
#[test]
fn a_server_without_a_descriptor_to_accept_with_reports_it_once() {
    let dir = Dir::new();
    let mut server = Process::start("limits descriptors", &dir.run_dir);
    server.ask("serve eventfd");
    server.ask("leave 0");
    let config = client_config().connect_timeout(Duration::from_millis(100));
    let mut late = Client::<Echo>::with_config(&dir.run_dir, config);
    late.connect().unwrap_err();
    let reply = server.ask("incidents");
    assert!(reply.starts_with("1 echo: a client is delayed"), "{reply}");
    assert!(
        reply.contains("short of descriptors (os error 24)") && reply.contains("RLIMIT_NOFILE"),
        "{reply}"
    );
    server.ask("restore");
    let mut later = Client::<Echo>::with_config(&dir.run_dir, client_config());
    until("it is let in", || later.call(&vec![2]).is_ok());
    server.ask("leave 0");
    let config = client_config().connect_timeout(Duration::from_millis(100));
    Client::<Echo>::with_config(&dir.run_dir, config).connect().unwrap_err();
    let reply = server.ask("incidents");
    assert!(reply.starts_with("2 "), "{reply}");
}

#[test]
fn a_client_with_few_descriptors_reports_it_and_connects_later() {
    connects_later("connect");
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_with_few_descriptors_reports_it_and_connects_later() {
    connects_later("task");
}

#[track_caller]
fn connects_later(way: &str) {
    let fixture = TestServer::open();
    let mut good: Client<Echo> = fixture.client();
    let mut client = Process::start("limits descriptors", fixture.run_dir());
    let held = kernel::fds(client.pid());
    let mut failed = 0;
    for free in 0..ENOUGH {
        client.ask(&format!("leave {free}"));
        let reply = client.ask(way);
        if reply != "answered [1]" {
            failed += 1;
            assert!(reply.starts_with("System "), "{free} descriptors: {reply}");
            // A test beside this one has descriptors in flight, which count for the user: more than this client may open.
            let names_it = reply.contains("open files") || reply.contains("in flight");
            assert!(names_it, "{free} descriptors: {reply}");
        }
        assert_eq!(good.call(&vec![1]).unwrap(), [1]);
        client.ask("restore");
        assert_eq!(client.ask(way), "answered [1]", "after {free} descriptors");
    }
    assert!(failed > 0, "there were descriptors all the time");
    until("nothing is left behind", || kernel::fds(client.pid()) <= held + 1);
    drop((good, client));
    assert_eq!(fixture.close().poisoned, 0);
}

#[test]
fn an_event_loop_without_a_descriptor_to_poll_gets_an_error_with_the_limit() {
    let fixture = TestServer::open();
    fixture.numbers.publish(&numbers(1, 1)).unwrap();
    let mut client = Process::start("limits descriptors", fixture.run_dir());
    let reply = client.ask("poll");
    assert!(reply.contains("open files"), "{reply}");
}

/// Too many of this user's descriptors are in flight: the handshake's message with memory cannot be sent.
#[test]
fn a_handshake_with_too_many_descriptors_in_flight_reports_it_and_succeeds_later() {
    let fixture = TestServer::open();
    let mut client = Process::start("blob-client", fixture.run_dir());
    client.ask("in-flight");
    // Of another service, which has no provider: the fixture has no blobs.
    let mut server = Process::start("blobs", fixture.run_dir());
    let reply = client.ask("open");
    assert!(reply.contains("System") && reply.contains("TooManyInFlight"), "{reply}");
    client.ask("nothing-in-flight");
    until("it is let in", || client.ask("open") == "ok");
    assert_eq!(client.ask("call 100 100 0 0"), "ok");
    server.ask("stop");
}
