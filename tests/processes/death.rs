use std::time::Duration;

use bellwire::{Backoff, CallError, Client, Executed, ProviderState, ServerConfig};

use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::parked::park;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config};

#[test]
fn a_provider_killed_in_mid_call_ends_the_parked_call_which_may_have_run() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut client = Client::<Hold>::with_config(&dir.run_dir, client_config());
    client.connect().unwrap();
    let caller = park(move || {
        let failed = client.call(&7);
        // Its last thread dies before its listening socket is closed.
        until("it is absent", || client.refresh() == ProviderState::Absent);
        failed
    });
    assert_eq!(server.next_line(), "came 7");
    // Not waited for: a zombie is dead enough.
    server.kill_unwaited();
    let failed = caller.join().unwrap();
    let maybe = matches!(failed, Err(CallError::PeerGone { executed: Executed::Maybe }));
    assert!(maybe, "{failed:?}");
}

#[test]
fn a_provider_killed_before_it_took_a_request_has_not_run_it() {
    let dir = Dir::new();
    // Without workers a held handler blocks the reactor: nothing else is taken.
    let mut server = Process::start("server", &dir.run_dir);
    let mut echo = Client::<Echo>::with_config(&dir.run_dir, client_config());
    echo.call(&vec![1]).unwrap();
    let mut hold = Client::<Hold>::with_config(&dir.run_dir, client_config());
    let ticket = hold.connect().unwrap().submit(&7).unwrap();
    assert_eq!(server.next_line(), "came 7");
    let caller = park(move || echo.call(&vec![2]));
    server.kill();
    let failed = caller.join().unwrap();
    let not_run = matches!(failed, Err(CallError::PeerGone { executed: Executed::No }));
    assert!(not_run, "{failed:?}");
    let session = hold.session().unwrap();
    assert!(!session.is_open());
    assert_eq!(session.stats().in_flight, 1, "{ticket:?} never ends by itself");
}

#[test]
fn a_restarted_provider_is_found_by_refresh() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let backoff =
        Backoff::default().initial(Duration::from_micros(10)).max(Duration::from_micros(100));
    let config = client_config().backoff(backoff);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    assert_eq!(client.refresh(), ProviderState::Ready);
    server.kill();
    assert_eq!(client.refresh(), ProviderState::Absent);
    assert!(client.session().is_none());
    // The files of the crash do not keep a successor out.
    let _successor = Process::start("server", &dir.run_dir);
    until("the successor is found", || client.refresh() == ProviderState::Ready);
    assert_eq!(client.call(&vec![2]).unwrap(), [2]);
}

#[test]
fn a_client_killed_in_mid_call_frees_its_session_and_disturbs_no_other() {
    let fixture = TestServer::with(ServerConfig::default().workers(2));
    let mut other = fixture.client::<Echo>();
    let mut victim = Process::start("client", fixture.run_dir());
    victim.send_line("hold 5");
    assert_eq!(fixture.arrivals.next(), 5);
    assert_eq!(other.call(&vec![1]).unwrap(), [1]);
    until("two sessions", || fixture.stats().sessions == 2);
    victim.kill();
    until("its session is freed", || fixture.stats().sessions == 1);
    for at in 0..100 {
        assert_eq!(other.call(&vec![at]).unwrap(), [at]);
    }
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.answered, stats.lost, stats.poisoned), (2, 101, 1, 0));
}
