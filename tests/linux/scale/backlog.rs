//! More clients than may wait to be accepted.

use std::thread;

use bellwire::{Client, ErrorKind, ProviderState, Server, ServerConfig};

use crate::support::gate::Gate;
use crate::support::guard::until;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, client_config, serve_all};

const BACKLOG: u32 = 4;
const CLIENTS: usize = 30;

/// A server whose only thread is held in a handler, and that has its queue full.
#[test]
fn clients_that_find_the_accept_queue_full_get_an_error_are_counted_and_admitted_later() {
    let dir = Dir::new();
    let (gate, arrivals) = Gate::with_channel();
    let config = ServerConfig::default().backlog(BACKLOG);
    let mut builder = Server::builder_with_config(&dir.run_dir, config);
    let _numbers = serve_all(&mut builder, &gate);
    let server = builder.start().unwrap();
    let mut held = Client::<Hold>::with_config(&dir.run_dir, client_config());
    held.connect().unwrap();
    let held = thread::spawn(move || held.call(&7).unwrap());
    assert_eq!(arrivals.next(), 7);

    // The server accepts no connection now: the kernel queues as many as the backlog, and one more.
    let client = |_| Client::<Echo>::with_config(&dir.run_dir, client_config());
    let mut queued: Vec<_> = (0..=BACKLOG).map(client).collect();
    for client in &mut queued {
        assert_eq!(client.refresh(), ProviderState::Connecting);
        assert_eq!(client.backlog_rejections(), 0);
    }
    let mut rejected = client(0);
    let ProviderState::Failed { kind, reason } = rejected.refresh() else {
        panic!("{:?}", rejected.state())
    };
    assert_eq!((kind, rejected.backlog_rejections()), (ErrorKind::WouldBlock, 1), "{reason}");
    assert!(reason.contains("backlog"), "{reason}");

    // Each retries until its deadline, at different times.
    let late: Vec<_> = (0..CLIENTS)
        .map(|at| {
            let mut client = client(0);
            thread::spawn(move || {
                let answer = client.call(&vec![at as u8]);
                assert_eq!(answer.unwrap(), [at as u8]);
                client.backlog_rejections()
            })
        })
        .collect();
    until("one tries again", || {
        rejected.refresh();
        rejected.backlog_rejections() > 1
    });
    gate.open();
    assert_eq!(held.join().unwrap(), 7);
    let backlog_rejections: Vec<u64> =
        late.into_iter().map(|client| client.join().unwrap()).collect();
    println!("found the queue full: {backlog_rejections:?}");
    for client in queued.iter_mut().chain([&mut rejected]) {
        until("it is let in", || client.refresh() == ProviderState::Ready);
    }
    let stats = server.stop();
    assert!(stats.backlog_peak > BACKLOG.into(), "{stats:?}");
    assert_eq!(stats.handshakes_failed, 0, "{stats:?}");
}
