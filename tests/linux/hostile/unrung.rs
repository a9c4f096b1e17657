//! A server that declines what a reader in an event loop asks of it: the reader pauses before it asks again. Or one that closes.

#[cfg(feature = "tokio")]
use std::thread;
use std::time::Duration;

#[cfg(feature = "tokio")]
use bellwire::AsyncSubscriber;
use bellwire::{
    Backoff, ClientConfig, Doorbell, Event, ProviderState, Refreshed, SnapshotCache, StartAt,
    Subscriber,
};
use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Header, Kind, Status, record_len};
use bellwire_core::{PeerMemory, Port, Word};
use bellwire_memfd::{clock, poll};

use crate::support::guard::{test_deadline, until};
use crate::support::rogue::{RogueListener, RogueSession};
use crate::support::services::Numbers;
use crate::support::test_server::{Dir, client_config};

/// A pause is random below this: none of them ends during a test.
const LONG: Duration = Duration::from_secs(1_000_000);
const SHORT: Duration = Duration::from_millis(1);

struct Changes;

impl Event for Changes {
    const NAME: &'static str = "changes";
    type Message = Vec<u8>;
}

fn config(pause: Duration) -> ClientConfig {
    client_config().doorbell(Doorbell::Socket).backoff(Backoff::default().initial(pause).max(pause))
}

fn cache(dir: &Dir, pause: Duration) -> SnapshotCache<Numbers> {
    SnapshotCache::with_config(&dir.run_dir, config(pause))
}

/// Opens a session with a reader, which `turn` advances.
fn open(listener: &RogueListener, mut turn: impl FnMut() -> ProviderState) -> RogueSession {
    listener.meet(|| until("a session", || turn() == ProviderState::Ready))
}

fn requests_end(rogue: &RogueSession) -> u64 {
    rogue.link.peer().load(Word::Tail, Ordering::Acquire)
}

/// Answers the only request.
fn answer(rogue: &mut RogueSession, status: Status) {
    let (kind, _, id) = rogue.answer(0);
    assert_eq!(kind, Kind::Request);
    rogue.put(Header::new(Kind::Response, status, id, 0), &[]);
}

fn close(rogue: &mut RogueSession) {
    let mut close = Header::new(Kind::Close, Status::Ok, 0, 0);
    close.status = (CloseReason::Stopping as u16).into();
    rogue.put(close, &[]);
}

fn is_readable(cache: &mut SnapshotCache<Numbers>) -> bool {
    poll::wait_readable(&[cache.pollable().unwrap()], Some(clock::now())).unwrap().any()
}

#[test]
fn a_cache_that_is_not_rung_does_not_retry_before_its_backoff() {
    for status in [Status::Busy, Status::Ok, Status::Malformed] {
        let dir = Dir::new();
        let listener = RogueListener::bind(&dir.run_dir, "numbers");
        let mut cache = cache(&dir, LONG);
        let mut rogue = open(&listener, || {
            cache.refresh().unwrap();
            cache.state()
        });
        assert!(!cache.arm().unwrap());
        assert_eq!(cache.poll_timeout(), None, "it is to be rung");
        answer(&mut rogue, status);
        let fd = cache.pollable().unwrap();
        assert!(poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any());
        for _ in 0..100 {
            assert_eq!(cache.refresh().unwrap(), Refreshed::Empty);
            assert!(!cache.arm().unwrap());
        }
        assert!(!is_readable(&mut cache), "{status:?}: its event loop spins");
        assert_eq!(requests_end(&rogue), record_len(8), "{status:?}: it asked again");
        assert!(cache.poll_timeout().is_some(), "{status:?}: it sleeps for ever");
    }
}

#[test]
fn a_subscriber_that_is_not_rung_does_not_retry_before_its_backoff() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "changes");
    let mut subscriber =
        Subscriber::<Changes>::with_config(&dir.run_dir, StartAt::Now, config(LONG));
    let mut rogue = open(&listener, || {
        subscriber.try_next().unwrap();
        subscriber.state()
    });
    assert!(!subscriber.arm().unwrap());
    assert_eq!(subscriber.poll_timeout(), None, "it is to be rung");
    answer(&mut rogue, Status::Busy);
    let fd = subscriber.pollable().unwrap();
    assert!(poll::wait_readable(&[fd], Some(test_deadline())).unwrap().any());
    for _ in 0..100 {
        assert_eq!(subscriber.try_next().unwrap(), None);
        assert!(!subscriber.arm().unwrap());
    }
    assert_eq!(requests_end(&rogue), record_len(8), "it asked again");
    assert!(subscriber.poll_timeout().is_some(), "it sleeps for ever");
}

#[test]
fn a_cache_that_is_not_rung_retries_after_its_backoff() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "numbers");
    let mut cache = cache(&dir, SHORT);
    let mut rogue = open(&listener, || {
        cache.refresh().unwrap();
        cache.state()
    });
    assert!(!cache.arm().unwrap());
    answer(&mut rogue, Status::Busy);
    until("it asks again", || {
        cache.refresh().unwrap();
        assert!(!cache.arm().unwrap());
        let until = cache.poll_timeout().map_or(clock::now(), |due| clock::now().after(due));
        poll::wait_readable(&[cache.pollable().unwrap()], Some(until)).unwrap();
        requests_end(&rogue) > record_len(8)
    });
}

/// The first time, its successor may listen already.
#[test]
fn a_cache_whose_requests_are_declined_again_connects_only_after_its_backoff() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "numbers");
    let mut cache = cache(&dir, LONG);
    for _ in 0..2 {
        let mut rogue = open(&listener, || {
            cache.refresh().unwrap();
            cache.state()
        });
        rogue.announce(1);
        assert_eq!(cache.refresh().unwrap(), Refreshed::Pending);
        answer(&mut rogue, Status::Busy);
        until("it is declined", || cache.refresh().unwrap() == Refreshed::Unavailable);
        assert!(!cache.arm().unwrap());
        cache.pollable().unwrap();
    }
    assert!(!is_readable(&mut cache) && !listener.has_caller(), "it connects again");
    assert!(cache.poll_timeout().is_some(), "it sleeps for ever");
}

#[test]
fn a_subscriber_whose_providers_stop_connects_only_after_its_backoff() {
    let dir = Dir::new();
    let listener = RogueListener::bind(&dir.run_dir, "changes");
    let mut subscriber =
        Subscriber::<Changes>::with_config(&dir.run_dir, StartAt::Now, config(LONG));
    for _ in 0..2 {
        let mut turn = || {
            assert!(subscriber.try_next().unwrap().is_none());
            subscriber.state()
        };
        let rogue = open(&listener, &mut turn);
        rogue.stop();
        until("it has left", || turn() != ProviderState::Ready);
        assert!(!subscriber.arm().unwrap());
        subscriber.pollable().unwrap();
    }
    assert!(subscriber.try_next().unwrap().is_none());
    assert!(!listener.has_caller(), "it connects again");
    assert!(subscriber.poll_timeout().is_some(), "it sleeps for ever");
}

#[test]
fn arming_a_reader_whose_provider_is_gone_has_its_next_turn_say_so() {
    for (is_armed, shows_life) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = Dir::new();
        let bind = |service| {
            let mut listener = RogueListener::bind(&dir.run_dir, service);
            listener.shows_life = shows_life;
            listener
        };
        let listener = bind("numbers");
        let mut cache = cache(&dir, LONG);
        let mut rogue = open(&listener, || {
            cache.refresh().unwrap();
            cache.state()
        });
        if is_armed {
            assert!(!cache.arm().unwrap());
        }
        close(&mut rogue);
        assert!(cache.arm().unwrap());
        assert_eq!(cache.refresh().unwrap(), Refreshed::Unavailable);

        let listener = bind("changes");
        let mut subscriber =
            Subscriber::<Changes>::with_config(&dir.run_dir, StartAt::Now, config(LONG));
        let mut rogue = open(&listener, || {
            subscriber.try_next().unwrap();
            subscriber.state()
        });
        if is_armed {
            assert!(!subscriber.arm().unwrap());
        }
        close(&mut rogue);
        assert!(subscriber.arm().unwrap());
        assert_eq!(subscriber.try_next().unwrap(), None);
        assert_ne!(subscriber.state(), ProviderState::Ready);
    }
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_that_is_not_rung_sleeps_until_its_backoff_ends() {
    use bellwire_core::sync::AtomicU32;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for pause in [LONG, SHORT] {
            let dir = Dir::new();
            let listener = RogueListener::bind(&dir.run_dir, "changes");
            let opened = thread::spawn(move || listener.open(1));
            let mut subscriber =
                AsyncSubscriber::<Changes>::with_config(&dir.run_dir, StartAt::Now, config(pause));
            let polls = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&polls);
            let task = tokio::spawn(async move {
                let mut next = pin!(subscriber.next());
                let poll = poll_fn(|context| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    next.as_mut().poll(context).map(drop)
                });
                poll.await;
            });
            while !opened.is_finished() {
                tokio::time::sleep(SHORT).await;
            }
            let mut rogue = opened.join().unwrap();
            while requests_end(&rogue) == 0 {
                tokio::time::sleep(SHORT).await;
            }
            answer(&mut rogue, Status::Busy);
            if pause == SHORT {
                while requests_end(&rogue) == record_len(8) {
                    tokio::time::sleep(SHORT).await;
                }
            } else {
                tokio::time::sleep(100 * SHORT).await;
                assert_eq!(requests_end(&rogue), record_len(8), "it asked again");
                let polls = polls.load(Ordering::Relaxed);
                assert!(polls < 20, "it was polled {polls} times: it spins");
            }
            assert!(!task.is_finished(), "there was no event");
            task.abort();
        }
    });
}
