//! What becomes of calls where a system call is forbidden.

use std::thread;
use std::time::{Duration, Instant};

use bellwire::{ServerConfig, SpinPolicy};

use crate::support::limiter::forbid_here;
use crate::support::services::Echo;
use crate::support::test_server::{TestServer, client_config};

/// It sleeps on the word that the answer changes, and polls the others every 10 ms.
#[test]
fn without_futex_waitv_an_answer_is_noticed_at_once() {
    // Neither spins, so both sleep in each call.
    let fixture = TestServer::with(ServerConfig::default().spin(SpinPolicy::NEVER));
    let config = client_config().spin(SpinPolicy::NEVER);
    let mut client = fixture.client_with::<Echo>(config);
    let caller = thread::spawn(move || {
        forbid_here(libc::SYS_futex_waitv);
        let mut took: Vec<Duration> = (0..51)
            .map(|number| {
                let began = Instant::now();
                assert_eq!(client.call(&vec![number]).unwrap(), [number]);
                began.elapsed()
            })
            .collect();
        took.sort_unstable();
        took[25]
    });
    let median = caller.join().unwrap();
    assert!(median < Duration::from_millis(5), "{median:?}");
}
