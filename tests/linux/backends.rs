//! The same server with each backend of its reactor.

use std::thread;

use bellwire::{
    Backend, BackendStatus, CallError, Client, Doorbell, Executed, RunDir, ServerConfig, SpinPolicy,
};

use crate::support::child::{Parent, Process};
use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::parked::park;
use crate::support::services::{Echo, Hold, echo};
use crate::support::test_server::{Dir, TestServer, client_config, provide_with, server_config};

/// Runs `test` with each backend that this build and this kernel have.
fn each(test: impl Fn(ServerConfig)) {
    for backend in [Backend::Epoll, Backend::IoUring] {
        let config = || ServerConfig::default().backend(backend);
        let fixture = TestServer::with(config());
        let in_use = fixture.server.backend();
        fixture.close();
        match in_use.why_not {
            None => assert_eq!(in_use.backend, backend),
            Some(why) => {
                eprintln!("not run with {backend}: {why}");
                continue;
            }
        }
        test(config());
    }
}

#[test]
fn calls_are_answered_hot_and_parked() {
    each(|config| {
        for spin in [SpinPolicy::default(), SpinPolicy::NEVER] {
            let backend = config.backend;
            let fixture = TestServer::with(config.clone().spin(spin));
            assert_eq!(fixture.server.backend(), BackendStatus { backend, why_not: None });
            let mut client = fixture.client::<Echo>();
            for at in 0..1000_u32 {
                let said = at.to_le_bytes().to_vec();
                assert_eq!(client.call(&said).unwrap(), said);
            }
            let stats = fixture.close();
            assert_eq!((stats.admitted, stats.answered, stats.poisoned), (1, 1000, 0));
        }
    });
}

#[test]
fn a_worker_that_is_done_wakes_the_reactor() {
    each(|config| {
        let fixture = TestServer::with(config.workers(2));
        let mut client = fixture.client::<Hold>();
        let caller = park(move || client.call(&7));
        // Both ends sleep.
        assert_eq!(fixture.arrivals.next(), 7);
        fixture.release();
        assert_eq!(caller.join().unwrap().unwrap(), 7);
    });
}

#[test]
fn a_killed_client_frees_its_session() {
    each(|config| {
        let fixture = TestServer::with(config.workers(2));
        let mut other = fixture.client::<Echo>();
        let mut victim = Process::start("client", fixture.run_dir());
        victim.send_line("hold 5");
        assert_eq!(fixture.arrivals.next(), 5);
        assert_eq!(other.call(&vec![1]).unwrap(), [1]);
        until("two sessions", || fixture.stats().sessions == 2);
        victim.kill();
        until("its session is freed", || fixture.stats().sessions == 1);
        assert_eq!(other.call(&vec![2]).unwrap(), [2]);
        assert_eq!(fixture.close().lost, 1);
    });
}

#[test]
fn slots_and_descriptors_are_reused() {
    each(|config| {
        for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
            let fixture = TestServer::with(config.clone().doorbell(doorbell));
            for round in 0..100_u8 {
                let mut pair = [fixture.client::<Echo>(), fixture.client::<Echo>()];
                for client in &mut pair {
                    assert_eq!(client.call(&vec![round]).unwrap(), [round]);
                }
            }
            until("all have left", || fixture.stats().sessions == 0);
            assert_eq!(fixture.close().answered, 200);
        }
    });
}

/// More rings at once than one wait reports, from clients that all sleep at once; no end spins.
#[test]
fn hundreds_of_clients_that_ring_at_once_are_all_answered() {
    const THREADS: usize = 8;
    const EACH: usize = 40;
    const ROUNDS: u8 = 20;
    each(|config| {
        let spin = SpinPolicy::NEVER;
        let fixture = TestServer::with(config.spin(spin).handshake_timeout(TEST_TIMEOUT));
        let run_dir = fixture.run_dir();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(move || {
                    let connect = |_| Client::<Echo>::with_config(run_dir, client_config());
                    let mut clients: Vec<_> = (0..EACH).map(connect).collect();
                    for round in 0..ROUNDS {
                        let mut tickets = Vec::new();
                        for client in &mut clients {
                            tickets.push(client.connect().unwrap().submit(&vec![round]).unwrap());
                        }
                        for (client, ticket) in clients.iter_mut().zip(tickets) {
                            let session = client.session().unwrap();
                            let (answered, answer) = session.wait_reply(TEST_TIMEOUT).unwrap();
                            assert_eq!((answered, answer.unwrap()), (ticket, vec![round]));
                        }
                    }
                });
            }
        });
        let calls = THREADS as u64 * EACH as u64 * u64::from(ROUNDS);
        assert_eq!(fixture.close().answered, calls);
    });
}

#[test]
fn a_stopping_server_closes_every_session_and_returns_its_counters() {
    each(|config| {
        let fixture = TestServer::with(config);
        let mut clients: Vec<_> = (0..20).map(|_| fixture.client::<Echo>()).collect();
        for client in &mut clients {
            assert_eq!(client.call(&vec![1]).unwrap(), [1]);
        }
        let stats = fixture.close();
        assert_eq!((stats.admitted, stats.answered), (20, 20));
        for client in &mut clients {
            assert!(client.session().is_none_or(|session| !session.is_open()));
        }
    });
}

/// What an io_uring polls it holds open: that must end with the process as it does with epoll.
#[test]
fn a_server_that_is_killed_is_gone_for_its_clients() {
    each(|config| {
        let dir = Dir::new();
        let role = format!("backend {}", config.backend);
        let mut server = Process::start(&role, &dir.run_dir);
        let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
        assert_eq!(client.call(&vec![1]).unwrap(), [1]);
        let mut idle = Client::<Echo>::with_config(&dir.run_dir, client_config());
        idle.connect().unwrap();
        server.kill();
        let failed = idle.session().unwrap().call(&vec![2]);
        assert!(
            matches!(failed, Err(CallError::PeerGone { executed: Executed::No })),
            "{failed:?}"
        );
        let successor = Process::start(&role, &dir.run_dir);
        until("the successor is found", || client.call(&vec![3]).is_ok());
        drop(successor);
    });
}

/// A server with the backend of this name, until it is killed.
pub(crate) fn serve(mut parent: Parent, backend: &str) {
    let all = [Backend::Epoll, Backend::IoUring];
    let backend = all.into_iter().find(|known| known.as_str() == backend).unwrap();
    let config = server_config(ServerConfig::default().backend(backend));
    let _server = provide_with::<Echo>(&RunDir::from_environment(), config, echo);
    parent.send_line("ready");
    while parent.next_line().is_some() {}
}

#[test]
fn a_missing_backend_is_replaced_and_reported() {
    let config = ServerConfig::default().backend(Backend::ThreadPool);
    let fixture = TestServer::with(config);
    assert_eq!(fixture.client::<Echo>().call(&vec![1]).unwrap(), [1]);
    let in_use = fixture.server.backend();
    assert_eq!(in_use.backend, Backend::Epoll);
    assert!(in_use.why_not.unwrap().contains("Windows"), "{in_use:?}");
}
