//! A link between two processes without a handshake.

use std::os::windows::io::{AsHandle, BorrowedHandle, OwnedHandle};
use std::time::Duration;

use bellwire_core::lane::Lanes;
use bellwire_core::wire::{Doorbell, MAX_CONTROL, PAGE_SIZE};
use bellwire_core::{Geometry, Instant, Limits};
use bellwire_win::doorbell::Event;
use bellwire_win::link::{Link, OwnEnd, Parts, PeerEnd};
use bellwire_win::pass::{Channel, ReceiveError, Received};
use bellwire_win::peer::{self, ProcessAccess};
use bellwire_win::prelude::*;
use bellwire_win::region::{OwnRegion, PeerRegion};
use bellwire_win::{clock, poll};

/// A test that waits longer than this hangs; nothing is measured with it.
pub(crate) fn test_deadline() -> Option<Instant> {
    Some(clock::now().after(Duration::from_secs(60)))
}

/// Exchanges memory over a channel and makes a link of it, as a handshake would.
pub(crate) fn link_over(channel: Channel) -> Link {
    let (page, page_handle) = OwnRegion::create("page", PAGE_SIZE, |_| {}).unwrap();
    let lane_size = usize::try_from(Geometry::DEFAULT.size()).unwrap();
    let (lane, lane_handle) = OwnRegion::create("lane", lane_size, |_| {}).unwrap();
    let own = OwnEnd { page, lane };
    Lanes::open(&own);
    let own_event = Event::create().unwrap();
    let ringer = own_event.for_peer().unwrap();
    let sent = [page_handle.as_handle(), lane_handle.as_handle(), ringer.as_handle()];
    channel.send(b"memory", &sent).unwrap();
    let [page, lane, event] = taken(receive(&channel).unwrap().1);
    let peer = PeerEnd {
        page: PeerRegion::verify_and_map(page, PAGE_SIZE).unwrap(),
        lane: PeerRegion::verify_and_map(lane, lane_size).unwrap(),
    };
    let peer_event = Some(Event::from_peer(event).unwrap());
    let process = match channel.process() {
        Some(_) => None,
        None => Some(peer::process(&channel, ProcessAccess::Watch).unwrap()),
    };
    Link::new(Parts {
        own,
        peer,
        channel,
        doorbell: Doorbell::Eventfd,
        own_event: Some(own_event),
        peer_event,
        process,
        limits: Limits::default(),
        lane_name: String::new(),
        trusts_peer: true,
    })
    .unwrap()
}

/// Takes the handles of a message, which are exactly `N`.
pub(crate) fn taken<const N: usize>(received: Received) -> [OwnedHandle; N] {
    received.into_objects().collect::<Vec<_>>().try_into().unwrap()
}

/// Waits for a handle; false when it takes too long.
pub(crate) fn ready(handle: BorrowedHandle<'_>) -> bool {
    poll::wait(&[handle], test_deadline()).unwrap().is_some()
}

/// Waits for a message.
pub(crate) fn receive(channel: &Channel) -> Result<(Vec<u8>, Received), ReceiveError> {
    let mut buf = [0; MAX_CONTROL];
    loop {
        match channel.receive(&mut buf, 8) {
            Err(ReceiveError::WouldBlock) => assert!(ready(channel.arrived()), "nothing comes"),
            received => {
                return received.map(|received| (buf[..received.len].to_vec(), received));
            }
        }
    }
}
