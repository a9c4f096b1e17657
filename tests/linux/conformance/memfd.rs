use std::thread;

use bellwire_core::Geometry;
use bellwire_core::lane::Lanes;
use bellwire_core::wire::Doorbell;
use bellwire_memfd::link::Link;

use super::links::links;
use super::suite::Transport;
use super::suite::endpoints::{Script, serve};
use crate::support::parked::once_parked;

/// Both ends over sealed memfds, rung by futexes.
pub(crate) struct OverFutex;
/// The same, rung by eventfds.
pub(crate) struct OverEventfd;
/// The same, rung by bytes on the control socket.
pub(crate) struct OverSocket;

macro_rules! over {
    ($($transport:ident is rung by $doorbell:expr;)*) => {$(
        impl Transport for $transport {
            type Port = Link;

            fn connect(lane: Geometry, script: Box<Script>) -> (Link, Lanes) {
                connect($doorbell, lane, script)
            }

            fn cancel_when_parked(link: &Link) {
                let canceller = link.canceller().unwrap();
                once_parked(move || canceller.cancel());
            }

            fn take_cancel(link: &Link) {
                assert!(link.cancel.take());
            }
        }
    )*};
}

over! {
    OverFutex is rung by Doorbell::Futex;
    OverEventfd is rung by Doorbell::Eventfd;
    OverSocket is rung by Doorbell::Socket;
}

/// The serving end runs on a thread of its own until the calling end is gone, or it vanishes.
fn connect(doorbell: Doorbell, lane: Geometry, mut script: Box<Script>) -> (Link, Lanes) {
    let bytes = usize::try_from(lane.size()).unwrap();
    let (calling, serving) = links(bytes, doorbell, doorbell);
    thread::spawn(move || serve(serving, Lanes::new(lane, lane), &mut *script, Link::peer_gone));
    (calling, Lanes::new(lane, lane))
}
