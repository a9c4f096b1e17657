//! One peer that connects as often as it can.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bellwire::Client;
use bellwire_core::sync::{AtomicBool, AtomicU64, Ordering};

use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::kernel;
use crate::support::rogue::Rogue;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

/// Two seconds' worth of 2 000 connects a second.
const CONNECTS: u64 = 4000;

#[test]
fn thousands_of_connects_of_one_peer_delay_no_other_client_and_leak_nothing() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut good = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    let (held, mapped) = (kernel::fds(server.pid()), kernel::memory(server.pid()).len());
    let (made, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let run_dir = dir.run_dir.clone();
    let start = Instant::now();
    let peer = {
        let (made, over) = (Arc::clone(&made), Arc::clone(&over));
        thread::spawn(move || {
            while made.load(Ordering::Relaxed) < CONNECTS {
                let rogue = Rogue::connect(&run_dir, "echo");
                // Every other connection sends HELLO, has memory made for it, and leaves.
                if made.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
                    rogue.enter();
                }
            }
            over.store(true, Ordering::Relaxed);
        })
    };
    let mut calls = 0_u64;
    while !over.load(Ordering::Relaxed) {
        let request = calls.to_le_bytes().to_vec();
        assert_eq!(good.call(&request).unwrap(), request);
        calls += 1;
    }
    peer.join().unwrap();
    let took = start.elapsed().as_secs_f64();
    println!("{:.0} connects a second, and {calls} calls meanwhile", CONNECTS as f64 / took);
    assert!(calls > 0);
    until("nothing is left behind", || {
        kernel::fds(server.pid()) <= held + 1 && kernel::memory(server.pid()).len() <= mapped
    });
    assert_eq!(good.call(&vec![2]).unwrap(), [2]);
    // The last one may still be in its turn.
    let mut stats = Default::default();
    until("all are counted", || {
        stats = crate::support::roles::parse_stats(&server.ask("stats"));
        stats.handshakes_failed >= CONNECTS
    });
    assert_eq!((stats.handshakes_failed, stats.poisoned), (CONNECTS, 0), "{stats:?}");
}
