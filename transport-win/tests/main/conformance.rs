//! The suite that every transport passes, over sections.

#[path = "../../../tests/conformance/suite/mod.rs"]
mod suite;

use std::cell::RefCell;
use std::thread;

use bellwire_core::lane::Lanes;
use bellwire_core::sync::Ordering;
use bellwire_core::wire::Doorbell;
use bellwire_core::{Geometry, OwnMemory, Port, Word};
use bellwire_win::link::Link;
use bellwire_win::region::PeerRegion;

use crate::support::{Pair, pair};
use suite::Transport;
use suite::endpoints::{Script, serve};
pub(crate) use suite::until;

suite::conformance! {
    sections_rung_by_event: super::OverEvents;
    sections_rung_by_pipe: super::OverPipe;
}

/// Both ends over sections, rung by events.
struct OverEvents;
/// The same, rung by messages on the control pipe.
struct OverPipe;

#[allow(
    clippy::missing_const_for_thread_local,
    reason = "it is; clippy 1.96 does not see it there"
)]
mod calling {
    use super::{PeerRegion, RefCell};

    thread_local! {
        /// The page of the session that this thread calls in.
        pub(super) static PAGE: RefCell<Option<PeerRegion>> = const { RefCell::new(None) };
    }
}

macro_rules! over {
    ($($transport:ident is rung by $doorbell:expr;)*) => {$(
        impl Transport for $transport {
            type Port = Link;

            fn connect(lane: Geometry, script: Box<Script>) -> (Link, Lanes) {
                connect($doorbell, lane, script)
            }

            fn cancel_when_parked(link: &Link) {
                let canceller = link.canceller().unwrap();
                let page = calling::PAGE.take().unwrap();
                thread::spawn(move || {
                    // Nothing tells that a thread sleeps: it has asked to be rung, and has had time since.
                    until("it is armed", || {
                        page.load_u64(Word::WantData.offset(), Ordering::Acquire) != u64::MAX
                    });
                    (0..1000).for_each(|_| thread::yield_now());
                    canceller.cancel();
                });
            }

            fn take_cancel(link: &Link) {
                assert!(link.cancel.take());
            }
        }
    )*};
}

over! {
    OverEvents is rung by Doorbell::Eventfd;
    OverPipe is rung by Doorbell::Socket;
}

/// The serving end runs on a thread of its own until the calling end is gone, or it vanishes.
fn connect(doorbell: Doorbell, lane: Geometry, mut script: Box<Script>) -> (Link, Lanes) {
    let Pair { server, client, page } = pair(usize::try_from(lane.size()).unwrap(), None);
    calling::PAGE.set(Some(page));
    for link in [&server, &client] {
        link.own().store(Word::Doorbell, u64::from(doorbell as u32), Ordering::Release);
    }
    thread::spawn(move || serve(server, Lanes::new(lane, lane), &mut *script, Link::peer_gone));
    (client, Lanes::new(lane, lane))
}
