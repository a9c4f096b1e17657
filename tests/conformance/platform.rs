//! What links and regions promise on any platform. The tests of both transports include this file, implement [`Testbed`],
//! and name it in one line of [`each_promise`].

use std::fmt::Debug;
use std::sync::mpsc;
use std::time::Duration;

use bellwire_core::sync::Ordering;
use bellwire_core::wire::{CloseReason, Doorbell, PageState};
use bellwire_core::{Bell, OwnMemory, Park, PeerMemory, Port, Woken, Word};
use bellwire_shm::platform::prelude::*;
use bellwire_shm::{Canceller, Link};

/// How to connect two ends, and what the promises cannot do through a [`Platform`].
pub(crate) trait Testbed: 'static {
    type Platform: Platform + Debug;

    /// By what an end can be rung.
    const DOORBELLS: &[Doorbell];

    /// Both ends of a session in this process. The first is rung by this doorbell.
    fn links(doorbell: Doorbell) -> (Link<Self::Platform>, Link<Self::Platform>);

    /// Returns what waits, on another thread, until the calling one is parked; at once where the system does not tell.
    fn parked() -> impl FnOnce() + Send;
}

/// Data beyond this tail. A test that waits for the deadline hangs.
fn until_data<T: Testbed>(tail: u64) -> Park {
    let until = T::Platform::now().after(Duration::from_secs(60));
    Park { tail, head: None, until: Some(until) }
}

fn no_longer<T: Testbed>(park: Park) -> Park {
    Park { until: Some(T::Platform::now()), ..park }
}

pub(crate) fn each_doorbell_wakes_a_parked_thread_for_data_and_space<T: Testbed>()
where
    Link<T::Platform>: Send,
{
    for doorbell in T::DOORBELLS {
        for (bell, word) in [(Bell::Data, Word::Tail), (Bell::Space, Word::Head)] {
            let (mut waiter, ringer) = T::links(*doorbell);
            let parked = T::parked();
            let (sender, receiver) = mpsc::channel();
            let (finish, done) = mpsc::channel::<()>();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    // With a life word the waiter takes no time slices: without a ring it sleeps on.
                    let page = &ringer.own().page;
                    let _life = <T::Platform as Platform>::LifeLock::hold(page);
                    sender.send(()).unwrap();
                    parked();
                    ringer.own().store(word, 64, Ordering::Release);
                    ringer.ring(bell);
                    assert_eq!(page.load_u64(Word::Rings.offset(), Ordering::Relaxed), 1);
                    // Nothing but the ring may end the wait.
                    assert!(done.recv().is_err());
                });
                receiver.recv().unwrap();
                let park = Park { head: Some(0), ..until_data::<T>(0) };
                assert_eq!(waiter.park(park), Woken::Rung, "{doorbell:?} {bell:?}");
                drop(finish);
            });
            assert_eq!(waiter.peer().load(word, Ordering::Acquire), 64);
        }
    }
}

pub(crate) fn a_word_that_moved_before_the_park_is_not_slept_on<T: Testbed>() {
    for doorbell in T::DOORBELLS {
        let (mut waiter, ringer) = T::links(*doorbell);
        ringer.own().store(Word::Tail, 16, Ordering::Release);
        assert_eq!(waiter.park(until_data::<T>(0)), Woken::Rung, "{doorbell:?}");
    }
}

pub(crate) fn a_park_ends_at_its_deadline<T: Testbed>() {
    for doorbell in T::DOORBELLS {
        let (mut waiter, _ringer) = T::links(*doorbell);
        for wait in [0, 3, 150] {
            let until = T::Platform::now().after(Duration::from_millis(wait));
            let park = Park { until: Some(until), ..until_data::<T>(0) };
            assert_eq!(waiter.park(park), Woken::Deadline, "{doorbell:?}");
            assert!(T::Platform::now() >= until);
        }
    }
}

pub(crate) fn another_thread_cancels_a_park<T: Testbed>()
where
    Canceller<T::Platform>: Sync,
{
    for doorbell in T::DOORBELLS {
        let (mut waiter, _ringer) = T::links(*doorbell);
        let canceller = waiter.canceller().unwrap();
        for _ in 0..100 {
            let parked = T::parked();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    parked();
                    canceller.cancel();
                });
                assert_eq!(waiter.park(until_data::<T>(0)), Woken::Cancelled, "{doorbell:?}");
            });
            assert_eq!(waiter.park(until_data::<T>(0)), Woken::Cancelled, "until it is taken");
            assert!(waiter.cancel.take());
            assert!(!waiter.cancel.take());
            assert_eq!(waiter.park(no_longer::<T>(until_data::<T>(0))), Woken::Deadline);
        }
    }
}

pub(crate) fn a_peer_that_closes_its_channel_is_gone_after_its_data<T: Testbed>()
where
    Link<T::Platform>: Send,
{
    for doorbell in T::DOORBELLS {
        let (mut waiter, ringer) = T::links(*doorbell);
        assert!(!waiter.peer_gone());
        let parked = T::parked();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                parked();
                ringer.own().store(Word::Tail, 16, Ordering::Release);
                drop(ringer);
            });
            assert_eq!(waiter.park(until_data::<T>(0)), Woken::Rung, "{doorbell:?}");
        });
        assert_eq!(waiter.park(until_data::<T>(16)), Woken::PeerGone, "{doorbell:?}");
        assert!(waiter.peer_gone());
    }
}

pub(crate) fn a_peer_whose_page_is_closed_is_gone<T: Testbed>() {
    for doorbell in T::DOORBELLS {
        let (mut waiter, ringer) = T::links(*doorbell);
        let closed = PageState::Closed.word(Some(CloseReason::Normal));
        ringer.own().store(Word::State, closed, Ordering::Release);
        assert_eq!(waiter.park(until_data::<T>(0)), Woken::PeerGone, "{doorbell:?}");
        assert!(waiter.peer_gone());
    }
}

pub(crate) fn a_peer_that_keeps_ringing_extends_no_deadline<T: Testbed>() {
    for doorbell in T::DOORBELLS {
        let (mut waiter, ringer) = T::links(*doorbell);
        ringer.ring(Bell::Data);
        let park = no_longer::<T>(until_data::<T>(0));
        assert_eq!(waiter.park(park), Woken::Deadline, "{doorbell:?}");
    }
}

pub(crate) fn the_peer_reads_the_bytes_that_the_owner_writes<T: Testbed>() {
    type Own<T> = <<T as Testbed>::Platform as Platform>::OwnRegion;
    type Peer<T> = <<T as Testbed>::Platform as Platform>::PeerRegion;
    const SIZE: usize = 16 << 10;
    let (own, sent) = Own::<T>::create("lane", SIZE, |own| own.write(0, b"constant")).unwrap();
    let peer = Peer::<T>::verify_and_map(sent, SIZE).unwrap();
    assert_eq!(peer.read_header::<8>(0), *b"constant");
    own.write(SIZE - 4, b"tail");
    own.store_u64(128, 0x1_0000_0002, Ordering::Release);
    peer.will_read(128);
    assert_eq!(peer.load_u64(128, Ordering::Acquire), 0x1_0000_0002);
    assert_eq!(peer.load_u64(128, Ordering::SeqCst), own.load_u64(128, Ordering::Relaxed));
    let mut bytes = [0; 4];
    peer.read(SIZE - 4, &mut bytes);
    assert_eq!(&bytes, b"tail");
    assert_eq!((own.size(), peer.size()), (SIZE, SIZE));
}

/// Makes every promise a test over this testbed, as seen from the module that includes this file as `promises`.
macro_rules! each_promise {
    ($testbed:ty) => {
        promises::each_promise! {
            $testbed:
            each_doorbell_wakes_a_parked_thread_for_data_and_space,
            a_word_that_moved_before_the_park_is_not_slept_on,
            a_park_ends_at_its_deadline,
            another_thread_cancels_a_park,
            a_peer_that_closes_its_channel_is_gone_after_its_data,
            a_peer_whose_page_is_closed_is_gone,
            a_peer_that_keeps_ringing_extends_no_deadline,
            the_peer_reads_the_bytes_that_the_owner_writes,
        }
    };
    ($testbed:ty: $($promise:ident,)*) => {$(
        #[test]
        fn $promise() {
            promises::$promise::<$testbed>();
        }
    )*};
}

pub(crate) use each_promise;
