//! One session that is busy, and another one that is not.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bellwire::{Client, Server};
use bellwire_core::sync::{AtomicBool, AtomicU64, Ordering};
use bellwire_memfd::clock;

use crate::support::guard::{TEST_TIMEOUT, until};
use crate::support::services::services;
use crate::support::test_server::{Dir, client_config};

const FLOODERS: u64 = 2;
/// What the server takes at most from the flooders between a call of the quiet client and its handler: until it
/// checks for rings, and two rounds of turns.
const BOUND: u64 = 2048 + 4 * 64 * FLOODERS;
/// Messages of the flooders after which a session without any is polled no more: its client has to ring.
const UNTIL_COLD: u64 = 180_000;
const COLD_CALLS: u64 = 8;
/// The server's work for a message, so that it never catches up with the flooders, and is never idle.
const WORK: Duration = Duration::from_micros(2);
const CALLS: u64 = 200;

services! {
    Flood("flood"): u64 => u64;
    Quiet("quiet"): u64 => u64;
}

/// What the handlers, all of which run on one thread, see of one another.
#[derive(Default)]
struct Seen {
    /// The quiet client's last call of which it is sure that it is published, and that the server was rung for it.
    published: AtomicU64,
    /// The last one that was handled.
    handled: AtomicU64,
    /// Messages of the flooders since the next one was published.
    meanwhile: AtomicU64,
    most: AtomicU64,
    flooded: AtomicU64,
}

impl Seen {
    fn flood(&self) {
        let over = clock::now().after(WORK);
        while clock::now() < over {}
        self.flooded.fetch_add(1, Ordering::Relaxed);
        if self.published.load(Ordering::Acquire) > self.handled.load(Ordering::Relaxed) {
            self.meanwhile.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn quiet(&self, call: u64) {
        self.handled.store(call, Ordering::Relaxed);
        self.most.fetch_max(self.meanwhile.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[test]
fn sessions_that_flood_leave_a_quiet_one_its_turn_after_a_bounded_number_of_messages() {
    let dir = Dir::new();
    let seen = Arc::new(Seen::default());
    let mut builder = Server::builder(&dir.run_dir);
    let by_flood = Arc::clone(&seen);
    let serve_flood = builder.serve::<Flood>(move |_, number| {
        by_flood.flood();
        Ok(number)
    });
    let by_quiet = Arc::clone(&seen);
    let serve_quiet = serve_flood.unwrap().serve::<Quiet>(move |_, call| {
        by_quiet.quiet(call);
        Ok(call)
    });
    serve_quiet.unwrap();
    let server = builder.start().unwrap();

    let over = Arc::new(AtomicBool::new(false));
    let flooders = (0..FLOODERS).map(|_| {
        let (over, mut client) =
            (Arc::clone(&over), Client::<Flood>::with_config(&dir.run_dir, client_config()));
        thread::spawn(move || {
            let numbers: Vec<u64> = (0..20_000).collect();
            let session = client.connect().unwrap();
            while !over.load(Ordering::Relaxed) {
                session.call_many(&numbers, |_, answer| assert!(answer.is_ok())).unwrap();
            }
        })
    });
    let flooders: Vec<_> = flooders.collect();
    until("the flood is there", || seen.flooded.load(Ordering::Relaxed) > UNTIL_COLD);

    let mut client = Client::<Quiet>::with_config(&dir.run_dir, client_config());
    let session = client.connect().unwrap();
    for call in 1..=CALLS {
        if call <= COLD_CALLS {
            let now = seen.flooded.load(Ordering::Relaxed);
            until("the session is cold", || {
                seen.flooded.load(Ordering::Relaxed) > now + UNTIL_COLD
            });
        }
        session.submit(&call).unwrap();
        seen.published.store(call, Ordering::Release);
        let (_, answer) = session.wait_reply(TEST_TIMEOUT).unwrap();
        assert_eq!(answer.unwrap(), call);
    }
    let rings = session.stats().rings;
    over.store(true, Ordering::Relaxed);
    flooders.into_iter().for_each(|flooder| flooder.join().unwrap());
    server.stop();

    let most = seen.most.load(Ordering::Relaxed);
    println!("at most {most} messages of others before a call's handler; {rings} rings");
    assert!(rings > 0, "the quiet session was polled all the time");
    assert!(most <= BOUND, "{most} messages of others came before a call's handler");
}
